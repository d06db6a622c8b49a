//! Waiting for the release of a queued request, or for slots: the only place where a response is delayed.
//!
//! The limiter decides when a request is released; this is the timer. If a call ends earlier, because its caller or its connection ended,
//! its future is dropped, and its place in the queue is freed.

use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tidegate_core::{
    clock::Clock,
    limit::Timestamp,
    limiter::{Limiter, QueuePoll, QueuePosition, SlotWait},
};
use tokio::time::sleep;

/// A place in a queue, given back when dropped.
struct Place<'s> {
    limiter: &'s Limiter,
    clock: &'s dyn Clock,
    /// None once released.
    position: Option<QueuePosition>,
}

impl Place<'_> {
    fn poll(&self, waker: &Waker) -> QueuePoll {
        let poll = |position| self.limiter.poll(position, waker, self.clock.now());
        self.position.as_ref().map_or(QueuePoll::TooLate, poll)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(position) = self.position.take() {
            self.limiter.cancel(position, self.clock.now());
        }
    }
}

/// Completes with the position of the request at its release. Completes with none if the request will not be released any more, and its
/// place is free.
pub(super) async fn released(
    limiter: &Limiter,
    clock: &dyn Clock,
    position: QueuePosition,
) -> Option<QueuePosition> {
    let mut place = Place { limiter, clock, position: Some(position) };
    let mut timer = pin!(sleep(Duration::ZERO));
    let mut set_for: Option<Timestamp> = None;
    let is_released = poll_fn(|context: &mut Context<'_>| {
        loop {
            // Registers the waker before polling the timer, so that a release that is moved after this wakes the task.
            let at = match place.poll(context.waker()) {
                QueuePoll::Release => return Poll::Ready(true),
                QueuePoll::TooLate => return Poll::Ready(false),
                QueuePoll::Again(at) => at,
            };
            if set_for != Some(at) {
                timer.set(sleep(at.since(clock.now())));
                set_for = Some(at);
            }
            ready!(timer.as_mut().poll(context));
            // The timer uses another clock than the limits, and may be early.
            set_for = None;
        }
    });
    if is_released.await { place.position.take() } else { None }
}

/// A place in the queues for slots, left when dropped.
pub(super) struct SlotPlace<'s> {
    limiter: &'s Limiter,
    /// None once the request can be decided.
    wait: Option<SlotWait>,
}

impl<'s> SlotPlace<'s> {
    pub(super) fn new(limiter: &'s Limiter) -> Self {
        Self { limiter, wait: None }
    }

    pub(super) fn wait(&self) -> Option<&SlotWait> {
        self.wait.as_ref()
    }

    /// Waits in the queues that the request has entered.
    pub(super) fn enter(&mut self, wait: SlotWait) {
        self.wait = Some(wait);
    }

    /// Completes when the request can be decided again. It keeps its place.
    pub(super) async fn called(&self, clock: &dyn Clock) {
        let Some(wait) = &self.wait else { return };
        let again = wait.again();
        let mut timer = pin!(sleep(again.since(clock.now())));
        poll_fn(|context: &mut Context<'_>| {
            // Registers the waker before polling the timer.
            if self.limiter.poll_slots(wait, context.waker()) {
                return Poll::Ready(());
            }
            loop {
                ready!(timer.as_mut().poll(context));
                // The timer uses another clock than the limits, and may be early.
                let left = again.since(clock.now());
                if left.is_zero() {
                    return Poll::Ready(());
                }
                timer.set(sleep(left));
            }
        })
        .await;
    }
}

impl Drop for SlotPlace<'_> {
    fn drop(&mut self) {
        if let Some(wait) = &self.wait {
            self.limiter.leave(wait);
        }
    }
}

/// Completes when a request that waits for slots can be decided again. It is in its queues until then.
pub(super) async fn called(limiter: &Limiter, clock: &dyn Clock, wait: SlotWait) -> SlotWait {
    let mut place = SlotPlace::new(limiter);
    place.enter(wait);
    place.called(clock).await;
    place.wait.take().expect("taken here only")
}
