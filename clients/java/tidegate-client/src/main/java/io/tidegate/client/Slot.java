package io.tidegate.client;

import io.grpc.Context;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * The slots of limits of requests in flight that a request holds until it is over, and the
 * estimates of limits that reserve: {@code try (Slot slot = tidegate.acquire(user))} releases them
 * at the end. A request that is not allowed holds none. Thread-safe.
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

  /** {@return what names the slots and estimates; empty if the request holds none} */
  public Optional<String> ticket() {
    return decision.ticket();
  }

  /**
   * Releases the slots, and keeps the estimates charged; a second end does nothing. Waits for the
   * answer, but not in an interrupted thread. What fails is logged, and the server frees them after
   * {@code max_hold}.
   */
  public void release() {
    await(releaseAsync());
  }

  /**
   * Releases so many hits of each of the slots. Of estimates it is the end, less so many hits.
   *
   * @param cost 0 or more
   */
  public void release(long cost) {
    await(send(CallOptions.checkedCost(cost), true, false));
  }

  /**
   * Releases the slots, and keeps the estimates charged; a second end does nothing.
   *
   * @return completes after the answer, never with an exception
   */
  public CompletableFuture<Void> releaseAsync() {
    return send(decision.ticketCost(), false, true);
  }

  /**
   * Ends the request with its actual cost, in the place of its estimates, and releases the slots.
   * Waits as {@link #release()} does.
   *
   * @param cost 0 or more; 0 gives the estimates back
   */
  public void commit(long cost) {
    await(commitAsync(cost));
  }

  /**
   * Ends the request with its actual cost, in the place of its estimates, and releases the slots.
   *
   * @param cost 0 or more; 0 gives the estimates back
   * @return completes after the answer, never with an exception
   */
  public CompletableFuture<Void> commitAsync(long cost) {
    long checked = CallOptions.checkedCost(cost);
    // Zero hits are a peek, which releases no slot.
    return checked == 0 ? send(decision.ticketCost(), true, true) : send(checked, false, true);
  }

  /** Ends the request as one that cost nothing. Waits as {@link #release()} does. */
  public void cancel() {
    commit(0);
  }

  /** The same as {@link #release()}. */
  @Override
  public void close() {
    release();
  }

  /** Sends a release, unless there was an end. */
  private CompletableFuture<Void> send(long cost, boolean givesBack, boolean isEnd) {
    String ticket = decision.ticket().orElse(null);
    boolean wasReleased = isEnd ? isReleased.getAndSet(true) : isReleased.get();
    if (ticket == null || wasReleased) {
      return CompletableFuture.completedFuture(null);
    }
    Descriptor whole = Descriptor.of("slot", ticket).cost(cost);
    Descriptor release = givesBack ? whole.givingBack() : whole;
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
      FailureLog.notEnded(failure);
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
