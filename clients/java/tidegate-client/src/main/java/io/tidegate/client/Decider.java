package io.tidegate.client;

import io.grpc.ClientInterceptor;
import io.grpc.Context;
import io.grpc.StatusRuntimeException;
import io.tidegate.client.proto.RateLimitResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/**
 * Decides requests: by a kept denial, by the breaker, or by a call, whose failure the policy
 * decides. Thread-safe.
 */
final class Decider {
  /** Least time between two attempts to connect after failed calls. */
  private static final long RECONNECT_NANOS = 100_000_000L;

  private final Channels channels;
  private final @Nullable Function<Call, Decision> fake;
  private final LocalDenials denials;
  private final FailureLog failures = new FailureLog();
  private final Duration timeout;
  private final Duration firstTimeout;
  private final OnFailure onFailure;

  /** Limits of requests without an answer; null if there are none. */
  private final @Nullable LocalLimits fallback;

  private final List<DecisionObserver> observers;
  private final LongSupplier clock;
  private final AtomicLong reconnectedNanos;

  private volatile boolean isClosed;

  /** Whether a call has ended: the first call opens the connection. */
  private volatile boolean isWarm;

  /** Code and message of the last failure. */
  private volatile String lastFailure = "";

  Decider(TidegateBuilder builder) {
    List<ClientInterceptor> interceptors = new ArrayList<>();
    // The last interceptor is called first.
    interceptors.add(RateLimitCalls.metadata(List.copyOf(builder.metadata)));
    interceptors.addAll(builder.interceptors);
    this.channels = new Channels(builder, interceptors);
    this.fake = builder.fake;
    this.denials = new LocalDenials(builder.localDenialsMax, builder.localDenialsFor);
    this.timeout = builder.timeout;
    this.firstTimeout =
        builder.connectTimeout.compareTo(timeout) > 0 ? builder.connectTimeout : timeout;
    this.onFailure = builder.onFailure;
    this.fallback =
        builder.fallback.isEmpty()
            ? null
            : new LocalLimits(builder.fallback, sinceEpoch(builder.clock));
    this.observers = List.copyOf(builder.observers);
    this.clock = builder.clock;
    this.reconnectedNanos = new AtomicLong(clock.getAsLong());
  }

  /**
   * The time of the wall clock at the start, and the time of the client's clock since then. A step
   * of the wall clock does not move the windows: a step back would end limits early.
   */
  private static LongSupplier sinceEpoch(LongSupplier clock) {
    long startNanos = clock.getAsLong();
    long unixNanos = System.currentTimeMillis() * 1_000_000;
    return () -> unixNanos + (clock.getAsLong() - startNanos);
  }

  void close() {
    isClosed = true;
    channels.close();
  }

  /** A decision without a call, or the state of a call. */
  private final class Attempt {
    final Request request;
    final boolean keepsDenials;
    final OnFailure policy;
    final Duration timeout;
    final long sentNanos = clock.getAsLong();
    Channels.@Nullable Choice choice;
    @Nullable Decision decision;

    /** Connections that were refused: nothing was sent over them. */
    private int refusals;

    Attempt(Request request, CallOptions options, boolean usesLocalDenials) {
      this.request = request;
      this.keepsDenials = usesLocalDenials && options.localDenials() && denials.isEnabled();
      OnFailure ofCall = options.onFailure();
      this.policy = ofCall == null ? onFailure : ofCall;
      Duration timeoutOfCall = options.timeout();
      Duration own = isWarm ? Decider.this.timeout : firstTimeout;
      this.timeout = timeoutOfCall == null ? own : timeoutOfCall;
      if (isClosed) {
        throw new IllegalStateException("the client is closed");
      }
      if (fake != null) {
        this.decision = observed(fake.apply(request.call()));
        return;
      }
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
      this.choice = channels.choose(sentNanos);
      if (choice == null) {
        this.decision = withoutAnswer("BREAKER_OPEN", lastFailure);
      } else if (choice.due() != null) {
        probe(choice.due(), request);
      }
    }

    private Channels.Choice chosen() {
      return Objects.requireNonNull(choice);
    }

    RateLimitCalls calls() {
      return chosen().address().calls;
    }

    /** Chooses another address after a refused connection; returns whether there is one. */
    boolean choosesAnother(Throwable failure) {
      if (!RateLimitCalls.isRefused(RateLimitCalls.statusOf(failure))
          || ++refusals >= channels.size()) {
        return false;
      }
      Channels.Choice another = channels.choose(clock.getAsLong());
      if (another == null) {
        return false;
      }
      unanswered(clock.getAsLong());
      this.choice = another;
      if (another.due() != null) {
        probe(another.due(), request);
      }
      return true;
    }

    Decision answered(RateLimitResponse response) {
      isWarm = true;
      if (!Answers.isComplete(response)) {
        String message = "an answer without a verdict";
        lastFailure = "INTERNAL: " + message;
        unanswered(clock.getAsLong());
        return withoutAnswer("INTERNAL", message);
      }
      Decision answered = Answers.decode(response);
      if (keepsDenials && !answered.allowed()) {
        denials.keep(request, answered, sentNanos);
      }
      chosen().address().breaker.succeeded(chosen().permit(), sentNanos);
      failures.ended();
      return observed(answered);
    }

