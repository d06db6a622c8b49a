//! Counters of this process of which nodes hold credits: see [`Leased`].

use super::{
    Limiter, Pinned,
    counters::convert,
    leasable::{LeasableCharge, LeasableCharges, leasable},
};
use crate::{
    algorithm::{Algorithm, Leased, State},
    limit::{Request, Timestamp},
    rules::LimitTable,
    store::{Counter, Key, Shard, Store},
};
use std::sync::atomic::Ordering;

impl Pinned<'_> {
    /// The charges of a request to counters of this process, if credits of leases can decide it: see [`super::OwnedPinned::leasable`].
    pub fn grantable(&self, request: &Request<'_>) -> Option<LeasableCharges<'_>> {
        leasable(&self.in_force, self.limiter, request, false)
    }

    /// Prefetches counters that are about to be changed.
    pub fn fetch_counters(&self, keys: impl Iterator<Item = Key> + Clone) {
        super::fast_path::fetch_counters(keys, &self.limiter.store);
    }

    /// Changes what is out of a counter, which is made if there is none; none if the store is full.
    pub fn with_counter<T>(
        &self,
        charge: &LeasableCharge<'_>,
        now: Timestamp,
        change: impl FnOnce(&Algorithm, &mut Leased) -> T,
    ) -> Option<T> {
        let (store, limit) = (&self.limiter.store, charge.limit());
        let key = charge.key();
        let mut shard = store.lock(Store::shard_of(key));
        if shard.find(key).is_none() {
            let has_room = store.reserve(1)
                || (store.search_room(std::iter::once(&mut *shard), now) && store.reserve(1));
            if !has_room {
                store.count_no_room();
                return None;
            }
            let dropped = shard.insert(key, Counter::new(State::EMPTY, limit.id, now), now);
            store.release_expired(dropped);
        }
        let slot = shard.find(key)?;
        let counter = shard.get_mut(slot);
        if counter.limit() != limit.id {
            convert(counter, limit, &self.in_force.rules, now);
        }
        self.limiter.has_leases.store(true, Ordering::Relaxed);
        Some(change_leased(counter, &limit.algorithm, now, change))
    }

    /// Changes the leases on a counter under the limit that it is counted under; none if there is no such counter.
    pub fn with_leases<T>(
        &self,
        key: Key,
        now: Timestamp,
        change: impl FnOnce(&Algorithm, &mut Leased) -> T,
    ) -> Option<T> {
        let mut shard = self.limiter.store.lock(Store::shard_of(key));
        let counter = shard.find(key).map(|slot| shard.get_mut(slot))?;
        let id = counter.limit();
        let limit = self.in_force.rules.limits().get(id)?;
        self.limiter.has_leases.store(true, Ordering::Relaxed);
        Some(change_leased(counter, &limit.algorithm, now, change))
    }
}

/// Changes the leases on a counter.
fn change_leased<T>(
    counter: &mut Counter,
    algorithm: &Algorithm,
    now: Timestamp,
    change: impl FnOnce(&Algorithm, &mut Leased) -> T,
) -> T {
    let id = counter.limit();
    let mut leased = Leased::of(algorithm, counter.take_state(), now);
    let result = change(algorithm, &mut leased);
    let state = leased.into_state(algorithm, now);
    let expires = algorithm.expires(&state);
    counter.set(state, id, expires);
    result
}

impl Limiter {
    /// Whether counters may have outstanding credits.
    pub(super) fn has_leases(&self) -> bool {
        self.has_leases.load(Ordering::Relaxed)
    }

    /// Resets a counter in which no request is queued: outstanding credits stay, and count. False if it does not exist.
    pub(super) fn empty_leased(
        &self,
        shard: &mut Shard,
        key: Key,
        limits: &LimitTable,
        now: Timestamp,
    ) -> bool {
        let Some(slot) = shard.find(key) else { return false };
        let counter = shard.get_mut(slot);
        let id = counter.limit();
        let (State::Leased(_), Some(limit)) = (&*counter.state(), limits.get(id)) else {
            return self.store.remove(shard, key);
        };
        let mut leased = Leased::of(&limit.algorithm, shard.get_mut(slot).take_state(), now);
        leased.reset(&limit.algorithm, now);
        let state = leased.into_state(&limit.algorithm, now);
        let expires = limit.algorithm.expires(&state);
        shard.get_mut(slot).set(state, id, expires);
        true
    }
}
