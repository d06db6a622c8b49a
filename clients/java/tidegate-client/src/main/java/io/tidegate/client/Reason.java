package io.tidegate.client;

import java.util.Locale;

/** The origin of a decision. */
public enum Reason {
  /** The server decided. */
  DECIDED,
  /** An earlier denial of the same request, whose reset has not passed, decided without a call. */
  DENIED_LOCALLY,
  /** No answer arrived, and the policy allows. */
  FAILED_OPEN,
  /** No answer arrived, and the policy denies. */
  FAILED_CLOSED;

  private final String label = name().toLowerCase(Locale.ROOT);

  /** {@return the name in lower case, as in metrics and logs: {@code decided}} */
  public String label() {
    return label;
  }
}
