//! How a wait ends: answered when its turn has come, or given up. Whoever has a [`Ticket`] does one of the two.
//!
//! Giving up takes the hits off their counters and moves those behind up, all of it under the locks under which a place
//! is taken: nobody gets a place between the two.

use super::{Due, QueuedHits, Ticket};
use crate::{
    limit::Timestamp,
    limiter::Limiter,
    rules::LimitTable,
    store::{Shard, Store},
    sync::MutexGuard,
};
use smallvec::SmallVec;
use std::task::Waker;

impl Limiter {
    /// When a request that waits is to be answered. `waker` is told if that changes.
    pub fn due(&self, ticket: &Ticket, waker: &Waker) -> Due {
        self.queues.lock().due(ticket, waker)
    }

    /// Ends a wait whose turn has come: the request is answered, and its hits stay counted.
    pub fn release(&self, ticket: Ticket) {
        self.queues.lock().remove(&ticket);
    }

    /// Ends a wait without an answer: what still can be taken off of its hits is, and those behind move up.
    pub fn cancel(&self, ticket: Ticket, now: Timestamp) {
        let mut woken = Vec::new();
        let mut shards: SmallVec<[(usize, MutexGuard<'_, Shard>); 2]> = SmallVec::new();
        for &key in &ticket.keys {
            let shard = Store::shard_of(key);
            if shards.last().is_none_or(|(last, _)| *last != shard) {
                shards.push((shard, self.store.lock(shard)));
            }
        }
        let in_force = self.in_force.load();
        let mut queues = self.queues.lock();
        let waiter = queues.remove(&ticket);
        for booking in &waiter.hits_of_counters {
            let shard = Store::shard_of(booking.key);
            let guard = shards.iter_mut().find(|(locked, _)| *locked == shard);
            let (_, shard) = guard.expect("the shards of all hits_of_counters were locked");
            if let Some(hits) = take_off(shard, booking, waiter.arrived, in_force.rules.limits(), now) {
                queues.advance_behind(&ticket, booking.key, hits, &mut woken);
            }
        }
        drop((queues, shards));
        woken.into_iter().for_each(Waker::wake);
    }

    /// From now on no answer is held beyond `ends`, and those who wait for a later turn are told so.
    pub fn end_queues_at(&self, ends: Timestamp) {
        let mut woken = Vec::new();
        self.queues.lock().end(ends, &mut woken);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Requests that wait.
    pub fn queued(&self) -> usize {
        self.queues.lock().len()
    }
}

/// Takes off a counter what still counts of a booking; how many hits that is.
fn take_off(
    shard: &mut Shard,
    booking: &QueuedHits,
    arrived: Timestamp,
    limits: &LimitTable,
    now: Timestamp,
) -> Option<u64> {
    let counter = shard.find(booking.key).map(|place| shard.get_mut(place))?;
    let id = counter.limit();
    // The counter's limit may be another one by now, if the rules have changed.
    let (limit, booked) = (limits.get(id)?, limits.get(booking.limit)?);
    let state = counter.take_state();
    let left = match &booking.position {
        Some((bucket, place)) => bucket.left_at(*place, booking.hits, now),
        None if limit.algorithm.reads_as(&booked.algorithm) => {
            limit.algorithm.left_of(&state, booking.hits, arrived, now)
        }
        // It was taken over as a sum, by a limit that counts otherwise: nobody knows whose hits are left of it.
        None => 0,
    };
    let state = limit.algorithm.give_back(state, left, now);
    let expires = limit.algorithm.expires(&state);
    counter.set(state, id, expires);
    Some(left)
}
