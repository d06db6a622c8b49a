package io.tidegate.client.middleware;

import io.tidegate.client.Decision;
import io.tidegate.client.Slot;
import java.util.Locale;
import java.util.Map;
import java.util.function.IntConsumer;
import org.jspecify.annotations.Nullable;

/** The result for one request. */
public sealed interface Outcome {
  /**
   * Returns the value of a header beside that of an outer middleware: lists name the limits of
   * both.
   *
   * @param outer the value that the response has; null if it has none
   * @param name the header
   * @param value the value of the decision
   * @return the value to set
   */
  static String beside(@Nullable String outer, String name, String value) {
    String lower = name.toLowerCase(Locale.ROOT);
    boolean isList = lower.equals("ratelimit") || lower.equals("ratelimit-policy");
    return isList && outer != null && !outer.isEmpty() ? outer + ", " + value : value;
  }

  /** The request proceeds without a decision: it is not limited. */
  record Unlimited() implements Outcome {}

  /**
   * The request proceeds.
   *
   * @param slot what it holds until its end
   * @param headers headers for the response
   * @param ending reports its end; see {@link #end(int)}
   */
  record Admitted(Slot slot, Map<String, String> headers, IntConsumer ending) implements Outcome {
    /**
     * Reports that the request is over: its response was sent, and its handler has ended. Releases
     * its slots; a second end does nothing.
     *
     * @param status the status of its response; 0 if it has none
     */
    public void end(int status) {
      ending.accept(status);
    }

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
