//! The queued requests: a state machine without clock, locks or counters. Those that wait for slots are in [`SlotLines`].
//!
//! A queued request has charged its hits to every counter that it names, and has a position in each leaky bucket among
//! them. It is released once all of its positions are. What always holds:
//!
//! - requests of one bucket are released in the order of arrival, unless the rules change;
//! - when hits before a position are given back, that position and all behind it advance by as much; a release time never
//!   gets later;
//! - no more than `requests_max` requests are queued, and a key or a limit leaves some places to others: see [`Places`].
//!
//! Each operation takes O(log n) steps amortised, with n requests in a queue. In particular, giving back hits does not
//! visit the requests behind them, and wakes at most one of them for each bucket. The others have timers that are late, and
//! are woken in order of arrival: the first request in a bucket that has not reached its release time there (the head of
//! its [`BucketLine`]) has a timer for that time, and then wakes the next.

mod decide;
mod leave;
mod line;
mod places;
#[cfg(test)]
mod properties;
mod reset;
mod slot_lines;
mod slot_waits;
mod store_wait;
#[cfg(test)]
mod tests;

pub use decide::QueueDecision;
pub(super) use decide::decide_unqueued;
pub(super) use slot_lines::WantedSlots;
pub use slot_waits::SlotWait;
pub(super) use slot_waits::{Wanted, slot_line};
pub use store_wait::StoreWait;

use crate::{
    algorithm::{LeakyBucket, Position},
    limit::{GrantedSlot, LimitId, Timestamp},
    store::Key,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use line::{BucketLine, Member};
use places::{Places, release_place};
use slot_lines::SlotLines;
use smallvec::SmallVec;
use std::{task::Waker, time::Duration};

/// A queued request. Its owner ends the wait exactly once: by [`Limiter::release`](super::Limiter::release) or
/// [`Limiter::cancel`](super::Limiter::cancel).
#[must_use = "a request stays queued until it is released or cancelled"]
#[derive(Debug)]
pub struct QueuePosition {
    /// In the order of arrival.
    number: u64,
    /// Keys of the counters that hold its hits, in ascending order.
    pub(super) keys: SmallVec<[Key; 2]>,
    /// Indices of descriptors that are over their limit without denying the request.
    pub(super) over: SmallVec<[u32; 2]>,
    /// The slots that it holds.
    pub(super) slot: Option<Box<GrantedSlot>>,
}

/// Release time of a queued request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// At its release time.
    At(Timestamp),
    /// Never: its release time is after the end of all queues.
    TooLate,
}

/// Next step of the owner of a queued request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePoll {
    /// Release it: it is due.
    Release,
    /// Poll again at this time, or when woken.
    Again(Timestamp),
    /// Cancel it: its release time is after the end of all queues.
    TooLate,
}

/// Hits that a queued request has charged to one counter.
#[derive(Clone, Debug)]
pub(super) struct QueuedHits {
    pub(super) key: Key,
    /// The limit under which they were counted.
    pub(super) limit: LimitId,
    pub(super) hits: u64,
    /// Their position, in a leaky bucket.
    pub(super) position: Option<(LeakyBucket, Position)>,
    /// Whether the request waits for this bucket. It does not wait for a shadow, however full its bucket is.
    pub(super) waits: bool,
}

/// A request in the queues.
pub(super) struct QueuedRequest {
    pub(super) arrived: Timestamp,
    /// One for each counter, in ascending order of keys. Positions are those on arrival.
    pub(super) hits: SmallVec<[QueuedHits; 1]>,
    /// Woken when a release time may have changed. None from then until the request is polled.
    waker: Option<Waker>,
}

/// The lines of one key: usually one, else one for each limit under which requests were queued, oldest first.
type BucketLines = SmallVec<[BucketLine; 1]>;

