package io.tidegate.client.middleware;

import io.tidegate.client.Decision;
import io.tidegate.client.Descriptor;
import io.tidegate.client.Reason;
import io.tidegate.client.Tidegate;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** Middleware without its framework: requests to outcomes. Thread-safe. */
public final class Guard {
  private static final Map<String, String> PLAIN = Map.of("Content-Type", "text/plain");

  private final Tidegate client;
  private final Limits limits;

  /**
   * Creates a guard.
   *
   * @param client the client
   * @param limits what is limited
   */
  public Guard(Tidegate client, Limits limits) {
    this.client = client;
    this.limits = limits;
  }

  /**
   * Decides about a request, and blocks until then.
   *
   * @param request the request
   * @return the outcome
   */
  public Outcome decide(RequestInfo request) {
    Subject subject = subject(request);
    return subject.descriptor == null
        ? subject.outcome
        : outcome(client.limit(List.of(subject.descriptor), limits.options()));
  }

  /**
   * Decides about a request.
   *
   * @param request the request
   * @return the outcome, later
   */
  public CompletableFuture<Outcome> decideAsync(RequestInfo request) {
    Subject subject = subject(request);
    if (subject.descriptor == null) {
      return CompletableFuture.completedFuture(subject.outcome);
    }
    CompletableFuture<Decision> call =
        client.limitAsync(List.of(subject.descriptor), limits.options());
    CompletableFuture<Outcome> outcome = call.thenApply(this::outcome);
    outcome.whenComplete((decided, failure) -> call.cancel(false));
    return outcome;
  }

  /** A descriptor to be limited, or null and the outcome without one. */
  private static final class Subject {
    final @Nullable Descriptor descriptor;
    final Outcome outcome;

    Subject(@Nullable Descriptor descriptor, Outcome outcome) {
      this.descriptor = descriptor;
      this.outcome = outcome;
    }
  }

  private Subject subject(RequestInfo request) {
    Outcome unlimited = new Outcome.Unlimited();
    if (limits.skips(request)) {
      return new Subject(null, unlimited);
    }
    Descriptor descriptor = null;
    for (Key key : limits.keys()) {
      String value = key.read(request);
      if (value.isEmpty() && key.missing() == Missing.REJECT) {
        return new Subject(null, refused(400, "the request has no " + key.entry()));
      }
      if (value.isEmpty() && key.missing() == Missing.ALLOW) {
        return new Subject(null, unlimited);
      }
      descriptor =
          descriptor == null
              ? Descriptor.of(key.entry(), value)
              : descriptor.and(key.entry(), value);
    }
    long hits = limits.costOf(request);
    return new Subject(
        descriptor == null || hits == 1 ? descriptor : descriptor.cost(hits), unlimited);
  }

  private Outcome outcome(Decision decision) {
    if (decision.reason() == Reason.FAILED_CLOSED) {
      Outcome.Refused refused = refused(503, "Service Unavailable");
      return new Outcome.Refused(refused.status(), refused.headers(), refused.body(), decision);
    }
    Map<String, String> headers =
        limits.legacyHeaders() ? decision.legacyHeaders() : decision.headers();
    if (decision.allowed()) {
      return new Outcome.Admitted(decision, headers);
    }
    Map<String, String> complete = new LinkedHashMap<>(headers);
    if (headers.keySet().stream().noneMatch("content-type"::equalsIgnoreCase)) {
      complete.putAll(PLAIN);
    }
    byte[] body = decision.body();
    return new Outcome.Refused(
        429, complete, body.length > 0 ? body : text("Too Many Requests"), decision);
  }

  private static Outcome.Refused refused(int status, String message) {
    return new Outcome.Refused(status, PLAIN, text(message), null);
  }

  private static byte[] text(String message) {
    return (message + "\n").getBytes(StandardCharsets.UTF_8);
  }
}
