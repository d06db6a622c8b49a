//! The end of a wait: released at its release time, or cancelled. The owner of a [`QueuePosition`] does one of the two.
//!
//! Cancelling gives back the hits and advances the requests behind, all under the locks under which positions are taken:
//! no request takes a position between the two.

use super::{Due, QueuePoll, QueuePosition, QueuedHits, Queues};
use crate::{
    algorithm::{Algorithm, State},
    limit::Timestamp,
    limiter::{in_force::Limiter, locked_keys::LockedKeys},
    rules::LimitTable,
    store::Counter,
};
use std::task::Waker;

impl Limiter {
    /// Present release time of a queued request; it may change to an earlier time.
    pub fn due(&self, position: &QueuePosition) -> Due {
        self.queues.lock().due(position)
    }

    /// Polls a queued request: on arrival, at the time that the last poll returned, and when `waker` is woken.
    pub fn poll(&self, position: &QueuePosition, waker: &Waker, now: Timestamp) -> QueuePoll {
        self.change_queues(|queues, woken| queues.poll(position, waker, now, woken))
    }

    /// Ends the wait of a request that is answered. Its hits stay counted.
    pub fn release(&self, position: QueuePosition) {
        self.change_queues(|queues, woken| _ = queues.remove(&position, woken));
    }

    /// Ends the wait of a request that is not answered: its hits are given back where they still count, and the requests
    /// behind it advance.
    pub fn cancel(&self, position: QueuePosition, now: Timestamp) {
        let mut woken = Vec::new();
        let mut counters = LockedKeys::lock(&self.store, position.keys.iter().copied());
        let in_force = self.in_force.load();
        let mut queues = self.queues.lock();
        let request = queues.remove(&position, &mut woken);
        for hits in &request.hits {
            let counter = counters.get_mut(hits.key);
            if let Some(left) = give_back(counter, hits, request.arrived, in_force.rules.limits(), now) {
                queues.advance_from(position.number + 1, hits.key, left, &mut woken);
            }
        }
        drop((queues, counters));
        woken.into_iter().for_each(Waker::wake);
        if let Some(slot) = &position.slot {
            self.cancel_start(&slot.ticket, now);
        }
    }

    /// Ends all queues at `ends`: from now on no request is queued or released beyond it, and those that would be are
    /// woken to be cancelled.
    pub fn end_queues_at(&self, ends: Timestamp) {
        self.change_queues(|queues, woken| queues.end(ends, woken));
    }

    /// Changes the queues under their lock, and then wakes the requests that the change concerns.
    pub(super) fn change_queues<T>(&self, change: impl FnOnce(&mut Queues, &mut Vec<Waker>) -> T) -> T {
        let mut woken = Vec::new();
        let result = change(&mut self.queues.lock(), &mut woken);
        woken.into_iter().for_each(Waker::wake);
        result
    }

    /// Number of queued requests, and of those that wait for slots.
    pub fn queued(&self) -> usize {
        let queues = self.queues.lock();
        queues.len() + queues.slots.len()
    }
}

/// Gives back the hits of a queued request that still count on a counter; returns their number.
fn give_back(
    counter: Option<&mut Counter>,
    queued: &QueuedHits,
    arrived: Timestamp,
    limits: &LimitTable,
    now: Timestamp,
) -> Option<u64> {
    let counter = counter?;
    // If the rules have changed, the counter may have another limit than on arrival.
    let (limit, on_arrival) = (limits.get(counter.limit())?, limits.get(queued.limit)?);
    let algorithm = &limit.algorithm;
    Some(counter.change(algorithm, |state| {
        let left = left(queued, arrived, algorithm, &on_arrival.algorithm, &state, now);
        (algorithm.give_back(state, left, now), left)
    }))
}

/// The hits of a queued request that are known to count still on a counter with this state, by its algorithm now and on
/// arrival.
pub(super) fn left(
    queued: &QueuedHits,
    arrived: Timestamp,
    algorithm: &Algorithm,
    on_arrival: &Algorithm,
    state: &State,
    now: Timestamp,
) -> u64 {
    match &queued.position {
        Some((bucket, position)) => bucket.left_at(*position, queued.hits, now),
        None if algorithm.reads_as(on_arrival) => algorithm.left_of(state, queued.hits, arrived, now),
        // Converted as a sum: which of the hits left are this request's is unknown, and none may be taken from another request.
        None => 0,
    }
}
