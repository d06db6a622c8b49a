package io.tidegate.client;

import io.grpc.Context;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/**
 * The slots of limits of requests in flight that a request holds until it is over, and the
 * estimates of limits that reserve: {@code try (Slot slot = tidegate.acquire(user))} releases them
 * at the end. A request that is not allowed holds none. Thread-safe.
 */
public final class Slot implements AutoCloseable {
  private final Decision decision;
  private final List<Descriptor> descriptors;
  private final Calls calls;
  private final AtomicBoolean isReleased = new AtomicBoolean();

  /** Sends descriptors with a ticket. */
  interface Calls {
    Decision send(List<Descriptor> descriptors);

    CompletableFuture<Decision> sendAsync(List<Descriptor> descriptors);
  }

  Slot(Decision decision, List<Descriptor> descriptors, Calls calls) {
    this.decision = decision;
    this.descriptors = descriptors;
    this.calls = calls;
  }

  /** {@return the decision on the request} */
  public Decision decision() {
    return decision;
  }

  /** {@return whether the request may proceed} */
  public boolean allowed() {
    return decision.allowed();
  }

  /** {@return the name of the slots and estimates; empty if the request holds none} */
  public Optional<String> ticket() {
    return decision.ticket();
  }

  /**
   * Releases the slots, and keeps the estimates charged; a second end does nothing. Waits for the
   * answer, but not in an interrupted thread. A failure is logged, and the server frees them after
   * {@code max_hold}.
   */
  public void release() {
    await(releaseAsync());
  }

  /**
   * Releases this number of hits of each slot. Ends the estimates, reduced by as many hits.
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
   * Ends the request with its actual cost, instead of its estimates, and releases the slots. Waits
   * as {@link #release()} does.
   *
   * @param cost 0 or more; 0 gives the estimates back
   */
  public void commit(long cost) {
    await(commitAsync(cost));
  }

  /**
   * Ends the request with its actual cost, instead of its estimates, and releases the slots.
   *
   * @param cost 0 or more; 0 gives the estimates back
   * @return completes after the answer, never with an exception
   */
  public CompletableFuture<Void> commitAsync(long cost) {
    long checked = CallOptions.checkedCost(cost);
    // Zero hits are a peek, which releases no slot.
    return checked == 0 ? send(decision.ticketCost(), true, true) : send(checked, false, true);
  }

  /** Ends the request at no cost. Waits as {@link #release()} does. */
  public void cancel() {
    commit(0);
  }

  /**
   * Extends the hold of the slots and estimates to {@code max_hold} of their rules from now on.
   * Takes no hits. Call it each third of {@code max_hold}, so that a failed renewal can be
   * repeated.
   *
   * @return whether all are still held; if not, the request must not go on. Without an answer the
   *     client's policy decides.
   */
  public boolean renew() {
    return isHeld() ? calls.send(renewal()).allowed() : isHeldWithoutTicket();
  }

  /**
   * Renews as {@link #renew()} does, without blocking.
   *
   * @return whether all are still held, later
   */
  public CompletableFuture<Boolean> renewAsync() {
    return isHeld()
        ? calls.sendAsync(renewal()).thenApply(Decision::allowed)
        : CompletableFuture.completedFuture(isHeldWithoutTicket());
  }

  private boolean isHeld() {
    return decision.ticket().isPresent() && !isReleased.get();
  }

  private boolean isHeldWithoutTicket() {
    return decision.ticket().isEmpty() && decision.allowed();
  }

  private List<Descriptor> renewal() {
    String ticket = decision.ticket().orElseThrow();
    // Zero hits are a peek, which renews nothing.
    return descriptors.stream().map(one -> one.and("renew", ticket).cost(1)).toList();
  }

  /** The same as {@link #release()}. */
  @Override
  public void close() {
    release();
  }

  /** Sends a release, unless the slot has ended. */
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
            calls.sendAsync(List.of(release)).whenComplete((answer, failure) -> end(sent, failure));
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
