//! Counters of this process for which nodes hold credits: see [`Leased`].

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

impl Pinned<'_> {
    /// The charges of a request to counters of this process, if credits of leases can decide it: see [`super::OwnedPinned::leasable`].
    pub fn grantable(&self, request: &Request<'_>) -> Option<LeasableCharges<'_>> {
        leasable(&self.in_force, self.limiter, request, false)
    }

    /// Prefetches counters that are about to be changed.
    pub fn fetch_counters(&self, keys: impl Iterator<Item = Key> + Clone) {
        super::fast_path::fetch_counters(keys, &self.limiter.store);
    }

    /// Changes the outstanding credits of a counter, which is created if absent; none if the store is full.
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
        Some(change_leased(counter, &limit.algorithm, now, change))
    }

    /// Changes the leases on a counter, under the limit it was counted under; none if there is no such counter.
    pub fn with_leases<T>(
        &self,
        key: Key,
        now: Timestamp,
        change: impl FnOnce(&Algorithm, &mut Leased) -> T,
    ) -> Option<T> {
        let mut shard = self.limiter.store.lock(Store::shard_of(key));
        let counter = shard.find(key).map(|slot| shard.get_mut(slot))?;
        let limit = self.in_force.rules.limits().get(counter.limit())?;
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
    counter.change(algorithm, |state| {
        let mut leased = Leased::of(algorithm, state, now);
        let result = change(algorithm, &mut leased);
        (leased.into_state(algorithm, now), result)
    })
}

impl Limiter {
    /// Resets a counter in which no request is queued: outstanding credits stay, and still count. False if it does not exist.
    pub(super) fn empty_leased(
        &self,
        shard: &mut Shard,
        key: Key,
        limits: &LimitTable,
        now: Timestamp,
    ) -> bool {
        let Some(slot) = shard.find(key) else { return false };
        let counter = shard.get_mut(slot);
        let (State::Leased(_), Some(limit)) = (&*counter.state(), limits.get(counter.limit())) else {
            return self.store.remove(shard, key);
        };
        change_leased(shard.get_mut(slot), &limit.algorithm, now, |algorithm, leased| {
            leased.reset(algorithm, now)
        });
        true
    }
}
