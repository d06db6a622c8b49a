//! Slots of requests in flight: the tickets that name them, and releases by ticket.
//!
//! A ticket is the id of the slots that one request took, and the keys of their counters. The id is a keyed hash: a client
//! that chooses descriptors cannot release the slots of another. Nothing is kept for a ticket besides its slots.
//!
//! A descriptor with an entry `slot` whose value is a ticket is a release, in domains that have a limit of requests in flight; it
//! is no charge, whatever its other entries are. Releases of a request come before its charges. Each counter of a ticket is
//! released under its own lock: two are not changed at one moment, which only frees the second a little later.

use super::Limiter;
use crate::{
    algorithm::{Algorithm, Concurrency, Released, State},
    limit::{Descriptor, GrantedSlot, Hits, Request, Timestamp},
    store::{Fingerprint, Key, Seed, Store},
    sync::AtomicU64,
};
use smallvec::SmallVec;
use std::{fmt::Write, sync::atomic::Ordering, task::Waker};

/// The key of the entry that has a ticket.
const SLOT: &str = "slot";

/// The beginning of the text of a ticket.
const PREFIX: &str = "slot-";

/// Hexadecimal digits of an id, and of half a key.
const DIGITS: usize = 16;

/// Stands in the place of a tag where ids are hashed. Tags have 32 bits.
const ID: u64 = 1 << 34;

/// The slots that one request took.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SlotTicket {
    id: u64,
    /// Of the counters.
    keys: SmallVec<[Key; 2]>,
}

impl SlotTicket {
    fn text(&self) -> Box<str> {
        let mut text = format!("{PREFIX}{:016x}", self.id);
        for (high, low) in self.keys.iter().map(|key| key.halves()) {
            write!(text, "{high:016x}{low:016x}").expect("a string accepts all texts");
        }
        text.into()
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?.as_bytes();
        let (chunks, rest) = digits.as_chunks::<DIGITS>();
        let (id, keys) = chunks.split_first()?;
        let (keys, odd) = keys.as_chunks::<2>();
        let is_whole = rest.is_empty() && odd.is_empty() && !keys.is_empty();
        let keys = keys.iter().map(|[high, low]| Some(Key::from_halves(number(high)?, number(low)?)));
        let keys: Option<_> = if is_whole { keys.collect() } else { None };
        Some(Self { id: number(id)?, keys: keys? })
    }
}

/// The number of lower-case hexadecimal digits.
fn number(digits: &[u8; DIGITS]) -> Option<u64> {
    digits.iter().try_fold(0, |number: u64, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(value))
    })
}

/// The ticket of a descriptor that is a release.
fn ticket_of(descriptor: &Descriptor<'_>) -> Option<SlotTicket> {
    let entry = descriptor.entries.iter().rev().find(|entry| entry.key == SLOT)?;
    SlotTicket::parse(entry.value)
}

/// Whether a descriptor releases slots, in a domain that has a limit of requests in flight.
pub(super) fn is_release(descriptor: &Descriptor<'_>) -> bool {
    ticket_of(descriptor).is_some()
}

/// Makes ids, and counts what becomes of slots.
pub(super) struct SlotSource {
    /// The hash of ids, with the secret.
    ids: Fingerprint,
    sequence: AtomicU64,
    taken: AtomicU64,
    released: AtomicU64,
    unknown: AtomicU64,
    expired: AtomicU64,
}

/// Numbers of slots since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotCounts {
    /// Slots that requests took: one for each of their limits of requests in flight.
    pub taken: u64,
    /// Releases of a slot that was held, or of a part of it.
    pub released: u64,
    /// Releases of a slot that was not held: released before, past its deadline, or never taken.
    pub unknown: u64,
    /// Slots past their deadlines when their counter was used again.
    pub expired: u64,
}

impl SlotSource {
    pub(super) fn new(seed: &Seed) -> Self {
        let mut ids = Fingerprint::new(seed);
        ids.number(ID);
        let [sequence, taken, released, unknown, expired] = std::array::from_fn(|_| AtomicU64::new(0));
        Self { ids, sequence, taken, released, unknown, expired }
    }

    /// An id that no other slot has, and that nobody can guess; never 0. Of two processes with the same secret, the times differ.
    fn next_id(&self, now: Timestamp) -> u64 {
        let mut id = self.ids;
        id.number(now.as_nanos());
        id.number(self.sequence.fetch_add(1, Ordering::Relaxed));
        id.finish().halves().0.max(1)
    }
}

/// The slots that a request takes, while it is decided.
pub(super) struct SlotCharges<'d> {
    source: Option<&'d SlotSource>,
    id: u64,
    keys: SmallVec<[Key; 2]>,
    /// The most hits of one slot.
    cost: u64,
}

