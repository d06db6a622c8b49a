package io.tidegate.client;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * The subject of a limit: entries in order, and optionally hits and a limit of its own. Immutable.
 */
public final class Descriptor {
  static final Set<String> UNITS = Set.of("second", "minute", "hour", "day", "month", "year");

  private final List<Map.Entry<String, String>> entries;

  /** Hits, as an unsigned number; null for those of the call. */
  private final @Nullable Long cost;

  private final @Nullable Limit limit;
  private final boolean givesBack;

  private Descriptor(
      List<Map.Entry<String, String>> entries,
      @Nullable Long cost,
      @Nullable Limit limit,
      boolean givesBack) {
    this.entries = entries;
    this.cost = cost;
    this.limit = limit;
    this.givesBack = givesBack;
  }

  /**
   * Returns a descriptor of one entry.
   *
   * @param key the entry's key, as in the rules
   * @param value the entry's value
   * @return the descriptor
   */
  public static Descriptor of(String key, String value) {
    return new Descriptor(List.of(Map.entry(key, value)), null, null, false);
  }

  /**
   * Returns a descriptor with one more entry, after the others.
   *
   * @param key the entry's key, as in the rules
   * @param value the entry's value
   * @return the descriptor
   */
  public Descriptor and(String key, String value) {
    List<Map.Entry<String, String>> more = new ArrayList<>(entries);
    more.add(Map.entry(key, value));
    return new Descriptor(List.copyOf(more), cost, limit, givesBack);
  }

  /**
   * Returns a descriptor with its own hits, instead of those of the call.
   *
   * @param hits 0 or more
   * @return the descriptor
   */
  public Descriptor cost(long hits) {
    return new Descriptor(entries, CallOptions.checkedCost(hits), limit, givesBack);
  }

  /**
   * Returns a descriptor with hits of its own, as an unsigned number: for more than {@link
   * Long#MAX_VALUE}.
   *
   * @param hits as {@link Long#parseUnsignedLong(String)} returns it
   * @return the descriptor
   */
  public Descriptor unsignedCost(long hits) {
    return new Descriptor(entries, hits, limit, givesBack);
  }

  /**
   * Returns a descriptor with its own limit, instead of the rule's.
   *
   * @param requests hits that fit into one unit
   * @param unit {@code second}, {@code minute}, {@code hour}, {@code day}, {@code month} or {@code
   *     year}
   * @return the descriptor
   */
  public Descriptor limit(long requests, String unit) {
    if (!UNITS.contains(unit)) {
      throw new IllegalArgumentException(
          "the unit of a limit is " + unit + "; use second, minute, hour, day, month or year");
    }
    if (requests < 0 || requests > 0xFFFF_FFFFL) {
      throw new IllegalArgumentException(
          "the limit has " + requests + " requests; use 0 to 4294967295");
    }
    return new Descriptor(entries, cost, new Limit(requests, unit, ""), givesBack);
  }

  /**
   * Returns a descriptor whose hits are given back, in a request that takes hits of other
   * descriptors.
   *
   * @return the descriptor
   */
  public Descriptor givingBack() {
    return new Descriptor(entries, cost, limit, true);
  }

  /** {@return the entries, in order} */
  public List<Map.Entry<String, String>> entries() {
    return entries;
  }

  @Nullable Long cost() {
    return cost;
  }

  @Nullable Limit limit() {
    return limit;
  }

  boolean givesBack() {
    return givesBack;
  }

  /** Compares entries and limit: the identity of a request apart from its costs. */
  boolean hasIdentityOf(Descriptor other) {
    return entries.equals(other.entries) && Objects.equals(limit, other.limit);
  }

  int identityHash() {
    return entries.hashCode() * 31 + Objects.hashCode(limit);
  }

  @Override
  public String toString() {
    return entries.toString();
  }
}
