//! Renewals of slots and reservations, by ticket.
//!
//! In domains whose rules give tickets, a descriptor with an entry `renew`, whose value is a ticket, is a renewal. Its other entries are
//! those of the request that has the ticket: they lead to the rules that state how long it holds. A counter does not know all of these
//! rules, and the ticket does not state the time, because its holder could change it.
//!
//! Invariants:
//!
//! - All that a ticket names is renewed, or nothing: its counters are locked together. If it also names counters of a shared store, those
//!   of this process are renewed last.
//! - Only what is held is renewed, a deadline never moves to an earlier time, and nothing is taken.
//! - A renewal of what is no longer held denies its request, which then charges nothing.

use super::{
    in_force::{InForce, Limiter},
    locked_keys::LockedKeys,
    plan::{Charge, Plan, PlannedCounter, counters},
    releases::NamedChanges,
    ticket::{HeldKind, StoredRenewal, Ticket, renewal_of, renewed_entries},
};
use crate::{
    algorithm::State,
    limit::{Descriptor, Hits, Request, Timestamp, Window},
    rules::DomainRules,
    store::{Counter, Store},
};
use smallvec::SmallVec;
use std::{iter::zip, sync::atomic::Ordering};

/// A ticket that a request renews.
struct Renewal<'t> {
    ticket: Ticket,
    text: &'t str,
    /// Indices of the descriptors with this ticket.
    descriptors: SmallVec<[u32; 2]>,
    /// Whether they are peeks: what is held stays as it is.
    is_peek: bool,
}

