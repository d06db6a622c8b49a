package io.tidegate.client;

/**
 * Permits one renewal of a connection at a time. The next is permitted after a second, which
 * doubles up to a minute. A server that hangs costs one renewal; servers that answer late on new
 * connections too get no further load. Time is an argument, in monotonic nanoseconds. Thread-safe.
 */
final class Renewals {
  private static final long LEAST_NANOS = 1_000_000_000L;
  private static final long MOST_NANOS = 60 * LEAST_NANOS;

  private boolean isRunning;
  private long nextNanos;
  private long waitNanos = LEAST_NANOS;

  Renewals(long nowNanos) {
    this.nextNanos = nowNanos;
  }

  /** Returns whether a renewal begins. */
  synchronized boolean begin(long nowNanos) {
    if (isRunning || nowNanos - nextNanos < 0) {
      return false;
    }
    isRunning = true;
    return true;
  }

  /** Records the end of a renewal, and whether the connection was replaced. */
  synchronized void ended(boolean isReplaced, long nowNanos) {
    isRunning = false;
    if (!isReplaced) {
      nextNanos = nowNanos + LEAST_NANOS;
      return;
    }
    if (nowNanos - nextNanos >= MOST_NANOS) {
      waitNanos = LEAST_NANOS;
    }
    nextNanos = nowNanos + waitNanos;
    waitNanos = Math.min(2 * waitNanos, MOST_NANOS);
  }
}
