//! The counters of one request, under the locks of their shards.

use super::{
    plan::{INLINE, Plan, PlannedCounter},
    status::Reading,
};
use crate::{
    algorithm::{Standing, State, StateView},
    limit::{LimitId, Timestamp},
    rules::{RuleLimit, RuleSet},
    store::{Counter, PlaceIndex, Shard, Store},
    sync::MutexGuard,
};
use smallvec::SmallVec;

/// The locked shards of a request.
///
/// Invariant: each existing counter of the request was counted under the limit of its charges. A counter under another limit, because the
/// rules have changed since, is converted when it is locked, and kept so. Converted at each read instead, its hits would count as taken at
/// the time of the read, and a denied key would never be free.
pub(super) struct LockedShards<'s> {
    store: &'s Store,
    guards: SmallVec<[MutexGuard<'s, Shard>; INLINE]>,
    /// Whether counters were added or dropped since, so that counters may have moved.
    moved: bool,
    /// New counters for which room is reserved.
    reserved: u32,
}

/// Access to the counters of a request while it is decided.
pub(super) trait Counters {
    /// Whether the counter exists.
    fn has(&self, counter: &PlannedCounter) -> bool;

    /// The state of the counter; empty if it does not exist.
    fn state(&self, counter: &PlannedCounter) -> StateView<'_>;

    /// Changes the state of the counter and returns its numbers. A counter that does not exist is created: the caller has
    /// made room for it.
    fn change(
        &mut self,
        counter: &PlannedCounter,
        limit: &RuleLimit,
        now: Timestamp,
        change: impl FnOnce(State) -> Standing,
    ) -> Reading;

    /// Notes hits that a counter with leases denied.
    fn note_denied(&mut self, counter: &PlannedCounter, hits: u64);

    /// Reserves room for the counters that are to be created; false if the store is full.
    fn make_room(&mut self, counters: &[PlannedCounter], to_be_created: &[bool], now: Timestamp) -> bool;

    /// Whether there is room for another counter; none is reserved.
    fn has_room(&mut self, now: Timestamp) -> bool;

    /// The time at which the counter is decided: the request's, unless the counter has a clock of its own.
    #[inline]
    fn time(&self, _: &PlannedCounter, now: Timestamp) -> Timestamp {
        now
    }
}

impl<'s> LockedShards<'s> {
    /// Locks the shards and locates the counters. Shards are locked in ascending order, because two requests that share
    /// two shards must not deadlock.
    #[inline]
    pub(super) fn lock(
        store: &'s Store,
        counters: &mut [PlannedCounter],
        plan: &Plan<'_>,
        rules: &RuleSet,
        now: Timestamp,
    ) -> Self {
        let mut guards: SmallVec<[_; INLINE]> = SmallVec::new();
        let mut last_shard = None;
        for counter in &mut *counters {
            let shard = Store::shard_of(counter.key);
            if last_shard != Some(shard) {
                guards.push(store.lock(shard));
                last_shard = Some(shard);
            }
            counter.guard = guards.len() as u32 - 1;
        }
        // A second pass: the lookups do not depend on each other, so the processor overlaps their cache misses.
        let mut shards = Self { store, guards, moved: false, reserved: 0 };
        for counter in counters {
            counter.place = shards.guards[counter.guard as usize].find(counter.key);
            let limit = &*plan.charges[plan.by_key[counter.charges().start] as usize].limit;
            shards.convert(counter, limit, rules, now);
        }
        shards
    }

    /// Converts a counter that was counted under another limit.
    #[inline]
    fn convert(&mut self, counter: &PlannedCounter, limit: &RuleLimit, rules: &RuleSet, now: Timestamp) {
        let Some(place) = counter.place else { return };
        let shard = &mut *self.guards[counter.guard as usize];
        if shard.get(place).limit() != limit.id {
            convert(shard.get_mut(place), limit, rules, now);
        }
    }

    /// The place of the counter now.
    #[inline]
    fn place(&self, counter: &PlannedCounter) -> Option<PlaceIndex> {
        if self.moved { self.guards[counter.guard as usize].find(counter.key) } else { counter.place }
    }
}

impl Counters for LockedShards<'_> {
    #[inline]
    fn has(&self, counter: &PlannedCounter) -> bool {
        self.place(counter).is_some()
    }

    #[inline(always)]
    fn state(&self, counter: &PlannedCounter) -> StateView<'_> {
        match self.place(counter) {
            Some(place) => self.guards[counter.guard as usize].get(place).state(),
            None => StateView::of_words([0; 2]),
        }
    }

    #[cold]
    fn note_denied(&mut self, counter: &PlannedCounter, hits: u64) {
        if let Some(place) = self.place(counter) {
            self.guards[counter.guard as usize].get_mut(place).note_denied(hits);
        }
    }

    #[inline]
    fn change(
        &mut self,
        counter: &PlannedCounter,
        limit: &RuleLimit,
        now: Timestamp,
        change: impl FnOnce(State) -> Standing,
    ) -> Reading {
        let place = self.place(counter);
        let shard = &mut self.guards[counter.guard as usize];
        let Some(place) = place else {
            let Standing { state, expires, remaining, until_full } = change(State::EMPTY);
            match self.reserved.checked_sub(1) {
                Some(reserved) => self.reserved = reserved,
                // The counter existed, expired, and was dropped to make room for another counter of this request.
                None => self.store.take_again(),
            }
            let dropped = shard.insert(counter.key, Counter::new(state, limit.id, expires), now);
            self.store.release_expired(dropped);
            self.moved = true;
            return Reading { remaining, until_full: Some(until_full) };
        };
        let stored = shard.get_mut(place);
        let Standing { state, expires, remaining, until_full } = change(stored.take_state());
        stored.set(state, limit.id, expires);
        Reading { remaining, until_full: Some(until_full) }
    }

    #[inline]
    fn make_room(&mut self, counters: &[PlannedCounter], to_be_created: &[bool], now: Timestamp) -> bool {
        let reserve = |shards: &mut Self| {
            let new = counters.iter().zip(to_be_created);
            let new = new.filter(|&(counter, &created)| created && !shards.has(counter)).count();
            let has_room = new == 0 || shards.store.reserve(new);
            shards.reserved += if has_room { new as u32 } else { 0 };
            has_room
        };
        reserve(self) || {
            // The search may drop an expired counter of this very request: locate all of them again.
            self.moved |= self.store.search_room(self.guards.iter_mut().map(|guard| &mut **guard), now);
            let has_room = reserve(self);
            if !has_room {
                self.store.count_no_room();
            }
            has_room
        }
    }

    #[cold]
    fn has_room(&mut self, now: Timestamp) -> bool {
        let is_full = |store: &Store| store.counters() >= store.counters_max();
        if is_full(self.store) {
            self.moved |= self.store.search_room(self.guards.iter_mut().map(|guard| &mut **guard), now);
        }
        !is_full(self.store)
    }
}

/// Rewrites a counter under `limit`: hits used under the former limit count as taken now, within the bound on debts.
#[cold]
pub(super) fn convert(counter: &mut Counter, limit: &RuleLimit, rules: &RuleSet, now: Timestamp) {
    let former: LimitId = counter.limit();
    let state = counter.take_state();
    let state = match rules.limits().get(former) {
        Some(former) => {
            let most = limit.counted_at_most().unwrap_or(u64::MAX);
            limit.algorithm.take_over(&former.algorithm, state, most, now)
        }
        // Unreachable in practice: each rule set is built upon the one before it, so the limit of every counter is known.
        None => State::EMPTY,
    };
    let expires = limit.algorithm.expires(&state);
    counter.set(state, limit.id, expires);
}
