//! Slots of requests in flight, and reservations: what a request took, by its ticket.
//!
//! The id of a ticket is a keyed hash: a client that chooses descriptors cannot release the slots of another. Nothing is kept for a ticket
//! besides its slots and reservations.
//!
//! The hits of a release are the actual cost, instead of the estimates. Releases of a request precede its charges. Each counter of a ticket
//! is released under its own lock: they do not change at one moment, so the second is freed a little later.

use super::{
    hit_sum::HitSum,
    reservations::OpenReservations,
    slot_figures::FiguresByLimit,
    status::{apply, give_back},
    ticket::{Held, HeldKind, StoredHeld, Ticket},
    ticket_counts::TicketCounts,
};
use crate::{
    algorithm::{Algorithm, Concurrency, Reservation, Standing, State},
    limit::{GrantedSlot, LimitId, Timestamp, Window},
    rules::{LimitTable, Reserve, RuleLimit},
    store::{Fingerprint, Key, Seed},
    sync::{AtomicU64, Mutex},
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
    /// By [`HeldKind`].
    counts: [TicketCounts<AtomicU64>; 2],
    pub(super) figures: FiguresByLimit,
    pub(super) open: Mutex<OpenReservations>,
}

impl SlotSource {
    /// For limits with the numbers of this table.
    pub(super) fn new(seed: &Seed, limits: LimitTable) -> Self {
        let mut ids = Fingerprint::new(seed);
        ids.number(ID);
        let (figures, open) = (FiguresByLimit::new(limits), Mutex::new(OpenReservations::new()));
        Self { ids, sequence: AtomicU64::new(0), counts: Default::default(), figures, open }
    }

    /// Numbers of slots, or of reservations.
    pub(super) fn counts_of(&self, kind: HeldKind) -> &TicketCounts<AtomicU64> {
        &self.counts[kind as usize]
    }

    /// Counts slots of a limit that have passed their deadlines.
    #[inline]
    pub(super) fn count_expired(&self, limit: LimitId, slots: u64) {
        if slots > 0 {
            self.counts_of(HeldKind::Slot).expired.fetch_add(slots, Ordering::Relaxed);
            self.figures.count_expired(limit, slots);
        }
    }

    /// An unguessable unique id; never 0. Two processes with the same secret have different times.
    pub(super) fn next_id(&self, now: Timestamp) -> u64 {
        let mut id = self.ids;
        id.number(now.as_nanos());
        id.number(self.sequence.fetch_add(1, Ordering::Relaxed));
        id.finish().halves().0.max(1)
    }
}

/// The slots and reservations that a request takes in a shared store.
#[derive(Default)]
pub(super) struct StoredCharges {
    /// Their id; 0 if there are none.
    pub(super) id: u64,
    pub(super) held: StoredHeld,
}

/// Slots and reservations that a request takes, while it is decided.
pub(super) struct SlotCharges<'d> {
    source: &'d SlotSource,
    id: u64,
    held: SmallVec<[Held; 2]>,
    /// Those that it takes in a shared store.
    stored: &'d [(Held, u16)],
    /// The most hits of one slot or reservation.
    cost: u64,
    /// The shortest `max_hold` of these, in nanoseconds.
    hold: u64,
}

impl<'d> SlotCharges<'d> {
    /// Without slots; ids are from this source.
    #[inline]
    pub(super) fn new(source: &'d SlotSource) -> Self {
        Self { source, id: 0, held: SmallVec::new(), stored: &[], cost: 0, hold: u64::MAX }
    }

    /// As [`Self::new`], with those that a shared store has taken.
    pub(super) fn in_store(source: &'d SlotSource, stored: &'d StoredCharges) -> Self {
        Self { id: stored.id, stored: &stored.held, ..Self::new(source) }
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
        let (state, expired) = concurrency.take(state, self.id(now), hits, now);
        self.push(Held { kind: HeldKind::Slot, key }, hits, concurrency.max_hold);
        self.source.count_expired(limit, expired as u64);
        state
    }

    fn id(&mut self, now: Timestamp) -> u64 {
        if self.id == 0 {
            self.id = self.source.next_id(now);
        }
        self.id
    }

    fn push(&mut self, held: Held, hits: u64, max_hold: Window) {
        self.held.push(held);
        self.cost = self.cost.max(hits);
        self.hold = self.hold.min(max_hold.nanos().get());
        self.source.counts_of(held.kind).taken.fetch_add(1, Ordering::Relaxed);
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
        let (source, held) = (self.source, Held { kind: HeldKind::Reservation, key });
        let counts = source.counts_of(held.kind);
        let deadline = now.saturating_add_nanos(max_hold.nanos().get());
        // A store has its own bounds.
        let is_stored = self.stored.iter().any(|(stored, _)| *stored == held);
        if !is_stored && !source.open.lock().start(deadline, now) {
            counts.uncorrected.fetch_add(1, Ordering::Relaxed);
            return algorithm.add(state, hits, now);
        }
        let estimate = u32::try_from(hits).unwrap_or(u32::MAX);
        let reservation = Reservation { id: self.id(now), hits: estimate, deadline, returns };
        let (state, reserved) = algorithm.reserve(state, reservation, now);
        match reserved {
            Some(lost) => {
                self.push(held, hits, max_hold);
                counts.expired.fetch_add(lost as u64, Ordering::Relaxed);
            }
            None => {
                if !is_stored {
                    source.open.lock().end(deadline);
                }
                counts.uncorrected.fetch_add(1, Ordering::Relaxed);
            }
        }
        state
    }

    /// The slots that were taken, and the reservations; none if there are none.
    #[inline]
    pub(super) fn taken(self) -> Option<TakenSlots> {
        if self.held.is_empty() { None } else { Some(self.into_taken()) }
    }

    #[cold]
    fn into_taken(self) -> TakenSlots {
        let Self { id, held, stored, cost, hold, .. } = self;
        let mut ticket = Ticket { id, here: SmallVec::new(), stored: SmallVec::new() };
        for held in held {
            match stored.iter().find(|(stored, _)| *stored == held) {
                Some(in_store) => ticket.stored.push(*in_store),
                None => ticket.here.push((held, 1)),
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