/// All queued requests.
pub(super) struct Queues {
    requests_max: usize,
    /// No request is released after this time.
    ends: Option<Timestamp>,
    /// Number of the next position.
    next: u64,
    requests: HashMap<u64, QueuedRequest, FixedState>,
    lines: HashMap<Key, BucketLines, FixedState>,
    /// Number of requests with hits in each counter, and in those of each limit.
    held: HashMap<Key, usize, FixedState>,
    of_limit: HashMap<LimitId, usize, FixedState>,
    /// Requests that wait for slots. They have charged nothing, and are counted apart.
    slots: SlotLines,
}

impl Queues {
    pub(super) fn new(requests_max: usize) -> Self {
        let (requests, lines) = (HashMap::default(), HashMap::default());
        let (held, of_limit, slots) = (HashMap::default(), HashMap::default(), SlotLines::new(requests_max));
        Self { requests_max, ends: None, next: 0, requests, lines, held, of_limit, slots }
    }

    /// Calls `visit` with every limit under which hits of queued requests were counted.
    pub(super) fn visit_limits(&self, visit: &mut dyn FnMut(LimitId)) {
        let hits = self.requests.values().flat_map(|request| &request.hits);
        hits.for_each(|hits| visit(hits.limit));
    }

    /// Number of queued requests.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// The longest wait of a request that arrives now with hits in these counters; zero if there is no place for it.
    pub(super) fn wait_max(
        &self,
        counters: impl IntoIterator<Item = (Key, LimitId)>,
        now: Timestamp,
    ) -> Duration {
        let free = self.requests_max.saturating_sub(self.requests.len());
        let has_place = |(key, limit)| {
            let of_key = self.held.get(&key).copied().unwrap_or(0);
            let of_limit = self.of_limit.get(&limit).copied().unwrap_or(0);
            Places { of_key, of_limit, free }.has_another()
        };
        if !counters.into_iter().all(has_place) {
            return Duration::ZERO;
        }
        self.ends.map_or(Duration::MAX, |ends| ends.since(now))
    }

    /// Adds a request behind all others. Preconditions: [`Self::wait_max`] is not zero; `hits` are in ascending order of
    /// their keys.
    pub(super) fn push(
        &mut self,
        arrived: Timestamp,
        hits: SmallVec<[QueuedHits; 1]>,
        over: SmallVec<[u32; 2]>,
    ) -> QueuePosition {
        let number = self.next;
        self.next += 1;
        let waits_in_several = hits.iter().filter(|hits| hits.waits).count() > 1;
        for QueuedHits { key, limit, position, waits, .. } in &hits {
            let Some((bucket, position)) = position else { continue };
            let lines = self.lines.entry(*key).or_default();
            if lines.last().is_none_or(|line| line.limit() != *limit) {
                lines.push(BucketLine::new(*limit, *bucket));
            }
            let line = lines.last_mut().expect("pushed above");
            line.push(Member { number, position: *position, waits: *waits, waits_in_several });
        }
        let keys: SmallVec<[Key; 2]> = hits.iter().map(|hits| hits.key).collect();
        for QueuedHits { key, limit, .. } in &hits {
            *self.held.entry(*key).or_default() += 1;
            *self.of_limit.entry(*limit).or_default() += 1;
        }
        self.requests.insert(number, QueuedRequest { arrived, hits, waker: None });
        QueuePosition { number, keys, over, slot: None }
    }

    /// Present release time of the request.
    pub(super) fn due(&self, position: &QueuePosition) -> Due {
        let request = self.requests.get(&position.number).expect(STILL_QUEUED);
        let releases = request.hits.iter().filter(|hits| hits.waits).filter_map(|hits| {
            let line = self.lines.get(&hits.key)?.iter().find(|line| line.has(position.number))?;
            line.release_at(position.number)
        });
        self.due_at(releases.max().unwrap_or(request.arrived))
    }

    fn due_at(&self, release: Timestamp) -> Due {
        if self.ends.is_some_and(|ends| release > ends) { Due::TooLate } else { Due::At(release) }
    }

