//! Requests that wait for slots: a state machine without clock, locks or counters.
//!
//! A request waits in the line of each counter that has no room for it, and has charged nothing. When it may have room it is
//! called: it is decided once more, and then takes its slots, stays, waits in other lines, or is denied. What always holds:
//!
//! - a request never takes slots of a counter while an earlier request waits in its line, however many hits that request needs;
//! - a request waits in no line of a counter that had room for it when last decided, and so delays no other request there;
//! - when slots of a counter are released, or the first request of its line leaves it, the first request in the line is called;
//! - no more than `requests_max` requests wait, and no more hits in a line than its rule allows;
//! - a line has at most one request more than there are free places, and the lines of a limit leave some for other limits: see [`Places`].
//!
//! Each operation takes O(log n) steps for each line of the request, and calls at most one request for each.

use super::places::{Places, release_place};
use crate::{limit::LimitId, store::Key};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::{collections::BTreeMap, task::Waker};

/// Hits for which a request waits in the line of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limiter) struct WantedSlots {
    pub(in crate::limiter) key: Key,
    pub(in crate::limiter) limit: LimitId,
    pub(in crate::limiter) hits: u64,
    /// The most hits in the line, with these.
    pub(in crate::limiter) hits_max: u64,
}

/// A request that waits.
#[derive(Default)]
struct Waiting {
    keys: SmallVec<[Key; 1]>,
    /// None until it is polled, and while it is called.
    waker: Option<Waker>,
    is_called: bool,
}

/// The requests that wait for slots of one counter: by their numbers, their hits and the limits that make them wait.
#[derive(Default)]
struct SlotLine {
    waiting: BTreeMap<u64, (u64, LimitId)>,
    /// Hits of all.
    hits: u64,
}

/// All requests that wait for slots.
pub(super) struct SlotLines {
    requests_max: usize,
    /// Number of the next request.
    next: u64,
    requests: HashMap<u64, Waiting, FixedState>,
    lines: HashMap<Key, SlotLine, FixedState>,
    /// Number of requests in the lines of each limit.
    of_limit: HashMap<LimitId, usize, FixedState>,
}

impl SlotLines {
    pub(super) fn new(requests_max: usize) -> Self {
        let (requests, lines, of_limit) = (HashMap::default(), HashMap::default(), HashMap::default());
        Self { requests_max, next: 0, requests, lines, of_limit }
    }

    /// Number of requests that wait.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether requests wait in the line of a counter before this request, or without a number, before a request that arrives now.
    pub(super) fn is_behind(&self, key: Key, number: Option<u64>) -> bool {
        let first = self.lines.get(&key).and_then(|line| line.waiting.first_key_value());
        first.is_some_and(|(&first, _)| number.is_none_or(|number| first < number))
    }

    /// Hits that wait in the line of a counter before this request, or without a number, before a request that arrives now; none if no
    /// request waits there. Takes a step for each of these requests.
    pub(super) fn hits_before(&self, key: Key, number: Option<u64>) -> Option<u64> {
        let line = self.lines.get(&key)?;
        let (Some(number), Some((&first, _))) = (number, line.waiting.first_key_value()) else {
            return Some(line.hits);
        };
        (first < number).then(|| line.waiting.range(..number).map(|(_, (hits, _))| hits).sum())
    }

    /// Whether the request may wait in these lines.
    pub(super) fn has_room(&self, number: Option<u64>, wanted: &[WantedSlots]) -> bool {
        let free = self.requests_max.saturating_sub(self.requests.len());
        wanted.iter().all(|slots| {
            let line = self.lines.get(&slots.key);
            let of_key = line.map_or(0, |line| line.waiting.len());
            let of_limit = self.of_limit.get(&slots.limit).copied().unwrap_or(0);
            // A request that already waits keeps its place.
            if number.is_none() && !(Places { of_key, of_limit, free }).has_another() {
                return false;
            }
            let own = number.and_then(|number| line?.waiting.get(&number)).map_or(0, |(hits, _)| *hits);
            line.map_or(0, |line| line.hits - own).saturating_add(slots.hits) <= slots.hits_max
        })
    }

    /// Puts a request in these lines and no others. Returns its number: its present number, or the next.
    pub(super) fn enter(
        &mut self,
        number: Option<u64>,
        wanted: &[WantedSlots],
        woken: &mut Vec<Waker>,
    ) -> u64 {
        let number = number.unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        let former = self.requests.get(&number).map(|request| request.keys.clone()).unwrap_or_default();
        for key in former.iter().filter(|key| wanted.iter().all(|slots| slots.key != **key)) {
            self.leave_line(number, *key, woken);
        }
        for &WantedSlots { key, limit, hits, .. } in wanted {
            let line = self.lines.entry(key).or_default();
            let former = line.waiting.insert(number, (hits, limit));
            line.hits = line.hits - former.map_or(0, |(hits, _)| hits) + hits;
            *self.of_limit.entry(limit).or_default() += 1;
            if let Some((_, limit)) = former {
                release_place(&mut self.of_limit, limit);
            }
        }
        self.requests.entry(number).or_default().keys = wanted.iter().map(|slots| slots.key).collect();
        number
    }

    /// Ends the wait of a request. Nothing happens if it does not wait.
    pub(super) fn leave(&mut self, number: u64, woken: &mut Vec<Waker>) {
        let Some(request) = self.requests.remove(&number) else { return };
        request.keys.iter().for_each(|key| self.leave_line(number, *key, woken));
    }

    /// Calls the first request in the line of a counter, after slots of the counter were released.
    pub(super) fn call_first(&mut self, key: Key, woken: &mut Vec<Waker>) {
        let first = self.lines.get(&key).and_then(|line| line.waiting.first_key_value());
        if let Some((&number, _)) = first {
            self.call(number, woken);
        }
    }

    /// Calls every request: for changes that may concern any of them.
    pub(super) fn call_all(&mut self, woken: &mut Vec<Waker>) {
        for request in self.requests.values_mut() {
            request.is_called = true;
            woken.extend(request.waker.take());
        }
    }

    /// Whether the request is called: it is to be decided once more. Otherwise `waker` is kept until it is.
    pub(super) fn poll(&mut self, number: u64, waker: &Waker) -> bool {
        let Some(request) = self.requests.get_mut(&number) else { return true };
        let is_called = std::mem::take(&mut request.is_called);
        if !is_called {
            request.waker.get_or_insert_with(|| waker.clone()).clone_from(waker);
        }
        is_called
    }

    fn leave_line(&mut self, number: u64, key: Key, woken: &mut Vec<Waker>) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        let was_first = line.waiting.first_key_value().is_some_and(|(first, _)| *first == number);
        if let Some((hits, limit)) = line.waiting.remove(&number) {
            line.hits -= hits;
            release_place(&mut self.of_limit, limit);
        }
        if line.waiting.is_empty() {
            self.lines.remove(&key);
        } else if was_first {
            self.call_first(key, woken);
        }
    }

    /// Calls a request.
    pub(super) fn call(&mut self, number: u64, woken: &mut Vec<Waker>) {
        if let Some(request) = self.requests.get_mut(&number) {
            request.is_called = true;
            woken.extend(request.waker.take());
        }
    }
}
