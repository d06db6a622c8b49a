//! Releases of slots and ends of reservations, by ticket.

use super::{
    in_force::{InForce, Limiter, OwnedPinned},
    plan::Plan,
    reached::Reached,
    ticket::{Held, HeldKind, SlotRelease, StoredRenewal, Ticket, ticket_of},
    ticket_counts::TicketCounts,
};
use crate::{
    algorithm::{Ended, Released},
    limit::{Hits, Request, Timestamp},
    rules::DomainRules,
    store::{Key, Store},
};
use smallvec::SmallVec;
use std::{num::NonZeroU64, sync::atomic::Ordering, task::Waker};

/// The releases and renewals of a request that were made.
#[derive(Default)]
pub struct NamedChanges {
    /// Releases that a shared store has to make.
    pub(super) in_store: Vec<SlotRelease>,
    /// The number of the last change of a counter of this process, taken under its lock.
    pub(super) number: Option<u64>,
    /// Renewals that a shared store has to make.
    pub(super) renewals: Vec<StoredRenewal>,
    /// Indices of descriptors that renew what is no longer held.
    pub(super) not_held: SmallVec<[u32; 1]>,
}

/// A change of a counter that names a slot or a reservation.
struct NamedChange {
    /// Number of the change, taken under the lock of the counter.
    number: u64,
    /// Whether the slot or the reservation was held; if not, the change only notes that it is past its deadline.
    is_held: bool,
}

impl NamedChanges {
    /// The number of a decision: `charges`, that of its charges, or without charges that of the request's last release or renewal.
    pub(super) fn number_of(&self, charges: u64, has_charges: bool) -> u64 {
        self.number.filter(|_| !has_charges).unwrap_or(charges)
    }

    /// Denies the request of this plan if it renews what is no longer held.
    pub(super) fn conclude(&self, plan: &mut Plan<'_>) {
        for &index in &self.not_held {
            let descriptor = &mut plan.descriptors[index as usize];
            (descriptor.reached, descriptor.is_over) = (Reached::NotHeld, true);
        }
    }

    /// Releases that a shared store has to make.
    pub fn in_store(&self) -> &[SlotRelease] {
        &self.in_store
    }

    /// Renewals that a shared store has to make; [`OwnedPinned::renewed_in_store`] must follow.
    pub fn renewals(&self) -> &[StoredRenewal] {
        &self.renewals
    }
}

impl Limiter {
    /// Makes the releases and then the renewals of a request, in a domain whose rules give tickets. Without a store, nothing in a store is
    /// held.
    pub(super) fn change_named(
        &self,
        (in_force, domain): (&InForce, &DomainRules),
        request: &Request<'_>,
        has_store: bool,
        now: Timestamp,
    ) -> NamedChanges {
        let mut made = self.release_named(request, now);
        self.renew_named((in_force, domain), request, has_store, now, &mut made);
        made
    }

    /// Makes the releases of a request. Negative hits release that many of each slot, other hits all of it. A peek releases nothing, unless
    /// the ticket has reservations: then it ends them, as a request that cost nothing. A second end of the same reservations within the
    /// request is ignored.
    fn release_named(&self, request: &Request<'_>, now: Timestamp) -> NamedChanges {
        let mut made = NamedChanges::default();
        if request.is_check() {
            return made;
        }
        let mut ended: SmallVec<[u64; 2]> = SmallVec::new();
        for descriptor in request.descriptors() {
            let Some(ticket) = ticket_of(descriptor) else { continue };
            if ticket.reserves() {
                if ended.contains(&ticket.id) {
                    continue;
                }
                ended.push(ticket.id);
            } else if descriptor.hits == Hits::Peek {
                continue;
            }
            made.number = self.release_ticket(&ticket, descriptor.hits, now).or(made.number);
            made.in_store.extend(ticket.in_store(descriptor.hits));
        }
        made
    }

    /// Counts slots that a shared store has released, or reservations that it has ended, and those that were not held there.
    pub fn count_closed(&self, kind: HeldKind, closed: u64, unknown: u64) {
        let counts = self.slots.counts_of(kind);
        counts.released.fetch_add(closed, Ordering::Relaxed);
        counts.unknown.fetch_add(unknown, Ordering::Relaxed);
    }

    /// Releases the slots of a ticket that are in this process, for a request that has ended. Its estimates stay until its end names the
    /// cost.
    pub fn release_slots(&self, ticket: &str, now: Timestamp) {
        if let Some(ticket) = Ticket::parse(ticket) {
            self.release_ticket(&ticket.slots(), Hits::Peek, now);
        }
    }

    /// Releases the slots of a ticket that are in this process, and returns its estimates, for a request cancelled before it reached its
    /// service. Returns the number of the last change; none if no counter had any of them. [`SlotRelease::of_ticket`] is the part in a
    /// shared store.
    pub fn cancel_start(&self, ticket: &str, now: Timestamp) -> Option<u64> {
        self.release_ticket(&Ticket::parse(ticket)?, Hits::Peek, now)
    }

