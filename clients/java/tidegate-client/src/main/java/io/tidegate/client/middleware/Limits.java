package io.tidegate.client.middleware;

import io.tidegate.client.CallOptions;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Predicate;
import java.util.function.ToLongFunction;

/** The requests that middleware limits, and how. Immutable. */
public final class Limits {
  private final List<List<Key>> descriptors;
  private final ToLongFunction<RequestInfo> cost;
  private final Predicate<RequestInfo> skip;
  private final boolean legacyHeaders;
  private final CallOptions options;

  private Limits(
      List<List<Key>> descriptors,
      ToLongFunction<RequestInfo> cost,
      Predicate<RequestInfo> skip,
      boolean legacyHeaders,
      CallOptions options) {
    this.descriptors = descriptors;
    this.cost = cost;
    this.skip = skip;
    this.legacyHeaders = legacyHeaders;
    this.options = options;
  }

  /**
   * Returns limits of one descriptor, with one hit for each request.
   *
   * @param keys its entries, in order; at least one
   * @return the limits
   */
  public static Limits of(Key... keys) {
    return of(List.of(keys));
  }

  /**
   * Returns limits of one descriptor, with one hit for each request.
   *
   * @param keys its entries, in order; at least one
   * @return the limits
   */
  public static Limits of(List<Key> keys) {
    return new Limits(
        List.of(checked(keys)), request -> 1, request -> false, false, CallOptions.DEFAULT);
  }

  private static List<Key> checked(List<Key> keys) {
    if (keys.isEmpty()) {
      throw new IllegalArgumentException(
          "no key; name at least one, such as Key.constant(\"route\", \"all\")");
    }
    return List.copyOf(keys);
  }

  /**
   * Returns limits with another descriptor; all are decided as one request.
   *
   * @param keys its entries, in order; at least one
   * @return the limits
   */
  public Limits and(Key... keys) {
    List<List<Key>> more = new ArrayList<>(descriptors);
    more.add(checked(List.of(keys)));
    return new Limits(List.copyOf(more), cost, skip, legacyHeaders, options);
  }

  /**
   * Returns limits with another number of hits.
   *
   * @param hits returns the hits of a request
   * @return the limits
   */
  public Limits cost(ToLongFunction<RequestInfo> hits) {
    return new Limits(descriptors, hits, skip, legacyHeaders, options);
  }

  /**
   * Returns limits that leave requests out, such as health checks.
   *
   * @param skipped returns whether a request is not limited
   * @return the limits
   */
  public Limits skip(Predicate<RequestInfo> skipped) {
    return new Limits(descriptors, cost, skipped, legacyHeaders, options);
  }

  /**
   * Returns limits that send {@code X-RateLimit-…} headers as well, or do not.
   *
   * @param sent whether they are sent
   * @return the limits
   */
  public Limits legacyHeaders(boolean sent) {
    return new Limits(descriptors, cost, skip, sent, options);
  }

  /**
   * Returns limits with options for each call; the cost is not used.
   *
   * @param ofCalls the options
   * @return the limits
   */
  public Limits options(CallOptions ofCalls) {
    return new Limits(descriptors, cost, skip, legacyHeaders, ofCalls);
  }

  /** The keys of each descriptor. */
  List<List<Key>> descriptors() {
    return descriptors;
  }

  long costOf(RequestInfo request) {
    return cost.applyAsLong(request);
  }

  boolean skips(RequestInfo request) {
    return skip.test(request);
  }

  boolean legacyHeaders() {
    return legacyHeaders;
  }

  CallOptions options() {
    return options;
  }
}
