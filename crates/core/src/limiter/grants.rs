//! Counters of this process of which nodes hold credits: see [`Leased`].

use super::{
    Limiter, Pinned,
    leasable::{LeasableCharges, leasable},
};
use crate::{
    algorithm::{Algorithm, Leased, State},
    limit::{Request, Timestamp},
    rules::LimitTable,
    store::{Key, Shard, Store},
};
use std::sync::atomic::Ordering;

impl Pinned<'_> {
    /// The charges of a request to counters of this process, if credits of leases can decide it: see [`super::HeldRules::leasable`].
    pub fn grantable(&self, request: &Request<'_>) -> Option<LeasableCharges<'_>> {
        leasable(&self.in_force, self.limiter, request, false)
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
        let mut leased = Leased::of(&limit.algorithm, counter.take_state(), now);
        let result = change(&limit.algorithm, &mut leased);
        let state = leased.into_state(&limit.algorithm, now);
        let expires = limit.algorithm.expires(&state);
        counter.set(state, id, expires);
        Some(result)
    }
}

impl Limiter {
    /// Whether credits of counters may be out.
    pub(super) fn has_leases(&self) -> bool {
        self.has_leases.load(Ordering::Relaxed)
    }

    /// Resets a counter in which no request is queued: credits that are out stay, and count. False if it does not exist.
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
