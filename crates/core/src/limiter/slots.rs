//! Slots of requests in flight, and reservations: the tickets that name them, and releases by ticket.
//!
//! A ticket is the id of the slots that one request took, and of the estimates that it was charged, and the keys of their counters. The id is a keyed hash: a client
//! that chooses descriptors cannot release the slots of another. Nothing is kept for a ticket besides its slots and
//! reservations.
//!
//! A descriptor with an entry `slot` whose value is a ticket is a release, in domains whose rules give tickets; it
//! is no charge, whatever its other entries are. Its hits are the actual cost, in the place of the estimates. Releases of a request come before its charges. Each counter of a ticket is
//! released under its own lock: two are not changed at one moment, which only frees the second a little later.
//!
//! A ticket states of each counter whether it is in a shared store, and its group there. Every server of the store can release it.

use super::{
    keys::GROUPS,
    plan::HitSum,
    reservations::Reservations,
    slot_figures::FiguresByLimit,
    status::{apply, give_back},
};
use crate::{
    algorithm::{Algorithm, Concurrency, Reservation, Standing, State},
    limit::{Descriptor, Entry, GrantedSlot, Hits, LimitId, Timestamp},
    rules::{LimitTable, Reserve, RuleLimit},
    store::{Fingerprint, Key, Seed},
    sync::AtomicU64,
};
use smallvec::SmallVec;
use std::{fmt::Write, sync::atomic::Ordering};

/// The key of the entry that has a ticket.
const SLOT: &str = "slot";

/// The key of the entry that has the ticket of a renewal.
const RENEW: &str = "renew";

/// The beginning of the text of a ticket.
const PREFIX: &str = "slot-";

/// Hexadecimal digits of an id, and of half a key.
const DIGITS: usize = 16;

/// Stands before the group and the key of a counter in a shared store.
const STORED: u8 = b's';

/// Stands before the key of a counter with a reservation.
const RESERVED: u8 = b'r';

/// The same, before the number of times that each of its hits counts.
const WEIGHED: u8 = b'w';

/// Stands before the group and the key of a counter with a reservation in a shared store.
const STORED_RESERVED: u8 = b't';

/// Hexadecimal digits of the times that a hit counts.
const WEIGHT_DIGITS: usize = 8;

/// Hexadecimal digits of a group.
const GROUP_DIGITS: usize = 3;

/// Stands in the place of a tag where ids are hashed. Tags have 32 bits.
const ID: u64 = 1 << 34;

/// The slots that one request took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SlotTicket {
    pub(super) id: u64,
    /// Of the counters in this process.
    pub(super) keys: SmallVec<[Key; 2]>,
    /// Of those with reservations, each with the number of times that a hit of the request counts there.
    pub(super) reserved: SmallVec<[(u32, Key); 1]>,
    /// Of those in a shared store, each with its group.
    stored: SmallVec<[(u16, Key); 1]>,
    /// Of those with reservations there.
    stored_reserved: SmallVec<[(u16, Key); 1]>,
}

/// Slots and reservations in a shared store, to be released and ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotRelease {
    /// Their id.
    pub id: u64,
    /// The hits of the release. Negative ones are those at most of each slot, all others for all of them; of reservations they are the
    /// actual cost, or by how much the estimate is above it.
    pub hits: Hits,
    /// The counters of slots, each with its group.
    pub slots: SmallVec<[(u16, Key); 1]>,
    /// Those of reservations.
    pub reserved: SmallVec<[(u16, Key); 1]>,
}

impl SlotRelease {
    /// What a ticket names in a shared store, if anything, of a request that was cancelled at its start: slots are released, and estimates
    /// returned.
    pub fn of_ticket(ticket: &str) -> Option<Self> {
        SlotTicket::parse(ticket)?.in_store(Hits::Peek)
    }
}

impl SlotTicket {
    fn new(id: u64) -> Self {
        let (stored, stored_reserved) = (SmallVec::new(), SmallVec::new());
        Self { id, keys: SmallVec::new(), reserved: SmallVec::new(), stored, stored_reserved }
    }

