package io.tidegate.spring;

import io.tidegate.client.Decision;
import io.tidegate.client.middleware.Outcome;
import java.util.Map;
import java.util.Optional;

/** The call of a {@link RateLimited} method was refused. */
public final class RateLimitedException extends RuntimeException {
  /** The outcome. */
  private final transient Outcome.Refused refused;

  RateLimitedException(Outcome.Refused refused) {
    super("refused by the rate limit: HTTP status " + refused.status());
    this.refused = refused;
  }

  /**
   * {@return the HTTP status: 429 if denied, 503 without an answer, 400 without the value of a key}
   */
  public int status() {
    return refused.status();
  }

  /** {@return the decision; empty without the value of a key} */
  public Optional<Decision> decision() {
    return Optional.ofNullable(refused.decision());
  }

  /** {@return headers for the response} */
  public Map<String, String> headers() {
    return refused.headers();
  }

  /** {@return the body for the response} */
  public byte[] body() {
    return refused.body().clone();
  }
}
