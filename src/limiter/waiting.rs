//! Who waits for a turn, in which lines. Pure: no clock, no locks, no counters.
//!
//! A request that waits has booked its hits in every counter that it asked, and stands in the line of each. Its turn is the
//! latest of those that its places have. What always holds:
//!
//! - a line is in the order of coming, and so are the turns of its places;
//! - when hits before a place are given back, that place and all behind it move up by as much; no turn ever gets later;
//! - no more requests wait than may.

use crate::{
    algorithm::{LeakyBucket, Place},
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
    pub(super) keys: SmallVec<[Key; 2]>,
    /// Descriptors that are over and yet deny nothing, by index.
    pub(super) over: SmallVec<[u32; 2]>,
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
pub(super) struct Booking {
    pub(super) key: Key,
    /// The limit under which they were counted.
    pub(super) limit: LimitId,
    pub(super) hits: u64,
    /// Where they are, in a leaky bucket.
    pub(super) place: Option<(LeakyBucket, Place)>,
    /// Whether they wait for their turn there: no shadow makes anybody wait, however full its bucket is.
    pub(super) waits: bool,
}

/// A request that waits.
pub(super) struct Waiter {
    /// When it came.
    pub(super) came: Timestamp,
    /// One for each counter.
    pub(super) bookings: SmallVec<[Booking; 1]>,
    /// Whom to tell that the turn has moved.
    waker: Option<Waker>,
}

impl Waiter {
    fn turn(&self) -> Timestamp {
        let waits = self.bookings.iter().filter(|booking| booking.waits);
        let places = waits.filter_map(|booking| booking.place.as_ref());
        places.map(|(bucket, place)| bucket.turn_of(*place)).max().unwrap_or(self.came)
    }
}

/// All who wait.
pub(super) struct Waiting {
    /// The most requests that wait at once.
    requests_max: usize,
    /// No answer is given after this.
    ends: Option<Timestamp>,
    /// Tickets given out so far.
    tickets: u64,
    waiters: HashMap<u64, Waiter, FixedState>,
    /// By counter, the numbers of those whose hits are in it.
    lines: HashMap<Key, Vec<u64>, FixedState>,
}

impl Waiting {
    /// Nobody waits, and no more than so many ever will.
    pub(super) fn new(requests_max: usize) -> Self {
        Self { requests_max, ends: None, tickets: 0, waiters: HashMap::default(), lines: HashMap::default() }
    }

    /// Requests that wait.
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// How long one who comes now may wait at most; not at all if there is no room for one more.
    pub(super) fn patience(&self, now: Timestamp) -> Duration {
        if self.waiters.len() >= self.requests_max {
            return Duration::ZERO;
        }
        self.ends.map_or(Duration::MAX, |ends| ends.since(now))
    }

    /// Lets a request wait behind those who wait for the same counters. There is room, and the bookings are in ascending
    /// order of their keys.
    pub(super) fn enter(
        &mut self,
        came: Timestamp,
        bookings: SmallVec<[Booking; 1]>,
        over: SmallVec<[u32; 2]>,
    ) -> Ticket {
        let number = self.tickets;
        self.tickets += 1;
        let keys: SmallVec<[Key; 2]> = bookings.iter().map(|booking| booking.key).collect();
        for &key in &keys {
            self.lines.entry(key).or_default().push(number);
        }
        self.waiters.insert(number, Waiter { came, bookings, waker: None });
        Ticket { number, keys, over }
    }

    /// When the request is to be answered; whoever waits for that is told if it changes.
    pub(super) fn due(&mut self, ticket: &Ticket, waker: &Waker) -> Due {
        let waiter = self.waiters.get_mut(&ticket.number).expect(STILL_WAITS);
        match &mut waiter.waker {
            Some(former) => former.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        let turn = waiter.turn();
        if self.ends.is_some_and(|ends| turn > ends) { Due::TooLate } else { Due::At(turn) }
    }

    /// Takes a request out of its lines. Nobody moves by that alone.
    pub(super) fn leave(&mut self, ticket: &Ticket) -> Waiter {
        for key in &ticket.keys {
            if let Some(line) = self.lines.get_mut(key) {
                line.retain(|&number| number != ticket.number);
                if line.is_empty() {
                    self.lines.remove(key);
                }
            }
        }
        self.waiters.remove(&ticket.number).expect(STILL_WAITS)
    }

    /// `hits` were given back in a counter, before all who are in its line.
    pub(super) fn move_all_up(&mut self, key: Key, hits: u64, woken: &mut Vec<Waker>) {
        self.move_up_from(0, key, hits, woken);
    }

    /// `hits` of the request were given back in a counter, before those who came later.
    pub(super) fn move_up_behind(&mut self, ticket: &Ticket, key: Key, hits: u64, woken: &mut Vec<Waker>) {
        self.move_up_from(ticket.number + 1, key, hits, woken);
    }

    /// Collects those who are to be told, since they are not to be told under a lock.
    fn move_up_from(&mut self, first: u64, key: Key, hits: u64, woken: &mut Vec<Waker>) {
        let Some(line) = self.lines.get(&key).filter(|_| hits > 0) else { return };
        for number in &line[line.partition_point(|&number| number < first)..] {
            let waiter = self.waiters.get_mut(number).expect("who is in a line waits");
            let booking = waiter.bookings.iter_mut().find(|booking| booking.key == key);
            if let Some(Booking { place: Some((bucket, place)), .. }) = booking {
                *place = bucket.moved_up(*place, hits);
                woken.extend(waiter.waker.take());
            }
        }
    }

    /// From now on no answer is given after `ends`; collects all who wait, that they may ask whether theirs still is.
    pub(super) fn end(&mut self, ends: Timestamp, woken: &mut Vec<Waker>) {
        self.ends = Some(ends);
        woken.extend(self.waiters.values_mut().filter_map(|waiter| waiter.waker.take()));
    }
}

/// Why there is a waiter for a ticket.
const STILL_WAITS: &str = "a ticket is given up with the wait that it stands for";
