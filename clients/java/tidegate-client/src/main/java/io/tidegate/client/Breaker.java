package io.tidegate.client;

/**
 * Opens after so many failures in a row, and lets one call through each time it has been open for
 * long enough. Failures of calls that overlap count as one: a pause of this process, or a burst
 * that the server answers late, says no more than one late call does. Time is an argument, in
 * monotonic nanoseconds. Thread-safe.
 */
final class Breaker {
  /** Permission to call. */
  enum Permit {
    /** Not permitted: the breaker is open. */
    NONE,
    CALL,
    /** The one call that finds out whether the server answers again. */
    PROBE
  }

  private final int failuresMax;
  private final long openNanos;

  /** Failures in a row. Read without the lock by calls that succeed, which is the common case. */
  private volatile int failures;

  /** Read without the lock by calls that begin. */
  private volatile boolean isOpen;

  /** Time of the last failure that counted. */
  private long failedAtNanos;

  private long probeAtNanos;
  private boolean isProbing;

  Breaker(int failuresMax, long openNanos) {
    this.failuresMax = failuresMax;
    this.openNanos = openNanos;
  }

  Permit enter(long nowNanos) {
    if (!isOpen) {
      return Permit.CALL;
    }
    synchronized (this) {
      if (!isOpen) {
        return Permit.CALL;
      }
      if (isProbing || nowNanos - probeAtNanos < 0) {
        return Permit.NONE;
      }
      isProbing = true;
      return Permit.PROBE;
    }
  }

  void succeeded(Permit permit) {
    if (permit != Permit.CALL || failures != 0) {
      reset(permit);
    }
  }

  private synchronized void reset(Permit permit) {
    if (permit == Permit.PROBE) {
      isProbing = false;
      isOpen = false;
    }
    if (!isOpen) {
      failures = 0;
    }
  }

  /** Records a failure of a call that was sent at some time. */
  synchronized void failed(Permit permit, long sentNanos, long nowNanos) {
    if (failuresMax == 0) {
      return;
    }
    if (permit == Permit.PROBE) {
      isProbing = false;
      probeAtNanos = nowNanos + openNanos;
    } else if (!isOpen && (failures == 0 || sentNanos - failedAtNanos >= 0)) {
      failedAtNanos = nowNanos;
      failures = failures + 1;
      if (failures >= failuresMax) {
        isOpen = true;
        probeAtNanos = nowNanos + openNanos;
      }
    }
  }

  /** Records that the caller cancelled the call: neither a success nor a failure. */
  synchronized void cancelled(Permit permit) {
    if (permit == Permit.PROBE) {
      isProbing = false;
    }
  }
}
