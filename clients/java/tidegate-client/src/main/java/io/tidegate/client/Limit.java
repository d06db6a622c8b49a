package io.tidegate.client;

import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A limit of the rules.
 *
 * @param requests hits that fit into one window
 * @param unit {@code second}, {@code minute}, {@code hour}, {@code day}, {@code week}, {@code
 *     month}, {@code year}; empty if the window is not one unit
 * @param name the name in the rules; empty if it has none
 * @param window the length of the window, exact; null if the server does not send it
 */
public record Limit(long requests, String unit, String name, @Nullable Duration window) {
  /** Length of each unit, as the server counts them. */
  private static final Map<String, Duration> UNITS =
      Map.of(
          "second", Duration.ofSeconds(1),
          "minute", Duration.ofMinutes(1),
          "hour", Duration.ofHours(1),
          "day", Duration.ofDays(1),
          "week", Duration.ofDays(7),
          "month", Duration.ofDays(30),
          "year", Duration.ofDays(365));

  /** Units in which a window is written, the largest first. */
  private enum Scale {
    D(86_400_000_000_000L),
    H(3_600_000_000_000L),
    M(60_000_000_000L),
    S(1_000_000_000L),
    MS(1_000_000L),
    US(1_000L),
    NS(1L);

    private final long nanos;

    Scale(long nanos) {
      this.nanos = nanos;
    }
  }

  /**
   * Creates a limit whose window is its unit.
   *
   * @param requests hits that fit into one window
   * @param unit {@code second}, {@code minute}, {@code hour}, {@code day}, {@code week}, {@code
   *     month}, {@code year}; empty if the window is not one unit
   * @param name the name in the rules; empty if it has none
   */
  public Limit(long requests, String unit, String name) {
    this(requests, unit, name, UNITS.get(unit));
  }

  /**
   * The name, or the numbers if there is none: {@code 5-per-minute}, {@code 5-per-10s}, or {@code
   * 5} if the window is not known.
   */
  String label() {
    if (!name.isEmpty()) {
      return name;
    }
    if (!unit.isEmpty()) {
      return requests + "-per-" + unit;
    }
    return window == null ? Long.toString(requests) : requests + "-per-" + text(window);
  }

  /** A window as a whole number of the largest possible unit. */
  private static String text(Duration window) {
    long nanos = window.toNanos();
    Scale scale = Scale.NS;
    for (Scale smaller : Scale.values()) {
      if (nanos % smaller.nanos == 0) {
        scale = smaller;
        break;
      }
    }
    return nanos / scale.nanos + scale.name().toLowerCase(Locale.ROOT);
  }
}
