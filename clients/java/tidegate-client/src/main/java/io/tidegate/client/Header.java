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

  private static String later(String seconds, Duration elapsed) {
    return Long.toString(Math.max(Long.parseLong(seconds) - elapsed.getSeconds(), 0));
  }
}
