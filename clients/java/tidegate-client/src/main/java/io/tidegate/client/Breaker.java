package io.tidegate.client;

/**
 * Opens after the maximum number of failures in a row. Once it has been open for the set time, it
 * lets one call through. Failures of overlapping calls count as one: a pause of this process, or a
 * burst that the server answers late, proves no more than one late call. While another address is
 * in use, one failure is enough if no call was answered for a quarter of a second: otherwise few
 * calls would take long to find a server that hangs. Time is an argument, in monotonic nanoseconds.
 * Thread-safe.
 */
final class Breaker {
  /** Permission to call. */
  enum Permit {
    /** Not permitted: the breaker is open. */
    NONE,
    CALL,
    /** The one call that tests whether the server answers again. */
    PROBE
  }

  /** Time without an answer after which one failure opens the breaker beside another address. */
  private static final long SILENT_NANOS = 250_000_000L;

  private final int failuresMax;
  private final long openNanos;

  /** Failures in a row. Read without the lock by calls that succeed, which is the common case. */
  private volatile int failures;

  /** Read without the lock by calls that begin. */
  private volatile boolean isOpen;

  /** Whether a call was answered, and the time at which the last answered call was sent. */
  private volatile boolean wasAnswered;

  private volatile long answeredNanos;

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

  /** Whether calls fail at once. */
  boolean isOpen() {
    return isOpen;
  }

  /** Records that a call, sent at some time, was answered. */
  void succeeded(Permit permit, long sentNanos) {
    answeredNanos = sentNanos;
    wasAnswered = true;
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

  /**
   * Records a failure of a call that was sent at some time, and whether another address is in use.
   */
  synchronized void failed(Permit permit, long sentNanos, long nowNanos, boolean hasOther) {
    if (failuresMax == 0) {
      return;
    }
    if (permit == Permit.PROBE) {
      isProbing = false;
      probeAtNanos = nowNanos + openNanos;
    } else if (!isOpen && (failures == 0 || sentNanos - failedAtNanos >= 0)) {
      failedAtNanos = nowNanos;
      failures = failures + 1;
      boolean isSilent = !wasAnswered || nowNanos - answeredNanos >= SILENT_NANOS;
      if (failures >= failuresMax || (hasOther && isSilent)) {
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
