//! The counters of one request, under the locks of their shards.

use super::{
    charge::{HitSum, INLINE, Plan},
    status::Reading,
};
use crate::{
    algorithm::{Standing, State},
    limit::{LimitId, Timestamp},
    rules::{RuleLimit, RuleSet},
    store::{Counter, Key, Place, Shard, Store},
    sync::MutexGuard,
};
use smallvec::SmallVec;
use std::{borrow::Cow, ops::Range};

/// One counter of the request, and who asks it for what.
pub(super) struct PlannedCounter {
    pub(super) key: Key,
    /// The charges that ask it: where they stand in [`Plan::by_key`].
    charges: Range<u32>,
    /// What they ask for together.
    pub(super) hits: HitSum,
    /// Index of its shard's guard.
    guard: u32,
    /// Where it was when the shard was locked; none if it was not there.
    place: Option<Place>,
}

impl PlannedCounter {
    /// The charges that ask it: where they stand in [`Plan::by_key`].
    #[inline]
    pub(super) fn charges(&self) -> Range<usize> {
        self.charges.start as usize..self.charges.end as usize
    }
}

/// The shards of a request: their locks keep everybody else away from its counters.
pub(super) struct LockedShards<'s> {
    store: &'s Store,
    guards: SmallVec<[MutexGuard<'s, Shard>; INLINE]>,
    /// Whether counters came or went since, so that the others may have moved.
    moved: bool,
}

/// The counters of a plan, in the order of their keys; none has been looked for yet.
#[inline]
pub(super) fn counters(plan: &Plan<'_>) -> SmallVec<[PlannedCounter; INLINE]> {
    let mut counters: SmallVec<[PlannedCounter; INLINE]> = SmallVec::new();
    let charges = plan.charges.as_slice();
    for (&charge, position) in plan.by_key.as_slice().iter().zip(0..) {
        let charge = &charges[charge as usize];
        let mut hits = HitSum::NOTHING;
        hits.add(charge.hits);
        match counters.last_mut() {
            Some(counter) if counter.key == charge.key => {
                counter.charges.end += 1;
                counter.hits.add(charge.hits);
            }
            _ => {
                let charges = position..position + 1;
                counters.push(PlannedCounter { key: charge.key, charges, hits, guard: 0, place: None });
            }
        }
    }
    counters
}

impl<'s> LockedShards<'s> {
    /// Locks the shards and finds the counters. They are locked in ascending order, since two requests that share two
    /// shards must not deadlock.
    #[inline]
    pub(super) fn lock(store: &'s Store, counters: &mut [PlannedCounter]) -> Self {
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
        // Once all are locked: the processor looks for one counter while it waits for another.
        let shards = Self { store, guards, moved: false };
        for counter in counters {
            counter.place = shards.guards[counter.guard as usize].find(counter.key);
        }
        shards
    }

    /// Whether the counter is there.
    #[inline]
    pub(super) fn has(&self, counter: &PlannedCounter) -> bool {
        self.place(counter).is_some()
    }

    /// Where the counter is now.
    #[inline]
    fn place(&self, counter: &PlannedCounter) -> Option<Place> {
        if self.moved { self.guards[counter.guard as usize].find(counter.key) } else { counter.place }
    }

    /// What the counter remembers, as `limit` reads it.
    #[inline]
    pub(super) fn state(
        &self,
        counter: &PlannedCounter,
        limit: &RuleLimit,
        rules: &RuleSet,
        now: Timestamp,
    ) -> Cow<'_, State> {
        let Some(place) = self.place(counter) else { return Cow::Owned(State::EMPTY) };
        let counter = self.guards[counter.guard as usize].get(place);
        if counter.limit() == limit.id {
            counter.state()
        } else {
            Cow::Owned(take_over(limit, rules, counter.limit(), counter.state().into_owned(), now))
        }
    }

    /// Changes what the counter remembers, and makes the counter if it is not there: room must have been made. Returns
    /// what the counter tells then.
    #[inline]
    pub(super) fn change(
        &mut self,
        counter: &PlannedCounter,
        limit: &RuleLimit,
        rules: &RuleSet,
        now: Timestamp,
        change: impl FnOnce(State) -> Standing,
    ) -> Reading {
        let place = self.place(counter);
        let shard = &mut self.guards[counter.guard as usize];
        let Some(place) = place else {
            let Standing { state, expires, remaining, until_full } = change(State::EMPTY);
            let dropped = shard.insert(counter.key, Counter::new(state, limit.id, expires), now);
            self.store.release(dropped);
            self.moved = true;
            return Reading { remaining, until_full };
        };
        let counter = shard.get_mut(place);
        let mut state = counter.take_state();
        if counter.limit() != limit.id {
            state = take_over(limit, rules, counter.limit(), state, now);
        }
        let Standing { state, expires, remaining, until_full } = change(state);
        counter.set(state, limit.id, expires);
        Reading { remaining, until_full }
    }

    /// Makes sure that there is room for the counters that are not there and are to be made; false if there is not.
    #[inline]
    pub(super) fn make_room(
        &mut self,
        counters: &[PlannedCounter],
        to_be_made: &[bool],
        now: Timestamp,
    ) -> bool {
        let reserve = |shards: &Self| {
            let new = counters
                .iter()
                .zip(to_be_made)
                .filter(|&(counter, &made)| made && !shards.has(counter))
                .count();
            new == 0 || shards.store.reserve(new)
        };
        reserve(self) || {
            // A counter of this very request may be dropped: where they all are has to be hits again.
            self.moved |= self.store.search_room(self.guards.iter_mut().map(|guard| &mut **guard), now);
            let has_room = reserve(self);
            if !has_room {
                self.store.count_no_room();
            }
            has_room
        }
    }
}

/// A state that was counted under another limit, as `limit` reads it.
#[cold]
fn take_over(limit: &RuleLimit, rules: &RuleSet, former: LimitId, state: State, now: Timestamp) -> State {
    match rules.limits().get(former) {
        Some(former) => limit.algorithm.take_over(&former.algorithm, state, now),
        // Rules are built upon those before them, so every limit of a counter is known.
        None => State::EMPTY,
    }
}