impl<'d> SlotCharges<'d> {
    /// With slots of this source; without one, slots end by their deadlines only.
    pub(super) fn new(source: Option<&'d SlotSource>) -> Self {
        Self { source, id: 0, keys: SmallVec::new(), cost: 0 }
    }

    /// Charges hits of an admitted request to a counter.
    pub(super) fn take(
        &mut self,
        concurrency: &Concurrency,
        (key, state): (Key, State),
        hits: u64,
        now: Timestamp,
    ) -> State {
        if let (0, Some(source)) = (self.id, self.source) {
            self.id = source.next_id(now);
        }
        let (state, expired) = concurrency.take(state, self.id, hits, now);
        self.keys.push(key);
        self.cost = self.cost.max(hits);
        if let Some(source) = self.source {
            source.taken.fetch_add(1, Ordering::Relaxed);
            source.expired.fetch_add(expired as u64, Ordering::Relaxed);
        }
        state
    }

    /// The slots that were taken; none if there are none.
    pub(super) fn taken(self) -> Option<TakenSlots> {
        let Self { id, keys, cost, .. } = self;
        (id > 0 && !keys.is_empty()).then_some(TakenSlots { ticket: SlotTicket { id, keys }, cost })
    }
}

/// The slots that a request has taken.
pub(super) struct TakenSlots {
    ticket: SlotTicket,
    cost: u64,
}

impl TakenSlots {
    /// The slots as the response has them. Allocates: called when no lock is held.
    pub(super) fn granted(self) -> Box<GrantedSlot> {
        Box::new(GrantedSlot { ticket: self.ticket.text(), cost: self.cost })
    }
}

impl Limiter {
    /// Makes the releases of a request. A peek releases nothing; negative hits release as many of each slot, others all of it.
    pub(super) fn release_named(&self, request: &Request<'_>, now: Timestamp) {
        if request.is_check() {
            return;
        }
        for descriptor in request.descriptors() {
            let hits = match descriptor.hits {
                Hits::Peek => continue,
                Hits::Take(_) => None,
                Hits::GiveBack(hits) => Some(hits.get()),
            };
            if let Some(ticket) = ticket_of(descriptor) {
                self.release_ticket(&ticket, hits, now);
            }
        }
    }

    /// Releases the slots of a ticket, for a request that ended without a release of its own; false if none of them was held.
    pub fn release_slots(&self, ticket: &str, now: Timestamp) -> bool {
        SlotTicket::parse(ticket).is_some_and(|ticket| self.release_ticket(&ticket, None, now))
    }

    fn release_ticket(&self, ticket: &SlotTicket, hits: Option<u64>, now: Timestamp) -> bool {
        let mut is_any_held = false;
        for &key in &ticket.keys {
            let is_held = self.release_one(key, ticket.id, hits, now);
            let counted = if is_held { &self.slots.released } else { &self.slots.unknown };
            counted.fetch_add(1, Ordering::Relaxed);
            is_any_held |= is_held;
        }
        is_any_held
    }

    fn release_one(&self, key: Key, id: u64, hits: Option<u64>, now: Timestamp) -> bool {
        let mut woken = Vec::new();
        let mut shard = self.store.lock(Store::shard_of(key));
        let Some(slot) = shard.find(key) else { return false };
        let has_it = shard.get(slot).state().slots().is_some_and(|slots| slots.has(id));
        // A page that did not change is not written by the next snapshot.
        if !has_it {
            return false;
        }
        let counter = shard.get_mut(slot);
        let (limit, mut state) = (counter.limit(), counter.take_state());
        let (released, expired) = state.release_slot(id, hits, now);
        let expires = state.slots().map_or(Timestamp::EPOCH, |slots| slots.expires());
        counter.set(state, limit, expires);
        self.slots.expired.fetch_add(expired as u64, Ordering::Relaxed);
        if let Some(mut queues) = self.slot_queues() {
            queues.call_first(key, &mut woken);
        }
        drop(shard);
        woken.into_iter().for_each(Waker::wake);
        released != Released::Unknown
    }

    /// What became of slots so far.
    pub fn slot_counts(&self) -> SlotCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let SlotSource { taken, released, unknown, expired, .. } = &self.slots;
        SlotCounts {
            taken: count(taken),
            released: count(released),
            unknown: count(unknown),
            expired: count(expired),
        }
    }
}

impl Algorithm {
    /// The limit of requests in flight, if it is one.
    pub(super) fn concurrency(&self) -> Option<&Concurrency> {
        if let Self::Concurrency(concurrency) = self { Some(concurrency) } else { None }
    }
}
