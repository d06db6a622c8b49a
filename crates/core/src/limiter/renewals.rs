//! Renewals of slots and reservations, by ticket.
//!
//! A descriptor with an entry `renew` whose value is a ticket is a renewal, in domains whose rules give tickets. Its other entries are those of
//! the request that has the ticket: by them the rules are found that state how long it holds. A counter does not know all of
//! them, and a ticket, which its holder could change, does not state it.
//!
//! Invariants:
//!
//! - All that a ticket names is renewed, or nothing: its counters are locked together.
//! - Only what is held is renewed, a deadline never moves to an earlier time, and nothing is taken.
//! - A renewal of what is not held any more denies its request, which charges nothing then.

use super::{
    counters::{Counters, LockedShards},
    in_force::{InForce, Limiter},
    plan::{Charge, Plan, PlannedCounter, counters},
    releases::NamedChanges,
    ticket::{SlotTicket, renewal_of, renewed_entries},
};
use crate::{
    limit::{Descriptor, Hits, Request, Timestamp, Window},
    rules::DomainRules,
    sync::AtomicU64,
};
use smallvec::SmallVec;
use std::{iter::zip, sync::atomic::Ordering};

/// A ticket that a request renews.
struct Renewal<'t> {
    ticket: SlotTicket,
    text: &'t str,
    /// Indices of the descriptors with this ticket.
    descriptors: SmallVec<[u32; 2]>,
    /// Whether they are peeks: what is held stays as it is.
    is_peek: bool,
}

/// For how long a limit holds what a ticket names.
#[derive(Clone, Copy)]
enum Hold {
    Slot(Window),
    Reservation(Window),
}

impl Limiter {
    /// Makes the renewals of a request. A peek renews nothing, and is OK if a renewal would be.
    pub(super) fn renew_named(
        &self,
        in_force: &InForce,
        domain: &DomainRules,
        request: &Request<'_>,
        now: Timestamp,
        made: &mut NamedChanges,
    ) {
        let renewals = renewals(request);
        if renewals.is_empty() {
            return;
        }
        let plan = Plan::of_counters(domain, &in_force.keys, &renewed_request(request));
        for Renewal { ticket, descriptors, is_peek, .. } in renewals {
            let is_peek = is_peek || request.is_check();
            let is_held = !ticket.is_stored()
                && is_of(&ticket, &plan)
                && self.renew_ticket(in_force, &ticket, (&plan, is_peek), now, made);
            if !is_held {
                made.not_held.extend(descriptors);
            }
            if !is_peek {
                self.count_renewals(&ticket, is_held);
            }
        }
    }

