package io.tidegate.client;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * The result for one descriptor.
 *
 * @param overLimit whether the descriptor is over its limit
 * @param limit the tightest limit that applies; null if none applies
 * @param remaining hits that are left
 * @param resetAfter time until the limit resets, exact; null if no wait helps
 * @param mode the mode of the rule; null for most
 */
public record Status(
    boolean overLimit,
    @Nullable Limit limit,
    long remaining,
    @Nullable Duration resetAfter,
    @Nullable Mode mode) {
  /**
   * Creates the result of a rule without a mode.
   *
   * @param overLimit whether the descriptor is over its limit
   * @param limit the tightest limit that applies; null if none applies
   * @param remaining hits that are left
   * @param resetAfter time until the limit resets, exact; null if no wait helps
   */
  public Status(
      boolean overLimit, @Nullable Limit limit, long remaining, @Nullable Duration resetAfter) {
    this(overLimit, limit, remaining, resetAfter, null);
  }
}
