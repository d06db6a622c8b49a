package io.tidegate.client;

import java.time.Duration;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * Keeps denials until their reset, but no longer than a bound. When it is full, the least recently
 * used denial is dropped. Thread-safe.
 *
 * <p>Invariant: a kept denial decides only requests that the server would deny too, unless
 * something ends the denial early: a reset, an override, other rules, hits that another process
 * gives back. The bound limits how long that goes unnoticed.
 */
final class LocalDenials {
  private record Kept(Request request, Decision decision, long sentNanos, long waitNanos) {}

  private final int max;

  /** Longest time for which a denial is kept. */
  private final long keptForNanos;

  private final Map<Request, Kept> kept;

  /** Domains and keys for which hits were given back. */
  private final Set<Request.Shape> givenBack = new HashSet<>();

  LocalDenials(int max, Duration keptFor) {
    this.keptForNanos = saturatedNanos(keptFor);
    this.max = keptForNanos > 0 ? max : 0;
    this.kept =
        new LinkedHashMap<>(16, 0.75f, true) {
          @Override
          protected boolean removeEldestEntry(Map.Entry<Request, Kept> eldest) {
            return size() > max;
          }
        };
  }

  boolean isEnabled() {
    return max > 0;
  }

  /** Returns the kept denial of the request as of now. */
  @Nullable Decision find(Request request, long nowNanos) {
    Kept found;
    synchronized (this) {
      found = kept.get(request);
      if (found == null) {
        return null;
      }
      if (nowNanos - found.sentNanos >= found.waitNanos) {
        kept.remove(request);
        return null;
      }
    }
    // A smaller request may fit where a larger request does not.
    if (request.givesBack() || !request.costsAtLeast(found.request)) {
      return null;
    }
    return found.decision.after(Duration.ofNanos(nowNanos - found.sentNanos));
  }

  /** Keeps a denial, until its reset at most, counted from the moment its call was sent. */
  void keep(Request request, Decision decision, long sentNanos) {
    Duration wait = decision.retryAfter().orElse(Duration.ZERO);
    // A request of 0 hits is denied if one hit does not fit: the denial does not apply to 0 hits.
    if (wait.isZero() || request.givesBack() || request.hasZeroCost()) {
      return;
    }
    // Another quota may admit sooner, a request with more time may be queued, and a slot may be
    // released.
    if (decision.statuses().stream().anyMatch(one -> one.overLimit() && one.mode() != null)) {
      return;
    }
    long waitNanos = Math.min(saturatedNanos(wait), keptForNanos);
    synchronized (this) {
      if (!givenBack.isEmpty() && request.shapes(false).stream().anyMatch(givenBack::contains)) {
        return;
      }
      // A map keeps the key of an entry that it replaces, and the costs are those of the key.
      kept.remove(request);
      kept.put(request, new Kept(request, decision, sentNanos, waitNanos));
    }
  }

  /** Stops keeping denials for the keys of the descriptors that give back. */
  synchronized void endFor(Request request) {
    for (Request.Shape shape : request.shapes(true)) {
      if (givenBack.add(shape)) {
        // Rare: once for each combination of keys.
        kept.clear();
      }
    }
  }

  /** Nanoseconds of a duration, at most about 292 years, the range of the clock. */
  static long saturatedNanos(Duration duration) {
    return duration.getSeconds() >= Long.MAX_VALUE / 1_000_000_000L
        ? Long.MAX_VALUE
        : duration.toNanos();
  }
}
