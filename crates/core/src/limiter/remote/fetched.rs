//! The states of counters as a store returned them, alone or beside local counters.

use super::super::{
    counters::{Counters, LockedShards},
    plan::{INLINE, PlannedCounter},
    status::Reading,
};
use crate::{
    algorithm::{Standing, State, StateView},
    limit::Timestamp,
    rules::RuleLimit,
    store::Key,
};
use smallvec::SmallVec;

/// The counters of one request as the store returned them, in ascending order of keys.
pub(super) struct Fetched {
    pub(super) states: SmallVec<[(Key, State); INLINE]>,
    pub(super) read_at: ReadAt,
}

/// The times of the store at which counters were read.
pub(super) enum ReadAt {
    /// One time for all of them.
    One(Timestamp),
    /// One time for each: several nodes read them.
    Each(SmallVec<[Timestamp; INLINE]>),
}

impl Fetched {
    fn index(&self, counter: &PlannedCounter) -> usize {
        self.find(counter).expect("the counters of the request are those that were fetched")
    }

    fn find(&self, counter: &PlannedCounter) -> Option<usize> {
        self.states.binary_search_by_key(&counter.key, |(key, _)| *key).ok()
    }
}

impl Counters for Fetched {
    fn has(&self, counter: &PlannedCounter) -> bool {
        self.states[self.index(counter)].1 != State::EMPTY
    }

    fn state(&self, counter: &PlannedCounter) -> StateView<'_> {
        StateView::Borrowed(&self.states[self.index(counter)].1)
    }

    fn change(
        &mut self,
        counter: &PlannedCounter,
        _: &RuleLimit,
        _: Timestamp,
        change: impl FnOnce(State) -> Standing,
    ) -> Reading {
        let index = self.index(counter);
        let Standing { state, remaining, until_full, .. } = change(std::mem::take(&mut self.states[index].1));
        self.states[index].1 = state;
        Reading { remaining, until_full: Some(until_full) }
    }

    fn make_room(&mut self, _: &[PlannedCounter], _: &[bool], _: Timestamp) -> bool {
        true
    }

    fn time(&self, counter: &PlannedCounter, _: Timestamp) -> Timestamp {
        match &self.read_at {
            ReadAt::One(time) => *time,
            ReadAt::Each(times) => times[self.index(counter)],
        }
    }
}

/// The counters of a request, some of them local: the local counters come first, and are locked.
pub(super) struct Mixed<'s> {
    pub(super) local: LockedShards<'s>,
    pub(super) locals: usize,
    pub(super) fetched: Fetched,
}

impl Mixed<'_> {
    fn is_fetched(&self, counter: &PlannedCounter) -> bool {
        self.fetched.find(counter).is_some()
    }
}

impl Counters for Mixed<'_> {
    /// The store has room for every counter.
    fn has(&self, counter: &PlannedCounter) -> bool {
        self.is_fetched(counter) || self.local.has(counter)
    }

    fn state(&self, counter: &PlannedCounter) -> StateView<'_> {
        if self.is_fetched(counter) { self.fetched.state(counter) } else { self.local.state(counter) }
    }

    fn change(
        &mut self,
        counter: &PlannedCounter,
        limit: &RuleLimit,
        now: Timestamp,
        change: impl FnOnce(State) -> Standing,
    ) -> Reading {
        match self.is_fetched(counter) {
            true => self.fetched.change(counter, limit, now, change),
            false => self.local.change(counter, limit, now, change),
        }
    }

    fn note_denied(&mut self, counter: &PlannedCounter, hits: u64) {
        if !self.is_fetched(counter) {
            self.local.note_denied(counter, hits);
        }
    }

    fn has_room(&mut self, now: Timestamp) -> bool {
        self.local.has_room(now)
    }

    fn make_room(&mut self, counters: &[PlannedCounter], to_be_created: &[bool], now: Timestamp) -> bool {
        self.local.make_room(&counters[..self.locals], &to_be_created[..self.locals], now)
    }

    fn time(&self, counter: &PlannedCounter, now: Timestamp) -> Timestamp {
        if self.is_fetched(counter) { self.fetched.time(counter, now) } else { now }
    }
}
