package io.tidegate.client;

import io.grpc.Context;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/**
 * A client of a Tidegate server. Thread-safe; calls share one HTTP/2 connection for each address,
 * which the first call opens.
 *
 * <p>Each call has a blocking form and an asynchronous form, whose future cancels the call when it
 * is cancelled. A call that is cancelled, by its future, by an interrupt or by gRPC's {@link
 * Context}, ends with {@link CancellationException}. A request that the server refuses ends with
 * {@link RequestException}. Every other failure is a decision.
 */
public final class Tidegate implements AutoCloseable {
  private final Decider decider;
  private final String domain;
  private final LongSupplier clock;

  Tidegate(TidegateBuilder builder) {
    this.decider = new Decider(builder);
    this.domain = builder.domain;
    this.clock = builder.clock;
  }

  /**
   * Returns a builder of clients.
   *
   * @param addresses one or more, used in turn: {@code host:port} (all addresses of a DNS name,
   *     round-robin), {@code unix:/path/of/socket} or another target of gRPC
   * @return the builder
   */
  public static TidegateBuilder builder(String... addresses) {
    return new TidegateBuilder(List.of(addresses));
  }

  /**
   * Returns a client for tests of applications: it connects to nothing, and its calls return what a
   * function decides.
   *
   * @param decide returns the decision of a call, such as {@link Decision#denied}
   * @return the client
   */
  public static Tidegate fake(Function<Call, Decision> decide) {
    TidegateBuilder builder = new TidegateBuilder(List.of()).domain("fake");
    builder.fake = decide;
    return builder.build();
  }

  /**
   * Returns a client for tests of applications that counts as a server with these limits does.
   *
   * @param unixNanos the clock of the test: nanoseconds since the Unix epoch
   * @param limits the limits
   * @return the client
   */
  public static Tidegate counting(LongSupplier unixNanos, LocalLimit... limits) {
    return fake(new LocalLimits(List.of(limits), unixNanos)::decide);
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
    return decider.decide(request(descriptors, options, options.cost(), false), options, true);
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
    return decider.decideAsync(request(descriptors, options, options.cost(), false), options, true);
  }

  /**
   * Takes hits as {@link #limit(Descriptor...)} does, and holds the slots of limits of requests in
   * flight, and the estimates of costs that are known only at the end, until it is closed. No
   * denial is kept.
   *
   * @param descriptors one or more, decided as one request
   * @return the slots; none of a request that is not allowed
   */
  public Slot acquire(Descriptor... descriptors) {
    return acquire(List.of(descriptors), CallOptions.DEFAULT);
  }

