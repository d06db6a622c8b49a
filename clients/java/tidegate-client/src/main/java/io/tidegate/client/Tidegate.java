package io.tidegate.client;

import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptor;
import io.grpc.Context;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.tidegate.client.proto.RateLimitResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/**
 * A client of a Tidegate server. Thread-safe; calls share one HTTP/2 connection for each address,
 * which the first call opens.
 *
 * <p>Each call has a blocking form, and an asynchronous one whose future cancels the call when it
 * is cancelled. A call that is cancelled, by its future, by an interrupt or by gRPC's {@link
 * Context}, ends with {@link CancellationException}. A request that the server refuses ends with
 * {@link RequestException}. Every other failure is a decision.
 */
public final class Tidegate implements AutoCloseable {
  /** Least time between two attempts to connect that failed calls cause. */
  private static final long RECONNECT_NANOS = 100_000_000L;

  private final RateLimitCalls calls;
  private final LocalDenials denials;
  private final Breaker breaker;
  private final String domain;
  private final Duration timeout;
  private final Duration firstTimeout;
  private final OnFailure onFailure;
  private final List<DecisionObserver> observers;
  private final LongSupplier clock;
  private final AtomicLong reconnectedNanos;

  /** Whether a call has ended: the first one opens the connection. */
  private volatile boolean isWarm;

  private Tidegate(Builder builder) {
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
    this.domain = builder.domain;
    this.timeout = builder.timeout;
    this.firstTimeout =
        builder.connectTimeout.compareTo(timeout) > 0 ? builder.connectTimeout : timeout;
    this.onFailure = builder.onFailure;
    this.observers = List.copyOf(builder.observers);
    this.clock = builder.clock;
    this.reconnectedNanos = new AtomicLong(clock.getAsLong());
  }

  /**
   * Returns a builder of clients.
   *
   * @param addresses {@code host:port} (all addresses of a DNS name, round-robin), {@code
   *     unix:/path/of/socket} or another target of gRPC; or several IP addresses with ports
   * @return the builder
   */
  public static Builder builder(String... addresses) {
    return new Builder(List.of(addresses));
  }

  /**
   * Takes hits of every limit that the descriptors reach, or of none.
   *
   * @param descriptors one or more, decided as one request
   * @return the decision
   */
  public Decision limit(Descriptor... descriptors) {
    return limit(List.of(descriptors), CallOptions.DEFAULT);
  }

  /**
   * Takes hits of every limit that the descriptors reach, or of none.
   *
   * @param descriptors one or more, decided as one request
   * @param options options of the call
   * @return the decision
   */
  public Decision limit(List<Descriptor> descriptors, CallOptions options) {
    return decide(request(descriptors, options, options.cost(), false), options, true);
  }

  /**
   * Takes hits of every limit that the descriptors reach, or of none.
   *
   * @param descriptors one or more, decided as one request
   * @return the decision, later
   */
  public CompletableFuture<Decision> limitAsync(Descriptor... descriptors) {
    return limitAsync(List.of(descriptors), CallOptions.DEFAULT);
  }

  /**
   * Takes hits of every limit that the descriptors reach, or of none.
   *
   * @param descriptors one or more, decided as one request
   * @param options options of the call
   * @return the decision, later
   */
  public CompletableFuture<Decision> limitAsync(List<Descriptor> descriptors, CallOptions options) {
    return decideAsync(request(descriptors, options, options.cost(), false), options, true);
  }

  /**
   * Returns whether one more hit would be admitted, without taking it.
   *
   * @param descriptors one or more, decided as one request
   * @return the decision
   */
  public Decision peek(Descriptor... descriptors) {
    return peek(List.of(descriptors), CallOptions.DEFAULT);
  }

  /**
   * Returns whether one more hit would be admitted, without taking it.
   *
   * @param descriptors one or more, decided as one request
   * @param options options of the call; the cost is not used
   * @return the decision
   */
  public Decision peek(List<Descriptor> descriptors, CallOptions options) {
    return decide(request(descriptors, options, 0, false), options, false);
  }

  /**
   * Returns whether one more hit would be admitted, without taking it.
   *
   * @param descriptors one or more, decided as one request
   * @param options options of the call; the cost is not used
   * @return the decision, later
   */
  public CompletableFuture<Decision> peekAsync(List<Descriptor> descriptors, CallOptions options) {
    return decideAsync(request(descriptors, options, 0, false), options, false);
  }

  /**
   * Gives one hit back that was taken. From then on this client keeps no denials for descriptors
   * with the same keys.
   *
   * @param descriptors one or more, decided as one request
   * @return the decision
   */
  public Decision giveBack(Descriptor... descriptors) {
    return giveBack(List.of(descriptors), CallOptions.DEFAULT);
  }

  /**
   * Gives hits back that were taken. From then on this client keeps no denials for descriptors with
   * the same keys.
   *
   * @param descriptors one or more, decided as one request
   * @param options options of the call
   * @return the decision
   */
  public Decision giveBack(List<Descriptor> descriptors, CallOptions options) {
    return decide(request(descriptors, options, options.cost(), true), options, false);
  }

