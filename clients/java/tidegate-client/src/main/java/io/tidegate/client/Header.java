package io.tidegate.client;

import java.time.Duration;
import java.util.Locale;
import java.util.regex.Pattern;

/**
 * A header that the rules or the server add.
 *
 * @param name its name
 * @param value its value
 */
public record Header(String name, String value) {
  private static final Pattern SECONDS = Pattern.compile("[0-9]{1,18}");

  /** The time until a reset in a RateLimit header. */
  private static final Pattern RESET = Pattern.compile(";t=([0-9]{1,18})");

  /**
   * The least number of seconds that is a time since 1970, as {@code --response-headers x-unix}
   * sends it, and does not age. As a time until a reset it would be more than 31 years.
   */
  private static final long UNIX_TIME_MIN = 1_000_000_000L;

  /** The header as of a later time, if it is a time until a reset. */
  Header after(Duration elapsed) {
    return switch (name.toLowerCase(Locale.ROOT)) {
      case "retry-after", "ratelimit-reset", "x-ratelimit-reset" ->
          SECONDS.matcher(value.strip()).matches()
              ? new Header(name, later(value.strip(), elapsed))
              : this;
      case "ratelimit" ->
          new Header(
              name,
              RESET.matcher(value).replaceAll(found -> ";t=" + later(found.group(1), elapsed)));
      default -> this;
    };
  }

  private static String later(String text, Duration elapsed) {
    long seconds = Long.parseLong(text);
    return seconds >= UNIX_TIME_MIN
        ? text
        : Long.toString(Math.max(seconds - elapsed.getSeconds(), 0));
  }
}