    Decision failed(Throwable failure) {
      isWarm = true;
      io.grpc.Status status = RateLimitCalls.statusOf(failure);
      if (Answers.REJECTED.contains(status.getCode())) {
        chosen().address().breaker.succeeded(chosen().permit(), sentNanos);
        RequestException refused = new RequestException(status);
        failures.refused(refused, clock.getAsLong());
        throw refused;
      }
      long now = clock.getAsLong();
      unanswered(now);
      long last = reconnectedNanos.get();
      if (status.getCode() == io.grpc.Status.Code.UNAVAILABLE
          && now - last >= RECONNECT_NANOS
          && reconnectedNanos.compareAndSet(last, now)) {
        calls().reconnect();
      }
      if (status.getCode() == io.grpc.Status.Code.DEADLINE_EXCEEDED) {
        calls().renew();
      }
      String code = status.getCode().name();
      String message = RateLimitCalls.message(status);
      lastFailure = code + ": " + message;
      return withoutAnswer(code, message);
    }

    /** Records that the chosen address did not answer. */
    private void unanswered(long nowNanos) {
      Channels.Address address = chosen().address();
      boolean hasOther = channels.hasOther(address);
      address.breaker.failed(chosen().permit(), sentNanos, nowNanos, hasOther);
    }

    CancellationException cancelled(Throwable cause) {
      abandon();
      CancellationException cancellation = new CancellationException("the call was cancelled");
      cancellation.initCause(cause);
      return cancellation;
    }

    /** Returns the permit of a call without an outcome. */
    void abandon() {
      chosen().address().breaker.cancelled(chosen().permit());
    }

    private Decision withoutAnswer(String error, String message) {
      Decision counted = fallback == null ? null : fallback.decide(request.call());
      boolean isCounted =
          counted != null && counted.statuses().stream().anyMatch(status -> status.limit() != null);
      Decision failed =
          isCounted
              ? Decision.counted(counted, error, message)
              : Decision.failed(policy, error, message);
      failures.failed(failed, clock.getAsLong());
      return observed(failed);
    }

    private Decision observed(Decision made) {
      if (!observers.isEmpty()) {
        Duration taken = Duration.ofNanos(clock.getAsLong() - sentNanos);
        for (DecisionObserver observer : observers) {
          try {
            observer.onDecision(made, taken);
          } catch (RuntimeException failure) {
            FailureLog.thrownBy("an observer", failure);
          }
        }
      }
      return made;
    }
  }

  Decision decide(Request request, CallOptions options, boolean usesLocalDenials) {
    Attempt attempt = new Attempt(request, options, usesLocalDenials);
    if (attempt.decision != null) {
      return attempt.decision;
    }
    while (true) {
      RateLimitResponse response;
      try {
        response = attempt.calls().blocking(request.message(), attempt.timeout);
      } catch (StatusRuntimeException failure) {
        // gRPC restores the flag of a thread that it finds interrupted.
        if (Thread.currentThread().isInterrupted() || Context.current().isCancelled()) {
          throw attempt.cancelled(failure);
        }
        if (attempt.choosesAnother(failure)) {
          continue;
        }
        return attempt.failed(failure);
      } catch (RuntimeException | Error ofInterceptor) {
        attempt.abandon();
        throw ofInterceptor;
      }
      return attempt.answered(response);
    }
  }

  /**
   * Sends a peek to an address whose breaker is open, while calls use others: no user's call is
   * lost to test whether the server answers again.
   */
  private void probe(Channels.Address address, Request request) {
    long sentNanos = clock.getAsLong();
    try {
      address
          .calls
          .async(request.peekMessage(), timeout)
          .whenComplete(
              (response, failure) -> {
                if (failure == null
                    || Answers.REJECTED.contains(RateLimitCalls.statusOf(failure).getCode())) {
                  address.breaker.succeeded(Breaker.Permit.PROBE, sentNanos);
                } else {
                  boolean hasOther = channels.hasOther(address);
                  address.breaker.failed(
                      Breaker.Permit.PROBE, sentNanos, clock.getAsLong(), hasOther);
                }
              });
    } catch (RuntimeException ofInterceptor) {
      address.breaker.cancelled(Breaker.Permit.PROBE);
      FailureLog.thrownBy("an interceptor", ofInterceptor);
    }
  }

  CompletableFuture<Decision> decideAsync(
      Request request, CallOptions options, boolean usesLocalDenials) {
    Attempt attempt = new Attempt(request, options, usesLocalDenials);
    if (attempt.decision != null) {
      return CompletableFuture.completedFuture(attempt.decision);
    }
    CompletableFuture<Decision> decided = new CompletableFuture<>();
    send(attempt, Context.current(), decided);
    return decided;
  }

  /** Sends the call of an attempt, and completes its decision. */
  private void send(Attempt attempt, Context context, CompletableFuture<Decision> decided) {
    CompletableFuture<RateLimitResponse> call;
    try {
      call = attempt.calls().async(attempt.request.message(), attempt.timeout);
    } catch (RuntimeException | Error ofInterceptor) {
      attempt.abandon();
      throw ofInterceptor;
    }
    call.whenComplete(
        (response, failure) -> {
          try {
            if (failure == null) {
              decided.complete(attempt.answered(response));
            } else if (call.isCancelled() || context.isCancelled()) {
              decided.completeExceptionally(attempt.cancelled(failure));
            } else if (attempt.choosesAnother(failure)) {
              send(attempt, context, decided);
            } else {
              decided.complete(attempt.failed(failure));
            }
          } catch (RequestException refused) {
            decided.completeExceptionally(refused);
          } catch (RuntimeException | Error unexpected) {
            decided.completeExceptionally(new CompletionException(unexpected));
          }
        });
    decided.whenComplete(
        (decision, failure) -> {
          if (decided.isCancelled()) {
            call.cancel(false);
          }
        });
  }
}