    /// Renews what is in this process, if it is all held; returns whether it is.
    fn renew_ticket(
        &self,
        in_force: &InForce,
        ticket: &SlotTicket,
        (plan, is_peek): (&Plan<'_>, bool),
        now: Timestamp,
        made: &mut NamedChanges,
    ) -> bool {
        let mut named = counters(plan);
        named.retain(|counter| ticket.names(counter.key));
        let mut shards = LockedShards::lock(&self.store, &mut named, plan, &in_force.rules, now);
        let is_held = |counter: &PlannedCounter| {
            let state = shards.state(counter);
            match hold(plan.first(counter)) {
                Some(Hold::Slot(_)) => state.slots().is_some_and(|slots| slots.holds(ticket.id, now)),
                Some(Hold::Reservation(_)) => {
                    state.reserved().is_some_and(|reserved| reserved.is_open(ticket.id, now))
                }
                None => false,
            }
        };
        let is_held = named.iter().all(is_held);
        if is_held && !is_peek {
            named.iter().for_each(|counter| self.renew_one(&mut shards, plan, counter, ticket.id, now));
        }
        made.number = Some(self.store.next_number());
        is_held
    }

    fn renew_one(
        &self,
        shards: &mut LockedShards<'_>,
        plan: &Plan<'_>,
        counter: &PlannedCounter,
        id: u64,
        now: Timestamp,
    ) {
        let charge = plan.first(counter);
        let (Some(hold), limit) = (hold(charge), &*charge.limit) else { return };
        shards.change(counter, limit, now, |mut state| {
            match hold {
                Hold::Slot(max_hold) => {
                    let (_, expired) = state.renew_slot(id, max_hold, now);
                    self.slots.count_expired(limit.id, expired as u64);
                }
                Hold::Reservation(max_hold) => {
                    let deadline = now.saturating_add_nanos(max_hold.nanos().get());
                    let (renewed, former, lost) = limit.algorithm.renew_reservation(state, id, deadline, now);
                    let reservations = &self.slots.reservations;
                    reservations.lost.fetch_add(lost as u64, Ordering::Relaxed);
                    if let Some(former) = former.filter(|former| *former < deadline) {
                        reservations.renew(former, deadline);
                    }
                    state = renewed;
                }
            }
            limit.algorithm.standing(state, now)
        });
    }

    /// Counts what a ticket names as renewed or as not held.
    fn count_renewals(&self, ticket: &SlotTicket, is_held: bool) {
        let add = |counter: &AtomicU64, named: usize| _ = counter.fetch_add(named as u64, Ordering::Relaxed);
        let (slots, reservations) = (&self.slots, &self.slots.reservations);
        let [of_slots, of_reservations] = match is_held {
            true => [&slots.renewed, &reservations.renewed],
            false => [&slots.unknown_renewals, &reservations.unknown_renewals],
        };
        let [named_slots, named_reservations] = ticket.numbers();
        add(of_slots, named_slots);
        add(of_reservations, named_reservations);
    }
}

/// The tickets that a request renews.
fn renewals<'t>(request: &Request<'t>) -> SmallVec<[Renewal<'t>; 1]> {
    let mut renewals: SmallVec<[Renewal<'t>; 1]> = SmallVec::new();
    for (descriptor, index) in zip(request.descriptors(), 0..) {
        let Some((ticket, text)) = renewal_of(descriptor) else { continue };
        let is_peek = descriptor.hits == Hits::Peek;
        match renewals.iter_mut().find(|renewal| renewal.text == text) {
            Some(renewal) => {
                renewal.descriptors.push(index);
                renewal.is_peek &= is_peek;
            }
            None => {
                let descriptors = [index].into_iter().collect();
                renewals.push(Renewal { ticket, text, descriptors, is_peek });
            }
        }
    }
    renewals
}

/// The request that has the tickets.
fn renewed_request<'t>(request: &Request<'t>) -> Request<'t> {
    let mut renewed = Request::new(request.domain());
    for descriptor in request.descriptors() {
        let Descriptor { limit, .. } = *descriptor;
        renewed.push(Descriptor { entries: renewed_entries(descriptor), limit, hits: Hits::ONE });
    }
    renewed
}

/// Whether all counters of a ticket are those of a plan, and of limits that hold.
fn is_of(ticket: &SlotTicket, plan: &Plan<'_>) -> bool {
    let has = |key, is_kind: fn(Hold) -> bool| {
        plan.charges.iter().any(|charge| charge.key == key && hold(charge).is_some_and(is_kind))
    };
    let is_slot = |hold| matches!(hold, Hold::Slot(_));
    let is_reservation = |hold| matches!(hold, Hold::Reservation(_));
    ticket.keys.iter().all(|key| has(*key, is_slot))
        && ticket.reserved.iter().all(|(_, key)| has(*key, is_reservation))
}

fn hold(charge: &Charge<'_>) -> Option<Hold> {
    let slot = charge.limit.algorithm.concurrency().map(|concurrency| Hold::Slot(concurrency.max_hold));
    slot.or_else(|| charge.limit.reserve.map(|reserve| Hold::Reservation(reserve.max_hold)))
}
