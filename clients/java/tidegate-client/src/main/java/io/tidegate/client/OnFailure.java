package io.tidegate.client;

/** The decision about requests for which no answer arrives. */
public enum OnFailure {
  /** Allow them: {@link Reason#FAILED_OPEN}. */
  OPEN,
  /** Deny them: {@link Reason#FAILED_CLOSED}. */
  CLOSED
}
