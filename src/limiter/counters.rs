//! The counters of one request, under the locks of their shards.

use super::charge::Plan;
use crate::{
    algorithm::State,
    limit::{LimitId, Timestamp},
    rules::{RuleLimit, RuleSet},
    store::{Counter, Key, Place, Shard, Store},
};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::{borrow::Cow, ops::Range};

/// Pages of each locked shard that are searched for expired counters when there is no room for a new one.
const SWEEP_PAGES_WHEN_FULL: usize = 2;

/// One counter of the request.
struct Held {
    /// The charges that ask it: where they stand in [`Plan::by_key`].
    charges: Range<u32>,
    key: Key,
    /// Index of its shard's guard.
    guard: u32,
    /// Where it is; none if it is not there yet.
    place: Option<Place>,
}

/// All counters of the request, and the locks that keep everybody else away from them.
pub(super) struct Counters<'s> {
    store: &'s Store,
    guards: SmallVec<[MutexGuard<'s, Shard>; 4]>,
    held: SmallVec<[Held; 2]>,
}

impl<'s> Counters<'s> {
    /// Locks the shards and finds the counters. They are locked in ascending order, since two requests that share two
    /// shards must not deadlock.
    #[inline]
    pub(super) fn lock(store: &'s Store, plan: &Plan<'_>) -> Self {
        let mut counters = Self { store, guards: SmallVec::new(), held: SmallVec::new() };
        let mut last_shard = None;
        for (&charge, position) in plan.by_key.iter().zip(0..) {
            let key = plan.charges[charge as usize].key;
            match counters.held.last_mut() {
                Some(held) if held.key == key => held.charges.end += 1,
                _ => {
                    let shard = Store::shard_of(key);
                    if last_shard != Some(shard) {
                        counters.guards.push(store.lock(shard));
                        last_shard = Some(shard);
                    }
                    let guard = counters.guards.len() - 1;
                    let place = counters.guards[guard].find(key);
                    let charges = position..position + 1;
                    counters.held.push(Held { charges, key, guard: guard as u32, place });
                }
            }
        }
        counters
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// The charges that ask the counter: where they stand in [`Plan::by_key`].
    #[inline]
    pub(super) fn charges(&self, index: usize) -> Range<usize> {
        let Range { start, end } = self.held[index].charges;
        start as usize..end as usize
    }

    /// Whether the counter is there already.
    #[inline]
    pub(super) fn exists(&self, index: usize) -> bool {
        self.held[index].place.is_some()
    }

    /// What the counter remembers, as `limit` reads it.
    #[inline]
    pub(super) fn state(
        &self,
        index: usize,
        limit: &RuleLimit,
        rules: &RuleSet,
        now: Timestamp,
    ) -> Cow<'_, State> {
        let Held { guard, place: Some(place), .. } = self.held[index] else {
            return Cow::Owned(State::EMPTY);
        };
        let counter = self.guards[guard as usize].get(place);
        if counter.limit() == limit.id {
            counter.state()
        } else {
            Cow::Owned(take_over(limit, rules, counter.limit(), counter.state().into_owned(), now))
        }
    }

    /// Changes what the counter remembers, and makes the counter if it is not there: room must have been made.
    #[inline]
    pub(super) fn update(
        &mut self,
        index: usize,
        limit: &RuleLimit,
        rules: &RuleSet,
        now: Timestamp,
        change: impl FnOnce(State) -> State,
    ) {
        let Held { key, guard, place, .. } = self.held[index];
        let shard = &mut self.guards[guard as usize];
        let former = place.map(|place| {
            let counter = shard.get_mut(place);
            (counter.limit(), counter.take_state())
        });
        let state = change(match former {
            None => State::EMPTY,
            Some((id, state)) if id == limit.id => state,
            Some((id, state)) => take_over(limit, rules, id, state, now),
        });
        let expires = limit.algorithm.expires(&state);
        match place {
            Some(place) => shard.get_mut(place).set(state, limit.id, expires),
            None => {
                let dropped = shard.insert(key, Counter::new(state, limit.id, expires), now);
                self.store.release(dropped);
                self.find_again(guard);
            }
        }
    }

    /// Makes sure that `new` counters can be made; false if there is no room for them.
    pub(super) fn make_room(&mut self, new: usize, now: Timestamp) -> bool {
        if self.store.reserve(new) {
            return true;
        }
        for guard in 0..self.guards.len() {
            let swept = self.guards[guard].sweep(SWEEP_PAGES_WHEN_FULL, now);
            self.store.release(swept.dropped);
            self.find_again(guard as u32);
        }
        self.store.reserve(new)
    }

    /// Counters of a shard move when others come or go.
    fn find_again(&mut self, guard: u32) {
        for held in self.held.iter_mut().filter(|held| held.guard == guard) {
            held.place = self.guards[guard as usize].find(held.key);
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
