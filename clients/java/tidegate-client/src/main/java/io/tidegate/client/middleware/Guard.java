package io.tidegate.client.middleware;

import io.tidegate.client.Decision;
import io.tidegate.client.Descriptor;
import io.tidegate.client.Reason;
import io.tidegate.client.RequestException;
import io.tidegate.client.Slot;
import io.tidegate.client.Tidegate;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.function.IntPredicate;
import java.util.function.ToLongFunction;
import org.jspecify.annotations.Nullable;

/** Middleware apart from its framework: requests to outcomes. Thread-safe. */
public final class Guard {
  private static final Map<String, String> PLAIN = Map.of("Content-Type", "text/plain");

  private static final System.Logger LOGGER = System.getLogger("io.tidegate.client");

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
    CompletableFuture<Outcome> deciding = decideAsync(request);
    try {
      return deciding.get();
    } catch (InterruptedException interrupted) {
      deciding.cancel(false);
      Thread.currentThread().interrupt();
      CancellationException cancelled = new CancellationException("the request was cancelled");
      cancelled.initCause(interrupted);
      throw cancelled;
    } catch (ExecutionException failed) {
      if (failed.getCause() instanceof RuntimeException failure) {
        throw failure;
      }
      throw new IllegalStateException(failed.getCause());
    }
  }

  /**
   * Decides about a request. If its future is cancelled, no slot is kept.
   *
   * @param request the request
   * @return the outcome, later
   */
  public CompletableFuture<Outcome> decideAsync(RequestInfo request) {
    Subject subject = subject(request);
    CompletableFuture<Outcome> decided = new CompletableFuture<>();
    if (subject.descriptors.isEmpty()) {
      decided.complete(subject.outcome);
      return decided;
    }
    client
        .holdAsync(subject.descriptors, limits.options())
        .whenComplete(
            (slot, failure) -> {
              try {
                Outcome outcome =
                    failure == null
                        ? outcome(slot, subject.descriptors, request)
                        : badValue(failure);
                if (!decided.complete(outcome) && outcome instanceof Outcome.Admitted admitted) {
                  admitted.end(0);
                }
              } catch (RuntimeException | Error unexpected) {
                decided.completeExceptionally(unexpected);
              }
            });
    return decided;
  }

  /** The refusal of a value that the server does not accept, such as a value that is too long. */
  private static Outcome badValue(Throwable failure) {
    Throwable cause = failure instanceof CompletionException ? failure.getCause() : failure;
    if (cause instanceof RequestException refused) {
      return refused(400, Objects.requireNonNullElse(refused.getMessage(), "Bad Request"));
    }
    throw cause instanceof RuntimeException runtime ? runtime : new CompletionException(cause);
  }

  /** Descriptors to be limited, or none and the outcome without them. */
  private record Subject(List<Descriptor> descriptors, Outcome outcome) {}

  private Subject subject(RequestInfo request) {
    Outcome unlimited = new Outcome.Unlimited();
    if (limits.skips(request)) {
      return new Subject(List.of(), unlimited);
    }
    List<Descriptor> descriptors = new ArrayList<>();
    try {
      for (List<Key> keys : limits.descriptors()) {
        Descriptor descriptor = descriptor(keys, request);
        if (descriptor != null) {
          descriptors.add(descriptor);
        }
      }
    } catch (BadRequestException refused) {
      return new Subject(
          List.of(), refused(400, Objects.requireNonNull(refused.getMessage(), "a message")));
    }
    if (descriptors.isEmpty()) {
      return new Subject(List.of(), unlimited);
    }
    ToLongFunction<RequestInfo> cost = limits.cost();
    if (cost == null) {
      return new Subject(descriptors, unlimited);
    }
    long hits = cost.applyAsLong(request);
    return new Subject(descriptors.stream().map(one -> one.cost(hits)).toList(), unlimited);
  }

  /** The descriptor of keys; null if it does not limit the request. */
  private static @Nullable Descriptor descriptor(List<Key> keys, RequestInfo request) {
    Descriptor descriptor = null;
    boolean isLimited = true;
    for (Key key : keys) {
      String value = key.read(request);
      if (value.isEmpty() && key.missing() == Missing.REJECT) {
        throw new BadRequestException("the request has no " + key.entry());
      }
      // A later key may still refuse the request.
      isLimited &= !value.isEmpty() || key.missing() != Missing.ALLOW;
      descriptor =
          descriptor == null
              ? Descriptor.of(key.entry(), value)
              : descriptor.and(key.entry(), value);
    }
    return isLimited ? descriptor : null;
  }

  private Outcome outcome(Slot slot, List<Descriptor> descriptors, RequestInfo request) {
    Decision decision = slot.decision();
    if (decision.reason() == Reason.FAILED_CLOSED && decision.statuses().isEmpty()) {
      Outcome.Refused refused = refused(503, "Service Unavailable");
      return new Outcome.Refused(refused.status(), refused.headers(), refused.body(), decision);
    }
    Map<String, String> headers =
        limits.legacyHeaders() ? decision.legacyHeaders() : decision.headers();
    if (decision.allowed()) {
      return new Outcome.Admitted(slot, headers, status -> end(slot, descriptors, status));
    }
    Map<String, String> complete = new LinkedHashMap<>(headers);
    if (limits.deniedBody() != null) {
      DeniedBody made = limits.deniedBody().apply(decision, request);
      complete.keySet().removeIf("content-type"::equalsIgnoreCase);
      complete.put("Content-Type", made.contentType());
      return new Outcome.Refused(429, complete, made.bytes(), decision);
    }
    if (headers.keySet().stream().noneMatch("content-type"::equalsIgnoreCase)) {
      complete.putAll(PLAIN);
    }
    byte[] body = decision.body();
    return new Outcome.Refused(
        429, complete, body.length > 0 ? body : text("Too Many Requests"), decision);
  }

  private void end(Slot slot, List<Descriptor> descriptors, int status) {
    IntPredicate counts = limits.counts();
    slot.releaseAsync();
    // Without an answer nothing was taken.
    boolean mayNotCount = counts != null && status > 0 && slot.decision().error().isEmpty();
    if (mayNotCount && !counts.test(status)) {
      client
          .giveBackAsync(descriptors, limits.options())
          .whenComplete(
              (decision, failure) -> {
                if (failure != null) {
                  LOGGER.log(
                      System.Logger.Level.WARNING,
                      "hits of a request that does not count are not given back",
                      failure);
                }
              });
    }
  }

  private static Outcome.Refused refused(int status, String message) {
    return new Outcome.Refused(status, PLAIN, text(message), null);
  }

  private static byte[] text(String message) {
    return (message + "\n").getBytes(StandardCharsets.UTF_8);
  }
}
