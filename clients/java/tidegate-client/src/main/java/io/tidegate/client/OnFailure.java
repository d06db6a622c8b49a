package io.tidegate.client;

/** The decision on requests without an answer. */
public enum OnFailure {
  /** Allow them: {@link Reason#FAILED_OPEN}. */
  OPEN,
  /** Deny them: {@link Reason#FAILED_CLOSED}. */
  CLOSED
}
