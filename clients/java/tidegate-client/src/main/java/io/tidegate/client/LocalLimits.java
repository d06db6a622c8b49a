package io.tidegate.client;

import java.math.BigInteger;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/** Counts requests in this process, all or nothing. Thread-safe. */
final class LocalLimits {
  /** Number of counters; beyond it the least recently used counter is dropped. */
  private static final int COUNTERS_MAX = 100_000;

  private final List<LocalLimit> limits;
  private final LongSupplier unixNanos;

  private final Map<List<Object>, Counter> counters =
      new LinkedHashMap<>(16, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<List<Object>, Counter> eldest) {
          return size() > COUNTERS_MAX;
        }
      };

  LocalLimits(List<LocalLimit> limits, LongSupplier unixNanos) {
    this.limits = List.copyOf(limits);
    this.unixNanos = unixNanos;
  }

  /** Hits used, in units of one hit times the window, so that a bucket refills exactly. */
  private static final class Counter {
    final LocalLimit limit;
    final BigInteger perNanos;
    final BigInteger requests;
    long atNanos;
    BigInteger used = BigInteger.ZERO;

    Counter(LocalLimit limit, long atNanos) {
      this.limit = limit;
      this.perNanos = BigInteger.valueOf(LocalDenials.saturatedNanos(limit.per()));
      this.requests = BigInteger.valueOf(limit.requests());
      this.atNanos = atNanos;
    }

    /**
     * Applies the time since the last use: a bucket refills, a window ends. An earlier time changes
     * nothing.
     */
    void advance(long nanos) {
      long nowNanos = Math.max(atNanos, nanos);
      if (limit.fixedWindow()) {
        long per = perNanos.longValue();
        used = nowNanos / per == atNanos / per ? used : BigInteger.ZERO;
      } else {
        take(BigInteger.valueOf(nowNanos - atNanos).multiply(requests).negate());
      }
      atNanos = nowNanos;
    }

    void take(BigInteger units) {
      used = used.add(units).max(BigInteger.ZERO);
    }

    BigInteger units(long hits) {
      return new BigInteger(Long.toUnsignedString(hits)).multiply(perNanos);
    }

    /** By how much {@code hits} more hits exceed the limit; negative if they fit. */
    BigInteger excess(long hits) {
      return used.add(units(hits)).subtract(requests.multiply(perNanos));
    }

    Status status(long hits, boolean isOver) {
      long remaining = excess(0).negate().divide(perNanos).longValue();
      Limit shown = new Limit(limit.requests(), "", limit.name(), limit.per());
      return new Status(isOver, shown, remaining, resetAfter(hits, isOver));
    }

    /** The wait of such a request over the limit, or the time until the whole limit is free. */
    private @Nullable Duration resetAfter(long hits, boolean isOver) {
      if (isOver && Long.compareUnsigned(hits, limit.requests()) > 0) {
        return null;
      }
      if (limit.fixedWindow()) {
        long per = perNanos.longValue();
        boolean isFree = !isOver && used.signum() == 0;
        return Duration.ofNanos(isFree ? 0 : per - atNanos % per);
      }
      BigInteger missing = isOver ? excess(hits) : used;
      // Rounded up: waiting that long is long enough.
      BigInteger nanos = missing.add(requests).subtract(BigInteger.ONE).divide(requests);
      return Duration.ofNanos(nanos.longValue());
    }
  }

  /** Decides a request, and takes or gives back its hits. */
  synchronized Decision decide(Call call) {
    long now = unixNanos.getAsLong();
    List<@Nullable Counter> reached = new ArrayList<>();
    List<Boolean> isOver = new ArrayList<>();
    for (int index = 0; index < call.descriptors().size(); index++) {
      Descriptor descriptor = call.descriptors().get(index);
      Counter counter = counter(descriptor, now);
      reached.add(counter);
      isOver.add(
          counter != null
              && !descriptor.givesBack()
              && counter.excess(hitsOf(call, index)).signum() > 0);
    }
    boolean allowed = !isOver.contains(true);
    List<Status> statuses = new ArrayList<>();
    for (int index = 0; index < reached.size(); index++) {
      Counter counter = reached.get(index);
      if (counter == null) {
        statuses.add(new Status(false, null, 0, null));
        continue;
      }
      BigInteger units = counter.units(call.costs().get(index));
      if (call.descriptors().get(index).givesBack()) {
        counter.take(units.negate());
      } else if (allowed) {
        counter.take(units);
      }
      statuses.add(counter.status(hitsOf(call, index), isOver.get(index)));
    }
    return new Decision(allowed, Reason.DECIDED, statuses, Decision.Additions.NONE);
  }

  /** Hits that have to fit: one for a peek. */
  private static long hitsOf(Call call, int index) {
    long cost = call.costs().get(index);
    return cost == 0 ? 1 : cost;
  }

  private @Nullable Counter counter(Descriptor descriptor, long now) {
    List<String> keys = descriptor.entries().stream().map(Map.Entry::getKey).toList();
    for (LocalLimit limit : limits) {
      if (limit.keys().equals(keys)) {
        List<Object> identity = new ArrayList<>(List.of(limit));
        descriptor.entries().forEach(entry -> identity.add(entry.getValue()));
        Counter counter = counters.computeIfAbsent(identity, absent -> new Counter(limit, now));
        counter.advance(now);
        return counter;
      }
    }
    return null;
  }
}