  /**
   * Takes hits as {@link #limit(List, CallOptions)} does, and holds the slots of limits of requests
   * in flight until it is closed. No denial is kept.
   *
   * @param descriptors one or more, decided as one request
   * @param options options of the call
   * @return the slots; none of a request that is not allowed
   */
  public Slot acquire(List<Descriptor> descriptors, CallOptions options) {
    CompletableFuture<Slot> acquiring = acquireAsync(descriptors, options);
    try {
      return acquiring.get();
    } catch (InterruptedException interrupted) {
      acquiring.cancel(false);
      Thread.currentThread().interrupt();
      CancellationException cancelled = new CancellationException("the call was cancelled");
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
   * Takes hits as {@link #limitAsync(List, CallOptions)} does, and holds the slots of limits of
   * requests in flight until they are released. No denial is kept. The server may have admitted a
   * cancelled call: it continues, and releases the slots that it gets.
   *
   * @param descriptors one or more, decided as one request
   * @param options options of the call
   * @return the slots, later; none of a request that is not allowed
   */
  public CompletableFuture<Slot> acquireAsync(List<Descriptor> descriptors, CallOptions options) {
    return holdAsync(descriptors, options.localDenials(false));
  }

  /**
   * Takes hits as {@link #acquireAsync(List, CallOptions)} does, with the local denials of the
   * options. For middleware, which need not see a limit of requests in flight.
   *
   * @param descriptors one or more, decided as one request
   * @param options options of the call
   * @return the slots, later; none of a request that is not allowed
   */
  public CompletableFuture<Slot> holdAsync(List<Descriptor> descriptors, CallOptions options) {
    CompletableFuture<Slot> result = new CompletableFuture<>();
    // Not cancelled when its caller is.
    Context.current()
        .fork()
        .run(
            () ->
                limitAsync(descriptors, options)
                    .whenComplete(
                        (decision, failure) -> {
                          if (failure != null) {
                            result.completeExceptionally(failure);
                            return;
                          }
                          Slot slot = slot(decision, descriptors, options);
                          if (!result.complete(slot)) {
                            // The caller has cancelled: release the slot.
                            slot.releaseAsync();
                          }
                        }));
    return result;
  }

  /**
   * Returns the slots that the request of a decision holds, which {@link #limit(List, CallOptions)}
   * returned.
   *
   * @param decision the decision
   * @param descriptors those of its call
   * @param options those of its call
   * @return the slots; none of a request that is not allowed
   */
  public Slot slot(Decision decision, List<Descriptor> descriptors, CallOptions options) {
    String ofCall = options.domain();
    CallOptions ofRelease = CallOptions.DEFAULT.localDenials(false);
    CallOptions ofDomain = ofCall == null ? ofRelease : ofRelease.domain(ofCall);
    Slot.Calls calls =
        new Slot.Calls() {
          @Override
          public Decision send(List<Descriptor> sent) {
            return limit(sent, ofDomain);
          }

          @Override
          public CompletableFuture<Decision> sendAsync(List<Descriptor> sent) {
            return limitAsync(sent, ofDomain);
          }
        };
    return new Slot(decision, List.copyOf(descriptors), calls);
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
    return decider.decide(request(descriptors, options, 0, false), options, false);
  }

  /**
   * Returns whether one more hit would be admitted, without taking it.
   *
   * @param descriptors one or more, decided as one request
   * @param options options of the call; the cost is not used
   * @return the decision, later
   */
  public CompletableFuture<Decision> peekAsync(List<Descriptor> descriptors, CallOptions options) {
    return decider.decideAsync(request(descriptors, options, 0, false), options, false);
  }

  /**
   * Gives back one hit that was taken. From then on this client keeps no denials for descriptors
   * with the same keys.
   *
   * @param descriptors one or more, decided as one request
   * @return the decision
   */
  public Decision giveBack(Descriptor... descriptors) {
    return giveBack(List.of(descriptors), CallOptions.DEFAULT);
  }

  /**
   * Gives back hits that were taken. From then on this client keeps no denials for descriptors with
   * the same keys.
   *
   * @param descriptors one or more, decided as one request
   * @param options options of the call
   * @return the decision
   */
  public Decision giveBack(List<Descriptor> descriptors, CallOptions options) {
    return decider.decide(request(descriptors, options, options.cost(), true), options, false);
  }

  /**
   * Gives back hits that were taken. From then on this client keeps no denials for descriptors with
   * the same keys.
   *
   * @param descriptors one or more, decided as one request
   * @param options options of the call
   * @return the decision, later
   */
  public CompletableFuture<Decision> giveBackAsync(
      List<Descriptor> descriptors, CallOptions options) {
    return decider.decideAsync(request(descriptors, options, options.cost(), true), options, false);
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
                    if (result.isDone()) {
                      return;
                    }
                    try {
                      waitAsync(result, waitMax, descriptors, options, startedNanos);
                    } catch (RuntimeException | Error ofAttempt) {
                      // Such as of a client that was closed meanwhile.
                      result.completeExceptionally(ofAttempt);
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

  /** Closes the connections. Open calls fail; later ones throw {@link IllegalStateException}. */
  @Override
  public void close() {
    decider.close();
  }

  private Request request(
      List<Descriptor> descriptors, CallOptions options, long cost, boolean givesBack) {
    String ofCall = options.domain();
    return new Request(ofCall == null ? domain : ofCall, descriptors, cost, givesBack);
  }
}