    pub(super) fn text(&self) -> Box<str> {
        let mut text = format!("{PREFIX}{:016x}", self.id);
        let keys = self.keys.iter().map(|key| (String::new(), key));
        let reserved = self.reserved.iter().map(|(weight, key)| match weight {
            1 => (char::from(RESERVED).to_string(), key),
            weight => (format!("{}{weight:08x}", char::from(WEIGHED)), key),
        });
        let in_store = |mark: u8| move |(group, key)| (format!("{}{group:03x}", char::from(mark)), key);
        let stored = self.stored.iter().map(|(group, key)| (group, key)).map(in_store(STORED));
        let stored_reserved = self.stored_reserved.iter().map(|(group, key)| (group, key));
        let stored = stored.chain(stored_reserved.map(in_store(STORED_RESERVED)));
        for (mark, key) in keys.chain(reserved).chain(stored) {
            let (high, low) = key.halves();
            write!(text, "{mark}{high:016x}{low:016x}").expect("a string accepts all texts");
        }
        text.into()
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (id, rest) = text.strip_prefix(PREFIX)?.as_bytes().split_at_checked(DIGITS)?;
        let mut ticket = Self::new(number(id)?);
        let mut digits = Digits(rest);
        while let Some(&first) = digits.0.first() {
            if matches!(first, RESERVED | WEIGHED | STORED | STORED_RESERVED) {
                digits.0 = &digits.0[1..];
            }
            match first {
                RESERVED => ticket.reserved.push((1, digits.key()?)),
                WEIGHED => {
                    let weight = u32::try_from(digits.next(WEIGHT_DIGITS)?).ok()?;
                    ticket.reserved.push((weight, digits.key()?));
                }
                STORED => ticket.stored.push((digits.group()?, digits.key()?)),
                STORED_RESERVED => ticket.stored_reserved.push((digits.group()?, digits.key()?)),
                _ => ticket.keys.push(digits.key()?),
            }
        }
        let has_counters = !ticket.keys.is_empty() || !ticket.reserved.is_empty() || ticket.is_stored();
        has_counters.then_some(ticket)
    }

    /// Whether it names counters in a shared store.
    pub(super) fn is_stored(&self) -> bool {
        !(self.stored.is_empty() && self.stored_reserved.is_empty())
    }

    /// Numbers of the slots and the reservations that it names.
    pub(super) fn numbers(&self) -> [usize; 2] {
        [self.keys.len() + self.stored.len(), self.reserved.len() + self.stored_reserved.len()]
    }

    /// Whether it names a counter of this process.
    pub(super) fn names(&self, key: Key) -> bool {
        self.keys.contains(&key) || self.reserved.iter().any(|(_, reserved)| *reserved == key)
    }

    /// Whether it names reservations.
    pub(super) fn reserves(&self) -> bool {
        !(self.reserved.is_empty() && self.stored_reserved.is_empty())
    }

    /// The release of what is in a shared store, if anything is.
    pub(super) fn in_store(self, hits: Hits) -> Option<SlotRelease> {
        let is_stored = self.is_stored();
        let Self { id, stored: slots, stored_reserved: reserved, .. } = self;
        is_stored.then_some(SlotRelease { id, hits, slots, reserved })
    }
}

/// The rest of the text of a ticket.
struct Digits<'t>(&'t [u8]);

impl Digits<'_> {
    fn next(&mut self, length: usize) -> Option<u64> {
        let (digits, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        number(digits)
    }

    fn key(&mut self) -> Option<Key> {
        Some(Key::from_halves(self.next(DIGITS)?, self.next(DIGITS)?))
    }

    fn group(&mut self) -> Option<u16> {
        u16::try_from(self.next(GROUP_DIGITS)?).ok().filter(|group| *group < GROUPS)
    }
}

/// The ticket of the slots alone, without the reservations; none if it has no slots.
pub fn slots_of_ticket(ticket: &str) -> Option<Box<str>> {
    let (reserved, stored_reserved) = (SmallVec::new(), SmallVec::new());
    let slots = SlotTicket { reserved, stored_reserved, ..SlotTicket::parse(ticket)? };
    let has_slots = !(slots.keys.is_empty() && slots.stored.is_empty());
    has_slots.then(|| slots.text())
}

/// The number of lower-case hexadecimal digits.
fn number(digits: &[u8]) -> Option<u64> {
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
pub(super) fn ticket_of(descriptor: &Descriptor<'_>) -> Option<SlotTicket> {
    let entry = descriptor.entries.iter().rev().find(|entry| entry.key == SLOT)?;
    SlotTicket::parse(entry.value)
}

/// The ticket of a descriptor that is a renewal, with its text. One with a ticket to be released is none.
pub(super) fn renewal_of<'t>(descriptor: &Descriptor<'t>) -> Option<(SlotTicket, &'t str)> {
    let entry = descriptor.entries.iter().rev().find(|entry| entry.key == RENEW)?;
    let ticket = SlotTicket::parse(entry.value)?;
    ticket_of(descriptor).is_none().then_some((ticket, entry.value))
}

/// The entries of a renewal besides its ticket: those of the request that has it.
pub(super) fn renewed_entries<'t>(descriptor: &Descriptor<'t>) -> SmallVec<[Entry<'t>; 3]> {
    descriptor.entries.iter().copied().filter(|entry| entry.key != RENEW).collect()
}