  /**
   * Gives hits back that were taken. From then on this client keeps no denials for descriptors with
   * the same keys.
   *
   * @param descriptors one or more, decided as one request
   * @param options options of the call
   * @return the decision, later
   */
  public CompletableFuture<Decision> giveBackAsync(
      List<Descriptor> descriptors, CallOptions options) {
    return decideAsync(request(descriptors, options, options.cost(), true), options, false);
  }

  /**
   * Takes hits as soon as they fit. Returns a denial at once if it does not end within the time.
   *
   * @param waitMax longest wait
   * @param descriptors one or more, decided as one request
   * @return the decision
   * @throws InterruptedException if the thread is interrupted while it waits
   */
  public Decision waitUntilReady(Duration waitMax, Descriptor... descriptors)
      throws InterruptedException {
    return waitUntilReady(waitMax, List.of(descriptors), CallOptions.DEFAULT);
  }

  /**
   * Takes hits as soon as they fit. Returns a denial at once if it does not end within the time.
   *
   * @param waitMax longest wait
   * @param descriptors one or more, decided as one request
   * @param options options of the call
   * @return the decision
   * @throws InterruptedException if the thread is interrupted while it waits
   */
  public Decision waitUntilReady(
      Duration waitMax, List<Descriptor> descriptors, CallOptions options)
      throws InterruptedException {
    long startedNanos = clock.getAsLong();
    while (true) {
      Decision decision = limit(descriptors, options);
      Duration wait = remainingWait(decision, waitMax, startedNanos);
      if (wait == null) {
        return decision;
      }
      TimeUnit.NANOSECONDS.sleep(LocalDenials.saturatedNanos(wait));
    }
  }

  /**
   * Takes hits as soon as they fit. Returns a denial at once if it does not end within the time.
   *
   * @param waitMax longest wait
   * @param descriptors one or more, decided as one request
   * @param options options of the call
   * @return the decision, later
   */
  public CompletableFuture<Decision> waitUntilReadyAsync(
      Duration waitMax, List<Descriptor> descriptors, CallOptions options) {
    CompletableFuture<Decision> result = new CompletableFuture<>();
    waitAsync(result, waitMax, descriptors, options, clock.getAsLong());
    return result;
  }

  private void waitAsync(
      CompletableFuture<Decision> result,
      Duration waitMax,
      List<Descriptor> descriptors,
      CallOptions options,
      long startedNanos) {
    CompletableFuture<Decision> attempt = limitAsync(descriptors, options);
    result.whenComplete((decision, failure) -> attempt.cancel(false));
    attempt.whenComplete(
        (decision, failure) -> {
          if (failure != null) {
            result.completeExceptionally(failure);
            return;
          }
          Duration wait = remainingWait(decision, waitMax, startedNanos);
          if (wait == null) {
            result.complete(decision);
            return;
          }
          long nanos = LocalDenials.saturatedNanos(wait);
          CompletableFuture.delayedExecutor(nanos, TimeUnit.NANOSECONDS)
              .execute(
                  () -> {
                    if (!result.isDone()) {
                      waitAsync(result, waitMax, descriptors, options, startedNanos);
                    }
                  });
        });
  }

  /** The wait until a denial ends; null if there is none, or if it exceeds the time. */
  private @Nullable Duration remainingWait(Decision decision, Duration waitMax, long startedNanos) {
    Duration wait = decision.retryAfter().orElse(null);
    Duration waited = Duration.ofNanos(clock.getAsLong() - startedNanos);
    return decision.allowed() || wait == null || waited.plus(wait).compareTo(waitMax) > 0
        ? null
        : wait;
  }

  /** Closes the connections. Open calls fail. */
  @Override
  public void close() {
    calls.close();
  }