impl Limiter {
    /// Makes the renewals of a request. A peek renews nothing, and is OK if a renewal would be.
    pub(super) fn renew_named(
        &self,
        (in_force, domain): (&InForce, &DomainRules),
        request: &Request<'_>,
        has_store: bool,
        now: Timestamp,
        made: &mut NamedChanges,
    ) {
        let renewals = renewals(request);
        if renewals.is_empty() {
            return;
        }
        let plan = Plan::of_counters(domain, &in_force.keys, &renewed_request(request));
        for Renewal { ticket, descriptors, is_peek, .. } in renewals {
            let (is_peek, is_stored) = (is_peek || request.is_check(), ticket.is_stored());
            // Conditional limits have the charges of only one descriptor, which need not have the ticket.
            let is_of_ticket = |charge: &Charge<'_>| {
                domain.conditional().is_some() || descriptors.contains(&charge.descriptor)
            };
            let is_held = (has_store || !is_stored)
                && is_of(&ticket, plan.charges.iter().filter(|charge| is_of_ticket(charge)))
                && self.renew_ticket(in_force, &ticket, (&plan, is_peek || is_stored), now, made);
            if is_held && is_stored {
                let held = ticket.stored.iter().filter_map(|&(held, group)| {
                    let mut charges = plan.charges.iter().filter(|charge| charge.key == held.key);
                    let (_, hold) = charges.find_map(Charge::hold)?;
                    Some((held, group, hold))
                });
                let held = held.collect();
                made.renewals.push(StoredRenewal { ticket, descriptors, is_peek, held });
            } else {
                self.conclude_renewal(&ticket, descriptors, (is_peek, is_held), made);
            }
        }
    }

    /// Completes renewals that a store has made or not.
    pub(super) fn renewed_in_store(
        &self,
        (in_force, domain): (&InForce, &DomainRules),
        request: &Request<'_>,
        made: &mut NamedChanges,
        are_held: &[bool],
        now: Timestamp,
    ) {
        let plan = Plan::of_counters(domain, &in_force.keys, &renewed_request(request));
        for (renewal, &is_held) in zip(std::mem::take(&mut made.renewals), are_held) {
            let StoredRenewal { ticket, descriptors, is_peek, .. } = renewal;
            let is_held = is_held && self.renew_ticket(in_force, &ticket, (&plan, is_peek), now, made);
            self.conclude_renewal(&ticket, descriptors, (is_peek, is_held), made);
        }
    }

    /// Renews for `hold` from now on what a ticket names in this process, if it is still held. For a holder in this process, which knows
    /// that its request is still running.
    pub fn keep_held(&self, ticket: &str, hold: Window, now: Timestamp) {
        let Some(ticket) = Ticket::parse(ticket) else { return };
        let in_force = self.in_force.load();
        let mut are_held = true;
        for (held, _) in &ticket.here {
            let mut shard = self.store.lock(Store::shard_of(held.key));
            let found = shard.find(held.key);
            let found = found.filter(|slot| is_held(held.kind, &shard.get(*slot).state(), ticket.id, now));
            are_held &= found.is_some();
            if let Some(slot) = found {
                self.renew_one(&in_force, (shard.get_mut(slot), (held.kind, hold)), ticket.id, now);
            }
        }
        self.count_renewals(&ticket, are_held);
    }

    fn conclude_renewal(
        &self,
        ticket: &Ticket,
        descriptors: SmallVec<[u32; 2]>,
        (is_peek, is_held): (bool, bool),
        made: &mut NamedChanges,
    ) {
        if !is_held {
            made.not_held.extend(descriptors);
        }
        if !is_peek {
            self.count_renewals(ticket, is_held);
        }
    }

    /// Renews what a ticket names in this process, if all of it is held; returns whether it is.
    fn renew_ticket(
        &self,
        in_force: &InForce,
        ticket: &Ticket,
        (plan, is_peek): (&Plan<'_>, bool),
        now: Timestamp,
        made: &mut NamedChanges,
    ) -> bool {
        let mut named = counters(plan);
        named.retain(|counter| ticket.names(counter.key));
        if named.is_empty() {
            return true;
        }
        let mut shards = LockedKeys::lock(&self.store, named.iter().map(|counter| counter.key));
        let is_held = |counter: &PlannedCounter| {
            plan.first(counter)
                .hold()
                .zip(shards.get(counter.key))
                .is_some_and(|((kind, _), found)| is_held(kind, &found.state(), ticket.id, now))
        };
        let is_held = named.iter().all(is_held);
        if is_held && !is_peek {
            for counter in &named {
                let (Some(hold), Some(found)) = (plan.first(counter).hold(), shards.get_mut(counter.key))
                else {
                    continue;
                };
                self.renew_one(in_force, (found, hold), ticket.id, now);
            }
        }
        made.number = Some(self.store.next_number());
        is_held
    }

    /// Renews under the limit that the counter was counted under, as an end does: a limit that has replaced it converts the counter at the
    /// next request.
    fn renew_one(
        &self,
        in_force: &InForce,
        (counter, (kind, max_hold)): (&mut Counter, (HeldKind, Window)),
        id: u64,
        now: Timestamp,
    ) {
        let limit = counter.limit();
        let Some(info) = in_force.rules.limits().get(limit) else { return };
        let algorithm = in_force.rules.greatest(limit).unwrap_or(&info.algorithm);
        let mut state = counter.take_state();
        match kind {
            HeldKind::Slot => {
                let (_, expired) = state.renew_slot(id, max_hold, now);
                self.slots.count_expired(limit, expired as u64);
            }
            HeldKind::Reservation => {
                let deadline = now.saturating_add_nanos(max_hold.nanos().get());
                let (renewed, former, lost) = algorithm.renew_reservation(state, id, deadline, now);
                self.slots.counts_of(kind).expired.fetch_add(lost as u64, Ordering::Relaxed);
                if let Some(former) = former.filter(|former| *former < deadline) {
                    self.slots.open.lock().renew(former, deadline);
                }
                state = renewed;
            }
        }
        let expires = algorithm.expires(&state);
        counter.set(state, limit, expires);
    }

    /// Counts what a ticket names as renewed or as not held.
    fn count_renewals(&self, ticket: &Ticket, is_held: bool) {
        for held in ticket.held() {
            let counts = self.slots.counts_of(held.kind);
            let counted = if is_held { &counts.renewed } else { &counts.unknown_renewals };
            counted.fetch_add(1, Ordering::Relaxed);
        }
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

/// Whether each counter of a ticket has one of these charges, which are those of its descriptors, by a limit that holds.
fn is_of<'p>(ticket: &Ticket, charges: impl Iterator<Item = &'p Charge<'p>> + Clone) -> bool {
    ticket.held().all(|held| {
        let is_held = |charge: &Charge<'_>| charge.hold().is_some_and(|(kind, _)| kind == held.kind);
        charges.clone().any(|charge| charge.key == held.key && is_held(charge))
    })
}

/// Whether a counter in this state has what the ticket of this id names.
fn is_held(kind: HeldKind, state: &State, id: u64, now: Timestamp) -> bool {
    match kind {
        HeldKind::Slot => state.slots().is_some_and(|slots| slots.holds(id, now)),
        HeldKind::Reservation => state.reserved().is_some_and(|reserved| reserved.is_open(id, now)),
    }
}