/// Whether a descriptor is a release or a renewal of what is in a shared store, in a domain whose rules give tickets.
pub(super) fn names_stored_ticket(descriptor: &Descriptor<'_>) -> bool {
    let renewed = || renewal_of(descriptor).map(|(ticket, _)| ticket);
    ticket_of(descriptor).or_else(renewed).is_some_and(|ticket| ticket.is_stored())
}

/// Whether a descriptor is a release or a renewal, in a domain whose rules give tickets. It is charged nothing.
pub(super) fn names_ticket(descriptor: &Descriptor<'_>) -> bool {
    ticket_of(descriptor).is_some() || renewal_of(descriptor).is_some()
}

/// Makes ids, and counts what becomes of slots.
pub(super) struct SlotSource {
    /// The hash of ids, with the secret.
    ids: Fingerprint,
    sequence: AtomicU64,
    pub(super) taken: AtomicU64,
    pub(super) released: AtomicU64,
    pub(super) unknown: AtomicU64,
    pub(super) renewed: AtomicU64,
    pub(super) unknown_renewals: AtomicU64,
    expired: AtomicU64,
    pub(super) figures: FiguresByLimit,
    pub(super) reservations: Reservations,
}

/// Numbers of slots since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotCounts {
    /// Slots that requests took: one for each of their limits of requests in flight.
    pub taken: u64,
    /// Releases of a slot that was owned, or of a part of it.
    pub released: u64,
    /// Releases of a slot that was not owned: released before, past its deadline, or never taken.
    pub unknown: u64,
    /// Renewals of a slot that was owned.
    pub renewed: u64,
    /// Renewals of one that was not.
    pub unknown_renewals: u64,
    /// Slots that were not released before their deadlines: counted when their counter is used again, or dropped.
    pub expired: u64,
}

impl SlotSource {
    /// Of limits with the numbers of this table.
    pub(super) fn new(seed: &Seed, limits: LimitTable) -> Self {
        let mut ids = Fingerprint::new(seed);
        ids.number(ID);
        let [sequence, taken, released, unknown, renewed, unknown_renewals, expired] =
            std::array::from_fn(|_| AtomicU64::new(0));
        let (figures, reservations) = (FiguresByLimit::new(limits), Reservations::new());
        Self {
            ids,
            sequence,
            taken,
            released,
            unknown,
            renewed,
            unknown_renewals,
            expired,
            figures,
            reservations,
        }
    }

    /// Counts slots of a limit that have passed their deadlines.
    #[inline]
    pub(super) fn count_expired(&self, limit: LimitId, slots: u64) {
        if slots > 0 {
            self.expired.fetch_add(slots, Ordering::Relaxed);
            self.figures.count_expired(limit, slots);
        }
    }

    /// Numbers since the start.
    pub(super) fn counts(&self) -> SlotCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Self { taken, released, unknown, renewed, unknown_renewals, expired, .. } = self;
        SlotCounts {
            taken: count(taken),
            released: count(released),
            unknown: count(unknown),
            renewed: count(renewed),
            unknown_renewals: count(unknown_renewals),
            expired: count(expired),
        }
    }

    /// An id that no other slot has, and that nobody can guess; never 0. Of two processes with the same secret, the times differ.
    pub(super) fn next_id(&self, now: Timestamp) -> u64 {
        let mut id = self.ids;
        id.number(now.as_nanos());
        id.number(self.sequence.fetch_add(1, Ordering::Relaxed));
        id.finish().halves().0.max(1)
    }
}

/// The counters of a shared store in which a request takes slots or reserves, each with its group.
#[derive(Default)]
pub(super) struct StoredCharges {
    /// The id of the slots and reservations; 0 if there are none.
    pub(super) id: u64,
    pub(super) slots: SmallVec<[(u16, Key); 1]>,
    pub(super) reserved: SmallVec<[(u16, Key); 1]>,
}

/// The slots that a request takes and its reservations, while it is decided.
pub(super) struct SlotCharges<'d> {
    source: &'d SlotSource,
    id: u64,
    keys: SmallVec<[Key; 2]>,
    /// The counters with reservations.
    reserved: SmallVec<[Key; 1]>,
    /// The counters that are in a shared store.
    stored: Option<&'d StoredCharges>,
    /// The most hits of one slot or reservation.
    cost: u64,
}

impl<'d> SlotCharges<'d> {
    /// With ids of this source.
    #[inline]
    pub(super) fn new(source: &'d SlotSource) -> Self {
        Self { source, id: 0, keys: SmallVec::new(), reserved: SmallVec::new(), stored: None, cost: 0 }
    }

    /// The same with some in counters of a shared store, which has taken them.
    pub(super) fn in_store(source: &'d SlotSource, stored: &'d StoredCharges) -> Self {
        Self { id: stored.id, stored: Some(stored), ..Self::new(source) }
    }

