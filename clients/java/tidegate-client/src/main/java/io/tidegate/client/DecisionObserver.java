package io.tidegate.client;

import java.time.Duration;

/** Receives each decision of a client, for metrics and logs. */
@FunctionalInterface
public interface DecisionObserver {
  /**
   * Called on the thread that made the decision. Must not block.
   *
   * @param decision the decision
   * @param taken the time that it took
   */
  void onDecision(Decision decision, Duration taken);
}
