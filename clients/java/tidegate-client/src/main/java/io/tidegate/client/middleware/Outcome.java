package io.tidegate.client.middleware;

import io.tidegate.client.Decision;
import io.tidegate.client.Slot;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** The result for one request. */
public sealed interface Outcome {
  /** The request proceeds without a decision: it is not limited. */
  record Unlimited() implements Outcome {}

  /**
   * The request proceeds.
   *
   * @param slot what it holds until its end, when {@link Slot#releaseAsync()} is to be called
   * @param headers headers for the response
   */
  record Admitted(Slot slot, Map<String, String> headers) implements Outcome {
    /** {@return the decision} */
    public Decision decision() {
      return slot.decision();
    }
  }

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
