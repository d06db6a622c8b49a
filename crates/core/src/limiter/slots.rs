//! Slots of requests in flight, and reservations: what a request took, by its ticket.
//!
//! The id of a ticket is a keyed hash: a client that chooses descriptors cannot release the slots of another. Nothing is kept for a ticket
//! besides its slots and reservations.
//!
//! The hits of a release are the actual cost, instead of the estimates. Releases of a request precede its charges. Each counter of a ticket
//! is released under its own lock: they do not change at one moment, so the second is freed a little later.

use super::{
    hit_sum::HitSum,
    reservations::Reservations,
    slot_figures::FiguresByLimit,
    status::{apply, give_back},
    ticket::Ticket,
};
use crate::{
    algorithm::{Algorithm, Concurrency, Reservation, Standing, State},
    limit::{GrantedSlot, LimitId, Timestamp},
    rules::{LimitTable, Reserve, RuleLimit},
    store::{Fingerprint, Key, Seed},
    sync::AtomicU64,
};
use smallvec::SmallVec;
use std::{sync::atomic::Ordering, time::Duration};

/// Stands instead of a tag where ids are hashed. Tags have 32 bits.
const ID: u64 = 1 << 34;

/// Makes ids, and counts what becomes of slots.
pub(super) struct SlotSource {
    /// The hash of ids, with the secret.
    ids: Fingerprint,
    sequence: AtomicU64,
    pub(super) numbers: SlotCounts<AtomicU64>,
    pub(super) figures: FiguresByLimit,
    pub(super) reservations: Reservations,
}

/// Numbers of slots since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotCounts<N = u64> {
    /// Slots that requests took: one for each of their limits of requests in flight.
    pub taken: N,
    /// Releases of a slot that was owned, or of a part of it.
    pub released: N,
    /// Releases of a slot that was not owned: released before, past its deadline, or never taken.
    pub unknown: N,
    /// Renewals of a slot that was owned.
    pub renewed: N,
    /// Renewals of a slot that was not owned.
    pub unknown_renewals: N,
    /// Slots that were not released before their deadlines: counted when their counter is used again, or dropped.
    pub expired: N,
}

impl<N> SlotCounts<N> {
    fn map<M>(&self, of: impl Fn(&N) -> M) -> SlotCounts<M> {
        let Self { taken, released, unknown, renewed, unknown_renewals, expired } = self;
        SlotCounts {
            taken: of(taken),
            released: of(released),
            unknown: of(unknown),
            renewed: of(renewed),
            unknown_renewals: of(unknown_renewals),
            expired: of(expired),
        }
    }
}

impl SlotSource {
    /// For limits with the numbers of this table.
    pub(super) fn new(seed: &Seed, limits: LimitTable) -> Self {
        let mut ids = Fingerprint::new(seed);
        ids.number(ID);
        let numbers = SlotCounts::<u64>::default().map(|_| AtomicU64::new(0));
        let (figures, reservations) = (FiguresByLimit::new(limits), Reservations::new());
        Self { ids, sequence: AtomicU64::new(0), numbers, figures, reservations }
    }

    /// Counts slots of a limit that have passed their deadlines.
    #[inline]
    pub(super) fn count_expired(&self, limit: LimitId, slots: u64) {
        if slots > 0 {
            self.numbers.expired.fetch_add(slots, Ordering::Relaxed);
            self.figures.count_expired(limit, slots);
        }
    }

    /// Numbers since the start.
    pub(super) fn counts(&self) -> SlotCounts {
        self.numbers.map(|number| number.load(Ordering::Relaxed))
    }

    /// A unique id that nobody can guess; never 0. Two processes with the same secret have different times.
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

/// Slots and reservations that a request takes, while it is decided.
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
    /// The shortest `max_hold` of these, in nanoseconds.
    hold: u64,
}

impl<'d> SlotCharges<'d> {
    /// Without slots; ids are from this source.
    #[inline]
    pub(super) fn new(source: &'d SlotSource) -> Self {
        let (keys, reserved) = (SmallVec::new(), SmallVec::new());
        Self { source, id: 0, keys, reserved, stored: None, cost: 0, hold: u64::MAX }
    }

    /// As [`Self::new`], with those that a shared store has taken.
    pub(super) fn in_store(source: &'d SlotSource, stored: &'d StoredCharges) -> Self {
        Self { id: stored.id, stored: Some(stored), ..Self::new(source) }
    }

    /// Changes a counter whose limit counts requests in flight, or reserves.
    #[cold]
    pub(super) fn apply(
        &mut self,
        counted: HitSum,
        (limit, reserve): (&RuleLimit, Option<Reserve>),
        (key, state): (Key, State),
        now: Timestamp,
    ) -> Standing {
        let algorithm = &limit.algorithm;
        let state = match (algorithm.concurrency(), reserve) {
            (Some(concurrency), _) => self.take((limit.id, concurrency), (key, state), counted.taken, now),
            (None, Some(reserve)) => {
                let state = give_back(counted.given, algorithm, state, now);
                self.reserve(algorithm, reserve, (key, state), counted.taken, now)
            }
            (None, None) => return apply(counted, algorithm, state, now),
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
        self.hold = self.hold.min(concurrency.max_hold.nanos().get());
        self.source.numbers.taken.fetch_add(1, Ordering::Relaxed);
        self.source.count_expired(limit, expired as u64);
        state
    }

    /// Charges the estimate of an admitted request to a counter. Without room for a reservation, no end corrects it.
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
        // A store has its own bounds.
        let is_stored =
            self.stored.is_some_and(|stored| stored.reserved.iter().any(|(_, stored)| *stored == key));
        if !is_stored && !reservations.start(deadline, now) {
            reservations.numbers.uncorrected.fetch_add(1, Ordering::Relaxed);
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
                self.hold = self.hold.min(max_hold.nanos().get());
                reservations.numbers.started.fetch_add(1, Ordering::Relaxed);
                reservations.numbers.lost.fetch_add(lost as u64, Ordering::Relaxed);
            }
            None => {
                if !is_stored {
                    reservations.end(deadline);
                }
                reservations.numbers.uncorrected.fetch_add(1, Ordering::Relaxed);
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
        let Self { id, keys, reserved, stored, cost, hold, .. } = self;
        let mut ticket = Ticket::new(id);
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
        TakenSlots { ticket, cost, hold: Duration::from_nanos(hold) }
    }
}

/// The slots that a request has taken.
pub(super) struct TakenSlots {
    ticket: Ticket,
    cost: u64,
    hold: Duration,
}

impl TakenSlots {
    /// The slots as the response has them. Allocates: called when no lock is owned.
    pub(super) fn granted(self) -> Box<GrantedSlot> {
        Box::new(GrantedSlot { ticket: self.ticket.text(), cost: self.cost, hold: self.hold })
    }
}
