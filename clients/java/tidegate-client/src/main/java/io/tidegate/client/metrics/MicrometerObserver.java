package io.tidegate.client.metrics;

import io.micrometer.core.instrument.MeterRegistry;
import io.tidegate.client.Decision;
import io.tidegate.client.DecisionObserver;
import io.tidegate.client.Reason;
import java.time.Duration;

/**
 * Counts decisions in a Micrometer registry: the counter {@code tidegate.client.decisions}, by
 * {@code allowed}, {@code reason} and {@code error}, and the timer {@code
 * tidegate.client.duration}, by {@code reason}.
 */
public final class MicrometerObserver implements DecisionObserver {
  private final MeterRegistry registry;

  /**
   * Creates an observer.
   *
   * @param registry the registry
   */
  public MicrometerObserver(MeterRegistry registry) {
    this.registry = registry;
  }

  @Override
  public void onDecision(Decision decision, Duration taken) {
    Reason reason = decision.reason();
    registry
        .counter(
            "tidegate.client.decisions",
            "allowed",
            Boolean.toString(decision.allowed()),
            "reason",
            reason.label(),
            "error",
            decision.error().orElse(""))
        .increment();
    registry.timer("tidegate.client.duration", "reason", reason.label()).record(taken);
  }
}
