package io.tidegate.client;

import io.grpc.Context;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * The slots of limits of requests in flight that a request holds until it is over: {@code try (Slot
 * slot = tidegate.acquire(user))} releases them at the end. A request that is not allowed holds
 * none. Thread-safe.
 */
public final class Slot implements AutoCloseable {
  private final Decision decision;
  private final Function<Descriptor, CompletableFuture<Decision>> send;
  private final AtomicBoolean isReleased = new AtomicBoolean();

  Slot(Decision decision, Function<Descriptor, CompletableFuture<Decision>> send) {
    this.decision = decision;
    this.send = send;
  }

  /** {@return the decision on the request} */
  public Decision decision() {
    return decision;
  }

  /** {@return whether the request may proceed} */
  public boolean allowed() {
    return decision.allowed();
  }

  /** {@return what names the slots; empty if the request holds none} */
  public Optional<String> ticket() {
    return decision.ticket();
  }

  /**
   * Releases the slots; a second release does nothing. Waits for the answer, but not in an
   * interrupted thread. What fails is logged, and the server frees them after {@code max_hold}.
   */
  public void release() {
    await(send(null));
  }

  /**
   * Releases so many hits of each of the slots.
   *
   * @param cost 0 or more
   */
  public void release(long cost) {
    await(send(CallOptions.checkedCost(cost)));
  }

  /**
   * Releases the slots; a second release does nothing.
   *
   * @return completes after the answer, never with an exception
   */
  public CompletableFuture<Void> releaseAsync() {
    return send(null);
  }

  /** The same as {@link #release()}. */
  @Override
  public void close() {
    release();
  }

  /** Sends the release of so many hits, or of all. */
  private CompletableFuture<Void> send(@Nullable Long cost) {
    String ticket = decision.ticket().orElse(null);
    boolean wasReleased = cost == null ? isReleased.getAndSet(true) : isReleased.get();
    if (ticket == null || wasReleased) {
      return CompletableFuture.completedFuture(null);
    }
    Descriptor whole = Descriptor.of("slot", ticket);
    Descriptor release = cost == null ? whole : whole.cost(cost).givingBack();
    CompletableFuture<Void> sent = new CompletableFuture<>();
    // The end of a request is reported after its context has been cancelled.
    Context.ROOT.run(
        () -> {
          try {
            send.apply(release).whenComplete((answer, failure) -> end(sent, failure));
          } catch (RuntimeException failure) {
            end(sent, failure);
          }
        });
    return sent;
  }

  private static void end(CompletableFuture<Void> sent, @Nullable Throwable failure) {
    if (failure != null) {
      FailureLog.notReleased(failure);
    }
    sent.complete(null);
  }

  private static void await(CompletableFuture<Void> sent) {
    try {
      sent.get();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    } catch (ExecutionException impossible) {
      throw new IllegalStateException(impossible);
    }
  }
}