    /// Returns the number of the last change of a counter; none if no counter had any of the slots and reservations.
    fn release_ticket(&self, ticket: &Ticket, hits: Hits, now: Timestamp) -> Option<u64> {
        let mut last = None;
        let of_kind = |kind| ticket.here.iter().filter(move |(held, _)| held.kind == kind);
        // Reservations first: requests that wait for the slots are then decided by their actual costs.
        for &(Held { kind, key }, weight) in of_kind(HeldKind::Reservation).chain(of_kind(HeldKind::Slot)) {
            let change = match (kind, NonZeroU64::new(weight.into())) {
                (HeldKind::Slot, _) => self.release_one(key, ticket.id, hits, now),
                (HeldKind::Reservation, weight) => {
                    let hits = weight.map_or(hits, |weight| hits.weighed(weight));
                    self.end_one(key, ticket.id, hits, now)
                }
            };
            let (counts, is_held) =
                (self.slots.counts_of(kind), change.as_ref().is_some_and(|change| change.is_held));
            let counted = if is_held { &counts.released } else { &counts.unknown };
            counted.fetch_add(1, Ordering::Relaxed);
            last = change.map(|change| change.number).or(last);
        }
        last
    }

    /// Releases a slot, or the given hits of it; none if the counter does not have it.
    fn release_one(&self, key: Key, id: u64, hits: Hits, now: Timestamp) -> Option<NamedChange> {
        let hits = if let Hits::GiveBack(hits) = hits { Some(hits.get()) } else { None };
        let mut woken = Vec::new();
        let mut shard = self.store.lock(Store::shard_of(key));
        let slot = shard.find(key)?;
        let has_it = shard.get(slot).state().slots().is_some_and(|slots| slots.has(id));
        // Left unchanged, so that the next snapshot need not write its page.
        if !has_it {
            let limit = shard.get(slot).limit();
            drop(shard);
            self.slots.figures.count_unknown(limit);
            return None;
        }
        let counter = shard.get_mut(slot);
        let (limit, mut state) = (counter.limit(), counter.take_state());
        let (released, expired) = state.release_slot(id, hits, now);
        let expires = state.slots().map_or(Timestamp::EPOCH, |slots| slots.expires());
        counter.set(state, limit, expires);
        self.slots.count_expired(limit, expired as u64);
        if let Some(mut queues) = self.slot_queues() {
            queues.call_first(key, &mut woken);
        }
        let number = self.store.next_number();
        drop(shard);
        woken.into_iter().for_each(Waker::wake);
        Some(NamedChange { number, is_held: released != Released::Unknown })
    }

    /// Ends a reservation: the hits of its end are the actual cost. None if the counter has no such reservation.
    fn end_one(&self, key: Key, id: u64, hits: Hits, now: Timestamp) -> Option<NamedChange> {
        let in_force = self.in_force.load();
        let mut shard = self.store.lock(Store::shard_of(key));
        let slot = shard.find(key)?;
        let counter = shard.get(slot);
        // Left unchanged, so that the next snapshot need not write its page.
        if !counter.state().reserved().is_some_and(|reserved| reserved.has(id)) {
            return None;
        }
        // The limit under which the counter was counted; a limit that has replaced it converts the counter at the next request.
        let limit = counter.limit();
        let info = in_force.rules.limits().get(limit)?;
        let counter = shard.get_mut(slot);
        let cost = |reserved: u32| match hits {
            Hits::Take(hits) => hits.get(),
            Hits::Peek => 0,
            Hits::GiveBack(hits) => u64::from(reserved).saturating_sub(hits.get()),
        };
        let most = in_force.rules.reserved_at_most(limit).unwrap_or(u64::MAX);
        let algorithm = in_force.rules.greatest(limit).unwrap_or(&info.algorithm);
        let (ended, lost) = counter.change(algorithm, |state| {
            let (state, ended, lost) = algorithm.end_reservation(state, id, cost, most, now);
            (state, (ended, lost))
        });
        let number = self.store.next_number();
        drop(shard);
        self.slots.counts_of(HeldKind::Reservation).expired.fetch_add(lost as u64, Ordering::Relaxed);
        if let Ended::Reserved(reservation) = ended {
            self.slots.open.lock().end(reservation.deadline);
        }
        Some(NamedChange { number, is_held: matches!(ended, Ended::Reserved(_)) })
    }

    /// Numbers of what became of slots, or of reservations, so far.
    pub fn ticket_counts(&self, kind: HeldKind) -> TicketCounts {
        self.slots.counts_of(kind).load()
    }
}

impl OwnedPinned<'_> {
    /// Makes the releases and renewals of a request to a domain with shared counters, except those that the store has to make.
    pub fn change_named(&self, request: &Request<'_>, now: Timestamp) -> NamedChanges {
        match self.in_force.rules.domain(request.domain()) {
            Some(domain) if domain.features.tickets => {
                self.limiter.change_named((&self.in_force, domain), request, true, now)
            }
            _ => NamedChanges::default(),
        }
    }

    /// Completes the renewals that a store had to make; `are_held` states for each whether the store made it.
    pub fn renewed_in_store(
        &self,
        request: &Request<'_>,
        named: &mut NamedChanges,
        are_held: &[bool],
        now: Timestamp,
    ) {
        if let Some(domain) = self.in_force.rules.domain(request.domain()) {
            self.limiter.renewed_in_store((&self.in_force, domain), request, named, are_held, now);
        }
    }
}