  private Request request(
      List<Descriptor> descriptors, CallOptions options, long cost, boolean givesBack) {
    String ofCall = options.domain();
    return new Request(ofCall == null ? domain : ofCall, descriptors, cost, givesBack);
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
      Duration own = isWarm ? Tidegate.this.timeout : firstTimeout;
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
        this.decision = withoutAnswer("BREAKER_OPEN");
      }
    }

    Decision answered(RateLimitResponse response) {
      isWarm = true;
      if (!Answers.isComplete(response)) {
        breaker.failed(permit, clock.getAsLong());
        return withoutAnswer("INTERNAL");
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
      return withoutAnswer(status.getCode().name());
    }

    CancellationException cancelled(Throwable cause) {
      breaker.cancelled(permit);
      CancellationException cancellation = new CancellationException("the call was cancelled");
      cancellation.initCause(cause);
      return cancellation;
    }

    private Decision withoutAnswer(String error) {
      boolean isOpen = policy == OnFailure.OPEN;
      Decision.Additions none = Decision.Additions.NONE;
      return observed(
          new Decision(
              isOpen,
              isOpen ? Reason.FAILED_OPEN : Reason.FAILED_CLOSED,
              List.of(),
              new Decision.Additions(
                  none.requestHeaders(), none.responseHeaders(), none.body(), error)));
    }

    private Decision observed(Decision made) {
      if (!observers.isEmpty()) {
        Duration taken = Duration.ofNanos(clock.getAsLong() - sentNanos);
        observers.forEach(observer -> observer.onDecision(made, taken));
      }
      return made;
    }
  }

  private Decision decide(Request request, CallOptions options, boolean usesLocalDenials) {
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

  private CompletableFuture<Decision> decideAsync(
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

  /** Settings of a client. */
  public static final class Builder {
    private final List<String> addresses;
    private String domain = "";
    private Duration timeout = Duration.ofMillis(50);
    private Duration connectTimeout = Duration.ofSeconds(5);
    private OnFailure onFailure = OnFailure.OPEN;
    private int localDenialsMax = 10_000;
    private int breakerFailures = 5;
    private Duration breakerOpen = Duration.ofSeconds(1);
    private ChannelCredentials credentials = InsecureChannelCredentials.create();
    private @Nullable String authority;
    private final List<Consumer<Metadata>> metadata = new ArrayList<>();
    private final List<ClientInterceptor> interceptors = new ArrayList<>();
    private final List<DecisionObserver> observers = new ArrayList<>();
    private LongSupplier clock = System::nanoTime;

    private Builder(List<String> addresses) {
      this.addresses = addresses;
    }

    /**
     * Sets the domain of calls that name none.
     *
     * @param name the domain, as in the rules
     * @return this builder
     */
    public Builder domain(String name) {
      this.domain = name;
      return this;
    }

    /**
     * Sets the time until the server is considered not to answer; 50 ms by default.
     *
     * @param time more than zero
     * @return this builder
     */
    public Builder timeout(Duration time) {
      this.timeout = CallOptions.checkedTimeout(time);
      return this;
    }

    /**
     * Sets the timeout of the first call, which opens the connection and loads gRPC's classes, if
     * longer than that of others; 5 s by default.
     *
     * @param time zero for the timeout of other calls
     * @return this builder
     */
    public Builder connectTimeout(Duration time) {
      this.connectTimeout = time;
      return this;
    }

    /**
     * Sets the decision for the case that no answer arrives; {@link OnFailure#OPEN} by default.
     *
     * @param policy the policy
     * @return this builder
     */
    public Builder onFailure(OnFailure policy) {
      this.onFailure = policy;
      return this;
    }

    /**
     * Sets how many denials are kept until their reset; 10,000 by default.
     *
     * @param max 0 to keep none
     * @return this builder
     */
    public Builder localDenials(int max) {
      if (max < 0) {
        throw new IllegalArgumentException("localDenials is " + max + "; use 0 or more");
      }
      this.localDenialsMax = max;
      return this;
    }

    /**
     * Sets after how many failures in a row calls fail at once, and for how long; 5 and 1 s by
     * default.
     *
     * @param failures 0 to switch the breaker off
     * @param open time until another call is tried
     * @return this builder
     */
    public Builder breaker(int failures, Duration open) {
      if (failures < 0) {
        throw new IllegalArgumentException("failures is " + failures + "; use 0 or more");
      }
      this.breakerFailures = failures;
      this.breakerOpen = open;
      return this;
    }

    /**
     * Sets the credentials of connections, for TLS and mTLS: {@link io.grpc.TlsChannelCredentials}.
     *
     * @param channelCredentials the credentials
     * @return this builder
     */
    public Builder credentials(ChannelCredentials channelCredentials) {
      this.credentials = channelCredentials;
      return this;
    }

    /**
     * Sets the name that the server's certificate has to have, if it is not that of the address.
     *
     * @param name the name
     * @return this builder
     */
    public Builder authority(String name) {
      this.authority = name;
      return this;
    }

    /**
     * Adds a source of metadata, such as {@link io.tidegate.client.tracing.TraceContext}.
     *
     * @param source called for each call with its metadata, on the thread of the caller
     * @return this builder
     */
    public Builder metadata(Consumer<Metadata> source) {
      this.metadata.add(source);
      return this;
    }

    /**
     * Adds an interceptor of gRPC.
     *
     * @param interceptor the interceptor
     * @return this builder
     */
    public Builder intercept(ClientInterceptor interceptor) {
      this.interceptors.add(interceptor);
      return this;
    }

    /**
     * Adds an observer, such as {@link io.tidegate.client.metrics.MicrometerObserver}.
     *
     * @param observer called with each decision
     * @return this builder
     */
    public Builder observe(DecisionObserver observer) {
      this.observers.add(observer);
      return this;
    }

    /**
     * Sets the clock; {@link System#nanoTime} by default.
     *
     * @param monotonicNanos returns monotonic nanoseconds
     * @return this builder
     */
    public Builder clock(LongSupplier monotonicNanos) {
      this.clock = monotonicNanos;
      return this;
    }

    /**
     * Returns a client. It connects with its first call.
     *
     * @return the client
     */
    public Tidegate build() {
      return new Tidegate(this);
    }
  }
}
