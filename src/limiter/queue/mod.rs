//! Who waits for a turn, in which lines. Pure: no clock, no locks, no counters.
//!
//! A request that waits has booked its hits in every counter that it asked, and stands in the line of each. Its turn is the
//! latest of those that its places have. What always holds:
//!
//! - a line is in the order of coming, and so are the turns of its places;
//! - when hits before a position are given back, that position and all behind it move up by as much; no turn ever gets later;
//! - no more requests wait than may.

mod decide;
mod leave;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use decide::Verdict;
pub(super) use decide::{decide, decide_unqueued, decision};

use crate::{
    algorithm::{LeakyBucket, Position},
    limit::{LimitId, Timestamp},
    store::Key,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::{task::Waker, time::Duration};

/// What a request that waits is known by. Whoever has it ends the wait, once: answered or given up.
#[must_use = "a request waits until it is answered or given up"]
#[derive(Debug)]
pub struct Ticket {
    /// In the order of coming.
    number: u64,
    /// The counters with its hits, in ascending order.
    pub(in crate::limiter) keys: SmallVec<[Key; 2]>,
    /// Descriptors that are over and yet deny nothing, by index.
    pub(in crate::limiter) over: SmallVec<[u32; 2]>,
}

/// When a request that waits is to be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// At its turn.
    At(Timestamp),
    /// Not any more: its turn would come after the last moment at which answers are given.
    TooLate,
}

/// Hits that a request has in one counter.
#[derive(Clone, Debug)]
pub(in crate::limiter) struct QueuedHits {
    pub(in crate::limiter) key: Key,
    /// The limit under which they were counted.
    pub(in crate::limiter) limit: LimitId,
    pub(in crate::limiter) hits: u64,
    /// Where they are, in a leaky bucket.
    pub(in crate::limiter) position: Option<(LeakyBucket, Position)>,
    /// Whether they wait for their turn there: no shadow makes anybody wait, however full its bucket is.
    pub(in crate::limiter) waits: bool,
}

/// A request that waits.
pub(in crate::limiter) struct QueuedRequest {
    /// When it arrived.
    pub(in crate::limiter) arrived: Timestamp,
    /// One for each counter.
    pub(in crate::limiter) hits_of_counters: SmallVec<[QueuedHits; 1]>,
    /// Whom to tell that the turn has moved.
    waker: Option<Waker>,
}

impl QueuedRequest {
    fn turn(&self) -> Timestamp {
        let waits = self.hits_of_counters.iter().filter(|booking| booking.waits);
        let places = waits.filter_map(|booking| booking.position.as_ref());
        places.map(|(bucket, position)| bucket.release_at(*position)).max().unwrap_or(self.arrived)
    }
}

/// All who wait.
pub(in crate::limiter) struct Queues {
    /// The most requests that wait at once.
    requests_max: usize,
    /// No answer is given after this.
    ends: Option<Timestamp>,
    /// Tickets given out so far.
    tickets: u64,
    requests: HashMap<u64, QueuedRequest, FixedState>,
    /// By counter, the numbers of those whose hits are in it.
    lines: HashMap<Key, Vec<u64>, FixedState>,
}

impl Queues {
    /// Nobody waits, and no more than so many ever will.
    pub(in crate::limiter) fn new(requests_max: usize) -> Self {
        Self { requests_max, ends: None, tickets: 0, requests: HashMap::default(), lines: HashMap::default() }
    }

    /// Calls `visit` with every limit under which hits of queued requests were counted.
    pub(in crate::limiter) fn visit_limits(&self, visit: &mut dyn FnMut(LimitId)) {
        let hits = self.requests.values().flat_map(|request| &request.hits_of_counters);
        hits.for_each(|hits| visit(hits.limit));
    }

    /// Requests that wait.
    pub(in crate::limiter) fn len(&self) -> usize {
        self.requests.len()
    }

    /// How long one who comes now may wait at most; not at all if there is no room for one more.
    pub(in crate::limiter) fn wait_max(&self, now: Timestamp) -> Duration {
        if self.requests.len() >= self.requests_max {
            return Duration::ZERO;
        }
        self.ends.map_or(Duration::MAX, |ends| ends.since(now))
    }

    /// Lets a request wait behind those who wait for the same counters. There is room, and the hits_of_counters are in ascending
    /// order of their keys.
    pub(in crate::limiter) fn push(
        &mut self,
        arrived: Timestamp,
        hits_of_counters: SmallVec<[QueuedHits; 1]>,
        over: SmallVec<[u32; 2]>,
    ) -> Ticket {
        let number = self.tickets;
        self.tickets += 1;
        let keys: SmallVec<[Key; 2]> = hits_of_counters.iter().map(|booking| booking.key).collect();
        for &key in &keys {
            self.lines.entry(key).or_default().push(number);
        }
        self.requests.insert(number, QueuedRequest { arrived, hits_of_counters, waker: None });
        Ticket { number, keys, over }
    }

    /// When the request is to be answered; whoever waits for that is told if it changes.
    pub(in crate::limiter) fn due(&mut self, ticket: &Ticket, waker: &Waker) -> Due {
        let request = self.requests.get_mut(&ticket.number).expect(STILL_WAITS);
        match &mut request.waker {
            Some(former) => former.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        let turn = request.turn();
        if self.ends.is_some_and(|ends| turn > ends) { Due::TooLate } else { Due::At(turn) }
    }

    /// Takes a request out of its lines. Nobody moves by that alone.
    pub(in crate::limiter) fn remove(&mut self, ticket: &Ticket) -> QueuedRequest {
        for key in &ticket.keys {
            if let Some(line) = self.lines.get_mut(key) {
                line.retain(|&number| number != ticket.number);
                if line.is_empty() {
                    self.lines.remove(key);
                }
            }
        }
        self.requests.remove(&ticket.number).expect(STILL_WAITS)
    }

    /// `hits` were given back in a counter, before all who are in its line.
    pub(in crate::limiter) fn advance_all(&mut self, key: Key, hits: u64, woken: &mut Vec<Waker>) {
        self.advance_from(0, key, hits, woken);
    }

    /// `hits` of the request were given back in a counter, before those who arrived later.
    pub(in crate::limiter) fn advance_behind(
        &mut self,
        ticket: &Ticket,
        key: Key,
        hits: u64,
        woken: &mut Vec<Waker>,
    ) {
        self.advance_from(ticket.number + 1, key, hits, woken);
    }

    /// Collects those who are to be told, since they are not to be told under a lock.
    fn advance_from(&mut self, first: u64, key: Key, hits: u64, woken: &mut Vec<Waker>) {
        let Some(line) = self.lines.get(&key).filter(|_| hits > 0) else { return };
        for number in &line[line.partition_point(|&number| number < first)..] {
            let request = self.requests.get_mut(number).expect("who is in a line waits");
            let booking = request.hits_of_counters.iter_mut().find(|booking| booking.key == key);
            if let Some(QueuedHits { position: Some((bucket, position)), .. }) = booking {
                *position = bucket.advanced(*position, hits);
                woken.extend(request.waker.take());
            }
        }
    }

    /// From now on no answer is given after `ends`; collects all who wait, that they may ask whether theirs still is.
    pub(in crate::limiter) fn end(&mut self, ends: Timestamp, woken: &mut Vec<Waker>) {
        self.ends = Some(ends);
        woken.extend(self.requests.values_mut().filter_map(|request| request.waker.take()));
    }
}

/// Why there is a request for a ticket.
const STILL_WAITS: &str = "a ticket is given up with the wait that it stands for";
