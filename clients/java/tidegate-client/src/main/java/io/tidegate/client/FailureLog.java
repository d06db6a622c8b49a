package io.tidegate.client;

import java.lang.System.Logger.Level;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Logs failing calls, and that calls are answered again: the first failure, then one record a
 * minute. Thread-safe.
 */
final class FailureLog {
  private static final System.Logger LOGGER = System.getLogger("io.tidegate.client");
  private static final long EVERY_NANOS = 60_000_000_000L;

  private final AtomicBoolean isFailing = new AtomicBoolean();

  /** Time of the last record, and failures since then. */
  private long loggedNanos;

  private long since;

  /** Time of the last record of a refused request; none before {@link #hasRefused}. */
  private long refusedNanos;

  private boolean hasRefused;

  /** Logs a decision without an answer, if a record is due. */
  void failed(Decision decision, long nowNanos) {
    long failures;
    synchronized (this) {
      since++;
      boolean isFirst = !isFailing.getAndSet(true);
      if (!isFirst && nowNanos - loggedNanos < EVERY_NANOS) {
        return;
      }
      failures = since;
      since = 0;
      loggedNanos = nowNanos;
    }
    LOGGER.log(
        Level.WARNING,
        "no answer from the rate limit server (%s: %s); requests are %s (failures: %d)"
            .formatted(
                decision.error().orElse(""),
                decision.errorMessage().orElse(""),
                decision.allowed() ? "allowed" : "denied",
                failures));
  }

  /** Logs that the server refuses a request itself, if a record is due. */
  void refused(RequestException refusal, long nowNanos) {
    synchronized (this) {
      if (hasRefused && nowNanos - refusedNanos < EVERY_NANOS) {
        return;
      }
      hasRefused = true;
      refusedNanos = nowNanos;
    }
    LOGGER.log(
        Level.WARNING,
        "the rate limit server refuses a request (%s); middleware answers with 400"
            .formatted(refusal.getMessage()));
  }

  /** Logs an answer, if it is the first after failures. */
  void ended() {
    if (isFailing.get() && isFailing.getAndSet(false)) {
      long failures;
      synchronized (this) {
        failures = since;
        since = 0;
      }
      LOGGER.log(Level.INFO, "the rate limit server answers again (failures: " + failures + ")");
    }
  }

  /** Logs an exception of the application, which changes no decision. */
  static void thrownBy(String what, RuntimeException failure) {
    LOGGER.log(Level.ERROR, what + " of rate limit decisions failed", failure);
  }

  /** Logs that the slots and estimates of a request stay held. */
  static void notEnded(Throwable failure) {
    LOGGER.log(
        Level.WARNING,
        "the end of a request is lost: its slots and estimates end after max_hold",
        failure);
  }
}
