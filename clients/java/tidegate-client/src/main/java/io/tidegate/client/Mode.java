package io.tidegate.client;

/** A property of a rule that bears on its denials. */
public enum Mode {
  /** {@code quota_mode}: it denies only if all quotas of the request are over their limits. */
  QUOTA,
  /**
   * {@code max_wait}, or a limit of requests in flight: the same request may be admitted before its
   * reset.
   */
  QUEUED
}