    /// Polls a request: `waker` is kept until its release time changes. Collects the wakers of requests that must be polled because this
    /// request has reached its release time in some bucket.
    pub(super) fn poll(
        &mut self,
        position: &QueuePosition,
        waker: &Waker,
        now: Timestamp,
        woken: &mut Vec<Waker>,
    ) -> QueuePoll {
        let request = self.requests.get_mut(&position.number).expect(STILL_QUEUED);
        request.waker.get_or_insert_with(|| waker.clone()).clone_from(waker);
        let (mut release, mut head_at) = (request.arrived, None::<Timestamp>);
        let mut numbers = SmallVec::<[u64; 4]>::new();
        for hits in request.hits.iter().filter(|hits| hits.waits) {
            let lines = self.lines.get_mut(&hits.key);
            let line = lines.and_then(|lines| lines.iter_mut().find(|line| line.has(position.number)));
            let Some((line, at)) = line.and_then(|line| line.see(position.number).map(|at| (line, at)))
            else {
                continue;
            };
            release = release.max(at);
            if at <= now {
                line.pass(now, &mut numbers);
            } else if line.head() == Some(position.number) {
                head_at = Some(head_at.map_or(at, |former| former.min(at)));
            }
        }
        numbers.retain(|number| *number != position.number);
        self.wake(&numbers, woken);
        match self.due_at(release) {
            Due::TooLate => QueuePoll::TooLate,
            Due::At(release) if release <= now => QueuePoll::Release,
            Due::At(release) => QueuePoll::Again(head_at.map_or(release, |at| at.min(release))),
        }
    }

    /// Removes a request, and returns it with its present positions. This alone advances no other request.
    pub(super) fn remove(&mut self, queued: &QueuePosition, woken: &mut Vec<Waker>) -> QueuedRequest {
        let mut request = self.requests.remove(&queued.number).expect(STILL_QUEUED);
        for QueuedHits { key, limit, position, .. } in &mut request.hits {
            release_place(&mut self.held, *key);
            release_place(&mut self.of_limit, *limit);
            let (Some((_, position)), Some(lines)) = (position, self.lines.get_mut(key)) else { continue };
            let Some(index) = lines.iter().position(|line| line.has(queued.number)) else { continue };
            let mut numbers = SmallVec::<[u64; 4]>::new();
            *position = lines[index].remove(queued.number, &mut numbers).unwrap_or(*position);
            if lines[index].is_empty() {
                lines.remove(index);
            }
            if lines.is_empty() {
                self.lines.remove(key);
            }
            self.wake(&numbers, woken);
        }
        request
    }

    /// Advances the requests from the number `first` on that have hits in a counter: `hits` before them were given back.
    pub(super) fn advance_from(&mut self, first: u64, key: Key, hits: u64, woken: &mut Vec<Waker>) {
        let Some(lines) = self.lines.get_mut(&key).filter(|_| hits > 0) else { return };
        let mut numbers = SmallVec::<[u64; 4]>::new();
        for line in lines {
            line.advance_from(first, hits, &mut numbers);
        }
        self.wake(&numbers, woken);
    }

    /// Ends all queues at `ends`: no request is released after it. Collects the wakers of all requests.
    pub(super) fn end(&mut self, ends: Timestamp, woken: &mut Vec<Waker>) {
        self.ends = Some(ends);
        woken.extend(self.requests.values_mut().filter_map(|request| request.waker.take()));
        self.slots.call_all(woken);
    }

    /// The time until which a request may wait for slots.
    fn slots_end(&self, ends: Timestamp) -> Timestamp {
        self.ends.map_or(ends, |of_all| of_all.min(ends))
    }

    /// Collects wakers, because wakers are not to be called under a lock.
    fn wake(&mut self, numbers: &[u64], woken: &mut Vec<Waker>) {
        woken.extend(numbers.iter().filter_map(|number| self.requests.get_mut(number)?.waker.take()));
    }
}

/// Why a request exists for a position.
const STILL_QUEUED: &str = "a position is consumed with its request";
