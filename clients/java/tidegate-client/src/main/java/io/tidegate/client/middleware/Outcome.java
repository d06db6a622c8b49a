package io.tidegate.client.middleware;

import io.tidegate.client.Decision;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** The result for one request. */
public sealed interface Outcome {
  /** The request proceeds without a decision: it is not limited. */
  record Unlimited() implements Outcome {}

  /**
   * The request proceeds.
   *
   * @param decision the decision
   * @param headers headers for the response
   */
  record Admitted(Decision decision, Map<String, String> headers) implements Outcome {}

  /**
   * The request is refused.
   *
   * @param status the HTTP status: 400, 429 or 503
   * @param headers headers of the response
   * @param body body of the response
   * @param decision the decision; null if a key is missing
   */
  record Refused(int status, Map<String, String> headers, byte[] body, @Nullable Decision decision)
      implements Outcome {}
}
