//! Decisions of remote requests: from the states that the store returned, or without the store.

use super::{
    super::{
        counters::LockedShards,
        decide::decide_plan,
        deciding::Deciding,
        in_force::{Limiter, OwnedPinned},
        plan::{Charge, Fit, INLINE, counters},
        service_limits::{self, ListedLimits},
        slots::{SlotCharges, TakenSlots},
        status::reported_decision,
        ticket::Ticket,
    },
    RemoteRequest, WithoutStore, admitted,
    fetched::{Fetched, ReadAt},
    waits::wanted,
};
use crate::{
    algorithm::State,
    limit::{Code, Decision, Hits, Timestamp},
};
use smallvec::SmallVec;
use std::num::NonZeroU64;

impl<'h> RemoteRequest<'h> {
    /// Decides by the states that the store read at `now`, one for each counter; if several nodes read them, `times` has the time of each
    /// instead. Adds the service limits that `listed` selects, as of after the decision. Local counters are decided and charged at
    /// `local_now`, the time of this server.
    pub fn decide(
        &mut self,
        states: SmallVec<[State; INLINE]>,
        now: Timestamp,
        times: &[Timestamp],
        listed: ListedLimits,
        local_now: Timestamp,
    ) -> Decision<'h> {
        debug_assert_eq!(states.len(), self.counters.len());
        let OwnedPinned { in_force, limiter } = self.owned;
        let Limiter { store, slots, compat, global_shadow, .. } = limiter;
        let keys = self.counters.iter().map(|counter| counter.key);
        let states = keys.zip(states).collect();
        let read_at = if times.is_empty() { ReadAt::One(now) } else { ReadAt::Each(times.into()) };
        let mut counters = std::mem::take(&mut self.local);
        let locals = counters.len();
        let local = LockedShards::lock(store, &mut counters, &self.plan, &in_force.rules, local_now);
        counters.append(&mut self.counters);
        let mut fetched = Fetched { local, locals, states, read_at };
        let now = if locals > 0 { local_now } else { now };
        let slots = SlotCharges::in_store(slots, &self.stored);
        let mut deciding =
            Deciding::new(&mut self.plan, &counters, &mut fetched, slots, *compat, now).by_sums();
        deciding.evaluate();
        self.wanted = self.wait.and_then(|wait| wanted(&mut deciding, wait, local_now));
        let (code, has_room) = deciding.conclude(store, *global_shadow);
        deciding.settle(code == Code::Ok, has_room);
        deciding.combine();
        let slot = deciding.slots.taken().map(TakenSlots::granted);
        // Decisions of the store alone are not numbered.
        let number = if locals > 0 { store.next_number() } else { 0 };
        let mut decision = reported_decision(code, &self.plan, number, slot);
        // With a global shadow no limit can deny.
        if listed == ListedLimits::All || listed == ListedLimits::Enforced && !global_shadow {
            let limits = service_limits::limits(listed, &self.plan, &counters, &fetched, now);
            decision.rare.get_or_insert_default().service_limits = Some(limits);
        }
        self.counters = counters.drain(locals..).collect();
        self.local = counters;
        decision
    }

    /// The decision if the store does not decide.
    pub fn decide_without_store(self, how: WithoutStore, now: Timestamp) -> Decision<'h> {
        let mut decision = self.decide_as(how, now);
        decision.rare.get_or_insert_default().is_without_store = true;
        decision
    }

    fn decide_as(mut self, how: WithoutStore, now: Timestamp) -> Decision<'h> {
        match how {
            WithoutStore::Allow => self.decide_by_local_counters(now),
            WithoutStore::Deny => {
                for charge in &mut self.plan.charges {
                    if !matches!(charge.hits, Hits::GiveBack(_)) && !charge.limit.is_local {
                        charge.fit = Fit::NoRoom;
                        self.plan.descriptors[charge.descriptor as usize].is_over = true;
                    }
                }
                self.decide_by_local_counters(now)
            }
            WithoutStore::Local { servers } => self.decide_locally(servers, now),
        }
    }

    /// Decides by the local counters, if any, and by the charges that are already known not to fit.
    fn decide_by_local_counters(mut self, now: Timestamp) -> Decision<'h> {
        let OwnedPinned { in_force, limiter } = self.owned;
        let (code, number, slot) =
            decide_plan(limiter, &in_force.rules, &mut self.plan, &mut self.local, now);
        reported_decision(code, &self.plan, number, slot)
    }

    /// Decides over local counters. An equal share of a limit is enforced by counting each hit as often as there are
    /// servers: the states of counters do not depend on their number, which may change. A limit below that number admits
    /// one hit.
    fn decide_locally(mut self, servers: u32, now: Timestamp) -> Decision<'h> {
        let weight = |charge: &Charge<'_>| {
            let servers = if charge.limit.is_local { 1 } else { u64::from(servers) };
            NonZeroU64::new(servers.min(admitted(&charge.limit.algorithm))).unwrap_or(NonZeroU64::MIN)
        };
        for charge in &mut self.plan.charges {
            let weight = weight(charge);
            charge.hits = charge.hits.weighed(weight);
        }
        self.counters = counters(&self.plan);
        let Self { owned: OwnedPinned { in_force, limiter }, mut plan, mut counters, .. } = self;
        let (code, number, mut slot) = decide_plan(limiter, &in_force.rules, &mut plan, &mut counters, now);
        for charge in &mut plan.charges {
            charge.remaining /= weight(charge);
        }
        if let Some(slot) = &mut slot {
            // The end of the request names its own hits.
            let weights = || counters.iter().map(|counter| (counter, weight(plan.first(counter))));
            let costs = weights().filter(|(counter, _)| plan.first(counter).hold().is_some());
            slot.cost = costs.map(|(counter, weight)| counter.hits.taken / weight).max().unwrap_or(slot.cost);
            if let Some(mut ticket) = Ticket::parse(&slot.ticket) {
                for (held, weight) in &mut ticket.here {
                    let of_counter = weights().find(|(counter, _)| counter.key == held.key);
                    *weight =
                        of_counter.map_or(1, |(_, weight)| u32::try_from(weight.get()).unwrap_or(u32::MAX));
                }
                slot.ticket = ticket.text();
            }
        }
        reported_decision(code, &plan, number, slot)
    }
}
