//! A naive queue: a list of requests in the order of arrival. Each request has a copy of every counter that counts its hits, as of its
//! arrival and with its hits; hits before its own that are given back later are kept as a number.

use crate::{
    naive::Key,
    oracle::{Model, Oracle, first},
    outcome::DescriptorHits,
};

/// All queued requests.
#[derive(Clone)]
pub struct NaiveQueue {
    /// The maximum number of requests.
    most: usize,
    /// No request is released after this time.
    ends: Option<u64>,
    list: Vec<QueuedRequest>,
}

/// A queued request.
#[derive(Clone)]
pub struct QueuedRequest {
    pub arrived: u64,
    pub descriptors: Vec<DescriptorHits>,
    /// Descriptors that are over their limits without a denial.
    pub over: Vec<usize>,
    pub queued_charges: Vec<QueuedCharge>,
}

/// The hits of a queued request in one counter.
#[derive(Clone)]
pub struct QueuedCharge {
    pub key: Key,
    /// Zero if the hits are charged in any case: then none are given back on cancellation.
    pub hits: u64,
    pub counter: Oracle,
    /// Whether the counter's limit has a queue.
    pub may_queue: bool,
    /// Hits ahead of these that were given back later.
    given_back: u64,
}

impl NaiveQueue {
    pub fn new(most: usize) -> Self {
        Self { most, ends: None, list: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Remaining wait of each request.
    pub fn remaining_waits(&self, now: u64) -> Vec<u64> {
        self.list.iter().map(|queued| queued.wait(now)).collect()
    }

    /// The longest wait of a request that arrives now with charges of these counters. A counter with requests in the queue accepts another
    /// request while it has fewer of them than there are free places.
    pub fn max_wait(&self, keys: &[Key], now: u64) -> u64 {
        let free = self.most.saturating_sub(self.list.len());
        let held = |key: &Key| {
            self.list
                .iter()
                .filter(|queued| queued.queued_charges.iter().any(|charge| charge.key == *key))
                .count()
        };
        let has_room = free > 0 && keys.iter().map(held).all(|held| held == 0 || held < free);
        if has_room { self.ends.map_or(u64::MAX, |ends| ends.saturating_sub(now)) } else { 0 }
    }

    pub fn push(&mut self, queued: QueuedRequest) {
        self.list.push(queued);
    }

    pub fn end(&mut self, ends: u64) {
        self.ends = Some(ends);
    }

    /// Removes the first request that is due.
    pub fn pop_released(&mut self, now: u64) -> Option<QueuedRequest> {
        let due = self.list.iter().position(|queued| queued.wait(now) == 0)?;
        Some(self.list.remove(due))
    }

    /// Index of the first request that would be released after the end.
    pub fn next_released_too_late(&self, now: u64) -> Option<usize> {
        let ends = self.ends?;
        self.list.iter().position(|queued| queued.wait(now) > ends.saturating_sub(now))
    }

    /// Removes a request; the requests behind it are at this index and above.
    pub fn remove(&mut self, index: usize) -> QueuedRequest {
        self.list.remove(index)
    }

    /// Advances the requests from the index on: hits ahead of them were given back.
    pub fn move_up(&mut self, from: usize, key: Key, hits: u64) {
        let queued_charges = self.list[from..].iter_mut().flat_map(|queued| &mut queued.queued_charges);
        queued_charges.filter(|charge| charge.key == key).for_each(|charge| charge.given_back += hits);
    }
}

impl QueuedRequest {
    /// Time until every bucket with a queue has leaked enough.
    fn wait(&self, now: u64) -> u64 {
        let buckets = self.queued_charges.iter().filter(|charge| charge.may_queue);
        buckets.map(|charge| first(now, |at| charge.is_released_at(at)) - now).max().unwrap_or(0)
    }
}

impl QueuedCharge {
    pub fn new(key: Key, hits: u64, counter: Oracle, may_queue: bool) -> Self {
        Self { key, hits, counter, may_queue, given_back: 0 }
    }

    fn is_released_at(&self, at: u64) -> bool {
        self.counter.used(at) <= self.counter.limit() + self.given_back
    }

    /// The number of these hits to give back to the counter on cancellation.
    pub fn left(&self, counter: &Oracle, arrived: u64, now: u64) -> u64 {
        if self.counter.is_leaky() {
            // Independent of later rule changes: the release follows the rule in force on arrival.
            self.counter.whole(now).saturating_sub(self.given_back).min(self.hits)
        } else if counter.model().counts_as(self.counter.model()) {
            counter.left(self.hits, arrived, now)
        } else {
            // A converted counter has only a sum, which cannot be attributed to requests.
            0
        }
    }
}

impl Oracle {
    fn is_leaky(&self) -> bool {
        matches!(self.model(), Model::LeakyBucket { .. })
    }
}
