//! The counters of a request as a store returned them, beside its local counters.

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

/// The counters of one request. Local counters come first, and are locked.
pub(super) struct Fetched<'s> {
    pub(super) local: LockedShards<'s>,
    /// Number of local counters.
    pub(super) locals: usize,
    /// The states that the store returned, in ascending order of keys.
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

impl Fetched<'_> {
    /// The index of the state that the store returned; none for a local counter.
    fn index(&self, counter: &PlannedCounter) -> Option<usize> {
        self.states.binary_search_by_key(&counter.key, |(key, _)| *key).ok()
    }
}

impl Counters for Fetched<'_> {
    /// The store has room for every counter.
    fn has(&self, counter: &PlannedCounter) -> bool {
        self.index(counter).is_some() || self.local.has(counter)
    }

    fn state(&self, counter: &PlannedCounter) -> StateView<'_> {
        match self.index(counter) {
            Some(index) => StateView::Borrowed(&self.states[index].1),
            None => self.local.state(counter),
        }
    }

    fn change(
        &mut self,
        counter: &PlannedCounter,
        limit: &RuleLimit,
        now: Timestamp,
        change: impl FnOnce(State) -> Standing,
    ) -> Reading {
        let Some(index) = self.index(counter) else {
            return self.local.change(counter, limit, now, change);
        };
        let Standing { state, remaining, until_full, .. } = change(std::mem::take(&mut self.states[index].1));
        self.states[index].1 = state;
        Reading { remaining, until_full: Some(until_full) }
    }

    fn note_denied(&mut self, counter: &PlannedCounter, hits: u64) {
        if self.index(counter).is_none() {
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
        match (self.index(counter), &self.read_at) {
            (None, _) => now,
            (Some(_), ReadAt::One(time)) => *time,
            (Some(index), ReadAt::Each(times)) => times[index],
        }
    }
}
