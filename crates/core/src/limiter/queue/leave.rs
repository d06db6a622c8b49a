//! The end of a wait: released at its release time, or cancelled. The owner of a [`QueuePosition`] does one of the two.
//!
//! Cancelling gives back the hits and advances the requests behind, all under the locks under which positions are taken:
//! no request takes a position between the two.

use super::{Due, QueuePoll, QueuePosition, QueuedHits};
use crate::{
    algorithm::{Algorithm, State},
    limit::Timestamp,
    limiter::in_force::Limiter,
    rules::LimitTable,
    store::{Shard, Store},
    sync::MutexGuard,
};
use smallvec::SmallVec;
use std::task::Waker;

impl Limiter {
    /// Present release time of a queued request; it may change to an earlier time.
    pub fn due(&self, position: &QueuePosition) -> Due {
        self.queues.lock().due(position)
    }

    /// Polls a queued request: on arrival, at the time that the last poll returned, and when `waker` is woken.
    pub fn poll(&self, position: &QueuePosition, waker: &Waker, now: Timestamp) -> QueuePoll {
        let mut woken = Vec::new();
        let poll = self.queues.lock().poll(position, waker, now, &mut woken);
        woken.into_iter().for_each(Waker::wake);
        poll
    }

    /// Ends the wait of a request that is answered. Its hits stay counted.
    pub fn release(&self, position: QueuePosition) {
        let mut woken = Vec::new();
        self.queues.lock().remove(&position, &mut woken);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Ends the wait of a request that is not answered: its hits are given back where they still count, and the requests
    /// behind it advance.
    pub fn cancel(&self, position: QueuePosition, now: Timestamp) {
        let mut woken = Vec::new();
        let mut shards: SmallVec<[(usize, MutexGuard<'_, Shard>); 2]> = SmallVec::new();
        for &key in &position.keys {
            let shard = Store::shard_of(key);
            if shards.last().is_none_or(|(last, _)| *last != shard) {
                shards.push((shard, self.store.lock(shard)));
            }
        }
        let in_force = self.in_force.load();
        let mut queues = self.queues.lock();
        let request = queues.remove(&position, &mut woken);
        for hits in &request.hits {
            let shard = Store::shard_of(hits.key);
            let guard = shards.iter_mut().find(|(locked, _)| *locked == shard);
            let (_, shard) = guard.expect("the shards of all keys were locked");
            if let Some(left) = give_back(shard, hits, request.arrived, in_force.rules.limits(), now) {
                queues.advance_behind(&position, hits.key, left, &mut woken);
            }
        }
        drop((queues, shards));
        woken.into_iter().for_each(Waker::wake);
        if let Some(slot) = &position.slot {
            self.cancel_start(&slot.ticket, now);
        }
    }

    /// Ends all queues at `ends`: from now on no request is queued or released beyond it, and those that would be are
    /// woken to be cancelled.
    pub fn end_queues_at(&self, ends: Timestamp) {
        let mut woken = Vec::new();
        self.queues.lock().end(ends, &mut woken);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Number of queued requests, and of those that wait for slots.
    pub fn queued(&self) -> usize {
        let queues = self.queues.lock();
        queues.len() + queues.slots.len()
    }
}

/// Gives back the hits of a queued request that still count on a counter; returns their number.
fn give_back(
    shard: &mut Shard,
    queued: &QueuedHits,
    arrived: Timestamp,
    limits: &LimitTable,
    now: Timestamp,
) -> Option<u64> {
    let counter = shard.find(queued.key).map(|slot| shard.get_mut(slot))?;
    let id = counter.limit();
    // If the rules have changed, the counter may have another limit than on arrival.
    let (limit, on_arrival) = (limits.get(id)?, limits.get(queued.limit)?);
    let state = counter.take_state();
    let left = left(queued, arrived, &limit.algorithm, &on_arrival.algorithm, &state, now);
    let state = limit.algorithm.give_back(state, left, now);
    let expires = limit.algorithm.expires(&state);
    counter.set(state, id, expires);
    Some(left)
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
        // Converted as a sum: how many of the hits left are these is unknown, and none may be taken from another request.
        None => 0,
    }
}
