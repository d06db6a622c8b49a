package io.tidegate.client.middleware;

/**
 * The treatment of a request without the value of a key. It has no default: it is a decision about
 * security.
 */
public enum Missing {
  /** Refuse it with 400 before any call. */
  REJECT,
  /** Do not limit it. */
  ALLOW,
  /** Let all such requests share one counter, with the empty value. */
  SHARED
}
