//! Resets of counters that queued requests may have hits in.
//!
//! The hits of queued requests stay, and all other hits are given back: requests stay queued in their order, and advance as if the
//! hits before them had been given back. Without them a later request would be admitted before those that are queued.

use super::{QueuedHits, Queues, leave::left};
use crate::{
    algorithm::State,
    limit::{LimitId, Timestamp},
    limiter::{in_force::Limiter, locked_keys::LockedKeys},
    rules::LimitTable,
    store::{Key, Removed, Shard},
};
use std::{cell::RefCell, collections::HashMap, task::Waker};

impl Limiter {
    /// Resets the counters of these keys, all at one moment.
    pub(in crate::limiter) fn empty(
        &self,
        mut keys: Vec<Key>,
        limits: &LimitTable,
        now: Timestamp,
    ) -> Removed {
        keys.sort_unstable();
        keys.dedup();
        let mut shards = LockedKeys::lock(&self.store, keys.iter().copied());
        let (mut queues, mut woken, mut counters) = (self.queues.lock(), Vec::new(), 0);
        let queued = queues.hits_in(&keys);
        for &key in &keys {
            let shard = shards.shard(key);
            let is_reset = match queued.get(&key) {
                Some(queued) => queues.empty(shard, key, queued, limits, now, &mut woken),
                None => self.empty_leased(shard, key, limits, now),
            };
            counters += usize::from(is_reset);
        }
        let number = self.store.next_number();
        drop((queues, shards));
        woken.into_iter().for_each(Waker::wake);
        Removed { counters, number }
    }

    /// Resets the counters of the limits that `is_selected` selects, a few pages under each lock; returns how many.
    pub(in crate::limiter) fn empty_limits(
        &self,
        is_selected: impl Fn(LimitId) -> bool,
        limits: &LimitTable,
        now: Timestamp,
    ) -> usize {
        // The lock of queues is taken under that of the shard: no request is queued in a counter while it is removed.
        let leased = RefCell::new(Vec::new());
        let removed = self.store.remove_where(|key, counter| {
            if !is_selected(counter.limit()) || self.queues.lock().holds(key) {
                return false;
            }
            let is_leased = matches!(*counter.state(), State::Leased(_));
            if is_leased {
                leased.borrow_mut().push(key);
            }
            !is_leased
        });
        let mut held = self.queues.lock().keys_of(is_selected);
        held.append(&mut leased.into_inner());
        removed + self.empty(held, limits, now).counters
    }
}

impl Queues {
    /// Whether queued requests have hits in a counter.
    fn holds(&self, key: Key) -> bool {
        self.held.contains_key(&key)
    }

    /// The keys of the counters in which requests were queued under limits that `is_selected` selects.
    fn keys_of(&self, is_selected: impl Fn(LimitId) -> bool) -> Vec<Key> {
        let hits = self.requests.values().flat_map(|request| &request.hits);
        hits.filter(|hits| is_selected(hits.limit)).map(|hits| hits.key).collect()
    }

    /// Gives back the hits of a counter that are not of queued requests, which advance; false if it does not exist.
    fn empty(
        &mut self,
        shard: &mut Shard,
        key: Key,
        queued: &[(QueuedHits, Timestamp)],
        limits: &LimitTable,
        now: Timestamp,
        woken: &mut Vec<Waker>,
    ) -> bool {
        let Some(counter) = shard.find(key).map(|slot| shard.get_mut(slot)) else { return false };
        let Some(limit) = limits.get(counter.limit()) else { return false };
        let algorithm = &limit.algorithm;
        let given = counter.change(algorithm, |state| {
            let queued = queued.iter().map(|(hits, arrived)| {
                let on_arrival = limits.get(hits.limit);
                on_arrival.map_or(0, |former| left(hits, *arrived, algorithm, &former.algorithm, &state, now))
            });
            let given = algorithm.used(&state, now).saturating_sub(queued.sum());
            (algorithm.give_back(state, given, now), given)
        });
        self.advance_from(0, key, given, woken);
        true
    }

    /// The hits of queued requests in each of these counters, with their present positions and arrival times. Reads every queued request
    /// once; `keys` are in ascending order.
    fn hits_in(&self, keys: &[Key]) -> HashMap<Key, Vec<(QueuedHits, Timestamp)>> {
        let mut found: HashMap<Key, Vec<_>> = HashMap::new();
        for (number, request) in &self.requests {
            for hits in request.hits.iter().filter(|hits| keys.binary_search(&hits.key).is_ok()) {
                let mut hits = hits.clone();
                if let Some((_, position)) = &mut hits.position {
                    let mut lines = self.lines.get(&hits.key).into_iter().flatten();
                    *position = lines.find_map(|line| line.position_of(*number)).unwrap_or(*position);
                }
                found.entry(hits.key).or_default().push((hits, request.arrived));
            }
        }
        found
    }
}
