//! Who waits for a turn, as naively as it can be said: a list in the order of coming. Each has a copy of every counter that
//! counts its hits, as that was when it came, with its hits on top; of what was there before, what is given back later is
//! noted as a number.

use crate::{
    naive::{Asked, Key},
    oracle::{Model, Oracle, first},
};

/// All who wait.
#[derive(Clone)]
pub struct Waits {
    /// The most that may.
    most: usize,
    /// No answer is given after this.
    ends: Option<u64>,
    list: Vec<Waiter>,
}

/// A request that waits.
#[derive(Clone)]
pub struct Waiter {
    pub came: u64,
    pub asked: Vec<Asked>,
    /// Descriptors that are over and deny nothing.
    pub over: Vec<usize>,
    pub places: Vec<Place>,
}

/// Its hits in one counter.
#[derive(Clone)]
pub struct Place {
    pub key: Key,
    /// None if they are counted in any case: then there is nothing to be taken off.
    pub hits: u64,
    pub counter: Oracle,
    /// Whether the counter's rule lets hits wait.
    pub may_wait: bool,
    /// Hits before these that were given back since.
    given_back: u64,
}

impl Waits {
    pub fn new(most: usize) -> Self {
        Self { most, ends: None, list: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// How long each still has to wait.
    pub fn waits(&self, now: u64) -> Vec<u64> {
        self.list.iter().map(|waiter| waiter.wait(now)).collect()
    }

    /// How long one who comes now may wait at most.
    pub fn patience(&self, now: u64) -> u64 {
        let has_room = self.list.len() < self.most;
        if has_room { self.ends.map_or(u64::MAX, |ends| ends.saturating_sub(now)) } else { 0 }
    }

    pub fn enter(&mut self, waiter: Waiter) {
        self.list.push(waiter);
    }

    pub fn end(&mut self, ends: u64) {
        self.ends = Some(ends);
    }

    /// Takes out the first whose turn has come, if there is one.
    pub fn next_due(&mut self, now: u64) -> Option<Waiter> {
        let due = self.list.iter().position(|waiter| waiter.wait(now) == 0)?;
        Some(self.list.remove(due))
    }

    /// The first whose turn comes after the end, if there is one.
    pub fn next_too_late(&self, now: u64) -> Option<usize> {
        let ends = self.ends?;
        self.list.iter().position(|waiter| waiter.wait(now) > ends.saturating_sub(now))
    }

    /// Takes out one; whoever came later is from there on.
    pub fn remove(&mut self, index: usize) -> Waiter {
        self.list.remove(index)
    }

    /// Those from the index on move up: hits before them were given back.
    pub fn move_up(&mut self, from: usize, key: Key, hits: u64) {
        let places = self.list[from..].iter_mut().flat_map(|waiter| &mut waiter.places);
        places.filter(|place| place.key == key).for_each(|place| place.given_back += hits);
    }
}

impl Waiter {
    /// Until all buckets that it waits for have leaked to what fits.
    fn wait(&self, now: u64) -> u64 {
        let buckets = self.places.iter().filter(|place| place.may_wait);
        buckets.map(|place| first(now, |at| place.has_turn(at)) - now).max().unwrap_or(0)
    }
}

impl Place {
    pub fn new(key: Key, hits: u64, counter: Oracle, may_wait: bool) -> Self {
        Self { key, hits, counter, may_wait, given_back: 0 }
    }

    fn has_turn(&self, at: u64) -> bool {
        self.counter.used(at) <= self.counter.limit() + self.given_back
    }

    /// Of the hits, those that are to be taken off the counter as it is now.
    pub fn left(&self, counter: &Oracle, came: u64, now: u64) -> u64 {
        if self.counter.is_leaky() {
            // Whatever rule counts them now: the turn is still that of the rule under which they came.
            self.counter.whole(now).saturating_sub(self.given_back).min(self.hits)
        } else if counter.model().counts_as(self.counter.model()) {
            counter.left(self.hits, came, now)
        } else {
            // Under another rule it was taken over as a sum, and nobody knows whose hits are left of it.
            0
        }
    }
}

impl Oracle {
    fn is_leaky(&self) -> bool {
        matches!(self.model(), Model::LeakyBucket { .. })
    }
}
