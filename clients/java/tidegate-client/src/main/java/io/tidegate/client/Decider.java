package io.tidegate.client;

import io.grpc.ClientInterceptor;
import io.grpc.Context;
import io.grpc.StatusRuntimeException;
import io.tidegate.client.proto.RateLimitResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/**
 * Decides requests: by a kept denial, by the breaker, or by a call, whose failure the policy
 * decides. Thread-safe.
 */
final class Decider {
  /** Least time between two attempts to connect that failed calls cause. */
  private static final long RECONNECT_NANOS = 100_000_000L;

  private final RateLimitCalls calls;
  private final LocalDenials denials;
  private final Breaker breaker;
  private final Duration timeout;
  private final Duration firstTimeout;
  private final OnFailure onFailure;
  private final List<DecisionObserver> observers;
  private final LongSupplier clock;
  private final AtomicLong reconnectedNanos;

  /** Whether a call has ended: the first one opens the connection. */
  private volatile boolean isWarm;

  /** Code and message of the last failure. */
  private volatile String lastFailure = "";

  Decider(TidegateBuilder builder) {
    List<ClientInterceptor> interceptors = new ArrayList<>();
    // The last one is called first.
    interceptors.add(RateLimitCalls.metadata(List.copyOf(builder.metadata)));
    interceptors.addAll(builder.interceptors);
    this.calls =
        new RateLimitCalls(
            Channels.open(builder.addresses, builder.credentials, builder.authority, interceptors));
    this.denials = new LocalDenials(builder.localDenialsMax);
    this.breaker =
        new Breaker(builder.breakerFailures, LocalDenials.saturatedNanos(builder.breakerOpen));
    this.timeout = builder.timeout;
    this.firstTimeout =
        builder.connectTimeout.compareTo(timeout) > 0 ? builder.connectTimeout : timeout;
    this.onFailure = builder.onFailure;
    this.observers = List.copyOf(builder.observers);
    this.clock = builder.clock;
    this.reconnectedNanos = new AtomicLong(clock.getAsLong());
  }

  void close() {
    calls.close();
  }

  /** A decision without a call, or the state of a call. */
  private final class Attempt {
    final Request request;
    final boolean keepsDenials;
    final OnFailure policy;
    final Duration timeout;
    final long sentNanos = clock.getAsLong();
    Breaker.Permit permit = Breaker.Permit.NONE;
    @Nullable Decision decision;

    Attempt(Request request, CallOptions options, boolean usesLocalDenials) {
      this.request = request;
      this.keepsDenials = usesLocalDenials && options.localDenials() && denials.isEnabled();
      OnFailure ofCall = options.onFailure();
      this.policy = ofCall == null ? onFailure : ofCall;
      Duration timeoutOfCall = options.timeout();
      Duration own = isWarm ? Decider.this.timeout : firstTimeout;
      this.timeout = timeoutOfCall == null ? own : timeoutOfCall;
      if (keepsDenials) {
        Decision denial = denials.find(request, sentNanos);
        if (denial != null) {
          this.decision = observed(denial);
          return;
        }
      }
      if (request.givesBack()) {
        denials.endFor(request);
      }
      this.permit = breaker.enter(sentNanos);
      if (permit == Breaker.Permit.NONE) {
        this.decision = withoutAnswer("BREAKER_OPEN", lastFailure);
      }
    }

    Decision answered(RateLimitResponse response) {
      isWarm = true;
      if (!Answers.isComplete(response)) {
        String message = "an answer without a verdict";
        lastFailure = "INTERNAL: " + message;
        breaker.failed(permit, clock.getAsLong());
        return withoutAnswer("INTERNAL", message);
      }
      Decision answered = Answers.decode(response);
      if (keepsDenials && !answered.allowed()) {
        denials.keep(request, answered, sentNanos);
      }
      breaker.succeeded(permit);
      return observed(answered);
    }

    Decision failed(Throwable failure) {
      isWarm = true;
      io.grpc.Status status = RateLimitCalls.statusOf(failure);
      if (Answers.REJECTED.contains(status.getCode())) {
        breaker.succeeded(permit);
        throw new RequestException(status);
      }
      long now = clock.getAsLong();
      breaker.failed(permit, now);
      long last = reconnectedNanos.get();
      if (status.getCode() == io.grpc.Status.Code.UNAVAILABLE
          && now - last >= RECONNECT_NANOS
          && reconnectedNanos.compareAndSet(last, now)) {
        calls.reconnect();
      }
      String code = status.getCode().name();
      String message = RateLimitCalls.message(status);
      lastFailure = code + ": " + message;
      return withoutAnswer(code, message);
    }

    CancellationException cancelled(Throwable cause) {
      breaker.cancelled(permit);
      CancellationException cancellation = new CancellationException("the call was cancelled");
      cancellation.initCause(cause);
      return cancellation;
    }

    private Decision withoutAnswer(String error, String message) {
      boolean isOpen = policy == OnFailure.OPEN;
      Decision.Additions none = Decision.Additions.NONE;
      return observed(
          new Decision(
              isOpen,
              isOpen ? Reason.FAILED_OPEN : Reason.FAILED_CLOSED,
              List.of(),
              new Decision.Additions(
                  none.requestHeaders(), none.responseHeaders(), none.body(), error, message)));
    }

    private Decision observed(Decision made) {
      if (!observers.isEmpty()) {
        Duration taken = Duration.ofNanos(clock.getAsLong() - sentNanos);
        observers.forEach(observer -> observer.onDecision(made, taken));
      }
      return made;
    }
  }

  Decision decide(Request request, CallOptions options, boolean usesLocalDenials) {
    Attempt attempt = new Attempt(request, options, usesLocalDenials);
    if (attempt.decision != null) {
      return attempt.decision;
    }
    RateLimitResponse response;
    try {
      response = calls.blocking(request.message(), attempt.timeout);
    } catch (StatusRuntimeException failure) {
      // gRPC restores the flag of a thread that it finds interrupted.
      if (Thread.currentThread().isInterrupted() || Context.current().isCancelled()) {
        throw attempt.cancelled(failure);
      }
      return attempt.failed(failure);
    }
    return attempt.answered(response);
  }

  CompletableFuture<Decision> decideAsync(
      Request request, CallOptions options, boolean usesLocalDenials) {
    Attempt attempt = new Attempt(request, options, usesLocalDenials);
    if (attempt.decision != null) {
      return CompletableFuture.completedFuture(attempt.decision);
    }
    Context context = Context.current();
    CompletableFuture<RateLimitResponse> call = calls.async(request.message(), attempt.timeout);
    CompletableFuture<Decision> decided = new CompletableFuture<>();
    call.whenComplete(
        (response, failure) -> {
          try {
            if (failure == null) {
              decided.complete(attempt.answered(response));
            } else if (call.isCancelled() || context.isCancelled()) {
              decided.completeExceptionally(attempt.cancelled(failure));
            } else {
              decided.complete(attempt.failed(failure));
            }
          } catch (RequestException refused) {
            decided.completeExceptionally(refused);
          } catch (RuntimeException ofObserver) {
            decided.completeExceptionally(new CompletionException(ofObserver));
          }
        });
    decided.whenComplete(
        (decision, failure) -> {
          if (decided.isCancelled()) {
            call.cancel(false);
          }
        });
    return decided;
  }
}