    /// Changes a counter of a limit of requests in flight, or of one that reserves.
    #[cold]
    pub(super) fn apply(
        &mut self,
        counted: HitSum,
        (limit, reserve): (&RuleLimit, Option<Reserve>),
        (key, state): (Key, State),
        now: Timestamp,
    ) -> Standing {
        let state = match (&limit.algorithm, reserve) {
            (Algorithm::Concurrency(concurrency), _) => {
                self.take((limit.id, concurrency), (key, state), counted.taken, now)
            }
            (algorithm, Some(reserve)) => {
                let state = give_back(counted.given, algorithm, state, now);
                self.reserve(algorithm, reserve, (key, state), counted.taken, now)
            }
            (algorithm, None) => return apply(counted, algorithm, state, now),
        };
        limit.algorithm.standing(state, now)
    }

    /// Charges hits of an admitted request to a counter.
    fn take(
        &mut self,
        (limit, concurrency): (LimitId, &Concurrency),
        (key, state): (Key, State),
        hits: u64,
        now: Timestamp,
    ) -> State {
        if self.id == 0 {
            self.id = self.source.next_id(now);
        }
        let (state, expired) = concurrency.take(state, self.id, hits, now);
        self.keys.push(key);
        self.cost = self.cost.max(hits);
        self.source.taken.fetch_add(1, Ordering::Relaxed);
        self.source.count_expired(limit, expired as u64);
        state
    }

    /// Charges the estimate of an admitted request to a counter. Without room for a reservation, it stays.
    fn reserve(
        &mut self,
        algorithm: &Algorithm,
        Reserve { max_hold, returns, .. }: Reserve,
        (key, state): (Key, State),
        hits: u64,
        now: Timestamp,
    ) -> State {
        if hits == 0 {
            return state;
        }
        let reservations = &self.source.reservations;
        let deadline = now.saturating_add_nanos(max_hold.nanos().get());
        // A store has bounds of its own.
        let is_stored =
            self.stored.is_some_and(|stored| stored.reserved.iter().any(|(_, stored)| *stored == key));
        if !is_stored && !reservations.start(deadline, now) {
            reservations.uncorrected.fetch_add(1, Ordering::Relaxed);
            return algorithm.add(state, hits, now);
        }
        if self.id == 0 {
            self.id = self.source.next_id(now);
        }
        let estimate = u32::try_from(hits).unwrap_or(u32::MAX);
        let reservation = Reservation { id: self.id, hits: estimate, deadline, returns };
        let (state, reserved) = algorithm.reserve(state, reservation, now);
        match reserved {
            Some(lost) => {
                self.reserved.push(key);
                self.cost = self.cost.max(hits);
                reservations.started.fetch_add(1, Ordering::Relaxed);
                reservations.lost.fetch_add(lost as u64, Ordering::Relaxed);
            }
            None => {
                if !is_stored {
                    reservations.end(deadline);
                }
                reservations.uncorrected.fetch_add(1, Ordering::Relaxed);
            }
        }
        state
    }

    /// The slots that were taken, and the reservations; none if there are none.
    #[inline]
    pub(super) fn taken(self) -> Option<TakenSlots> {
        if self.keys.is_empty() && self.reserved.is_empty() { None } else { Some(self.into_taken()) }
    }

    #[cold]
    fn into_taken(self) -> TakenSlots {
        let Self { id, keys, reserved, stored, cost, .. } = self;
        let mut ticket = SlotTicket::new(id);
        let find = |stored: &[(u16, Key)], key| stored.iter().copied().find(|(_, stored)| *stored == key);
        for key in keys {
            match stored.and_then(|stored| find(&stored.slots, key)) {
                Some(in_store) => ticket.stored.push(in_store),
                None => ticket.keys.push(key),
            }
        }
        for key in reserved {
            match stored.and_then(|stored| find(&stored.reserved, key)) {
                Some(in_store) => ticket.stored_reserved.push(in_store),
                None => ticket.reserved.push((1, key)),
            }
        }
        TakenSlots { ticket, cost }
    }
}

/// The slots that a request has taken.
pub(super) struct TakenSlots {
    ticket: SlotTicket,
    cost: u64,
}

impl TakenSlots {
    /// The slots as the response has them. Allocates: called when no lock is owned.
    pub(super) fn granted(self) -> Box<GrantedSlot> {
        Box::new(GrantedSlot { ticket: self.ticket.text(), cost: self.cost })
    }
}

impl Algorithm {
    /// The limit of requests in flight, if it is one.
    pub(super) fn concurrency(&self) -> Option<&Concurrency> {
        if let Self::Concurrency(concurrency) = self { Some(concurrency) } else { None }
    }
}
