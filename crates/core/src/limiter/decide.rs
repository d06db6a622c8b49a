//! Decisions on requests that do not wait: by the fast path if they can take it, in general form otherwise.

use super::{
    class::Class,
    counters::LockedShards,
    deciding::Deciding,
    fast_path,
    in_force::{Limiter, Pinned},
    plan::{Plan, PlannedCounter, add_counters, counters},
    queue::{self, Queues},
    slots::{SlotCharges, TakenSlots},
    status::reported_decision,
    ticket,
};
use crate::{
    limit::{Code, Decision, GrantedSlot, Request, Status, Timestamp},
    rules::{DomainRules, RuleSet},
    sync::MutexGuard,
};
use smallvec::{SmallVec, smallvec};

impl Pinned<'_> {
    /// Decides one request, and charges it if it is admitted. It is never queued: hits that do not fit now are denied. Classified here,
    /// where the compiler merges the checks of the class with those of the fast path.
    #[inline]
    pub fn decide(&self, request: &Request<'_>, now: Timestamp) -> Decision<'_> {
        let class = self.classify(request);
        if let (Class::Single(domain), [descriptor]) = (class, request.descriptors())
            && let Some(Some(charge)) = fast_path::charge(descriptor, domain, &self.in_force.keys)
            && let Some(decision) = fast_path::decide_single(charge, &self.limiter.store, now)
        {
            return decision;
        }
        decide_other(self, class, request, now)
    }

    /// Decides a request, unless it would wait for slots if its caller waited: then returns none, and changes nothing.
    pub fn decide_unless_waits(&self, request: &Request<'_>, now: Timestamp) -> Option<Decision<'_>> {
        let Pinned { in_force, limiter } = self;
        let domain = match self.classify(request) {
            Class::Single(domain) | Class::Multi(domain) | Class::General(domain)
                if domain.features.waits_for_slots && !limiter.global_shadow =>
            {
                domain
            }
            Class::GivesBack(_) => return None,
            class => return Some(decide_other(self, class, request, now)),
        };
        // Releases and renewals must be made only once.
        if request.descriptors().iter().any(ticket::names_ticket) {
            return None;
        }
        let mut plan = Plan::new(domain, &in_force.keys, request, now);
        let mut counters = counters(&plan);
        let may_wait = !request.is_report();
        let decided =
            decide_unless(limiter, &in_force.rules, &mut plan, &mut counters, now, |deciding, queues| {
                let is_denied = may_wait && deciding.verdict() == Code::OverLimit;
                is_denied && queues.get_or_insert_with(|| limiter.queues.lock()).would_wait(deciding)
            });
        let (code, number, slot) = decided?;
        Some(reported_decision(code, &plan, number, slot))
    }
}

/// Decides a request that is not [`Class::Single`], or that the fast path left. Not inlined, because its many values on the
/// stack would slow down the most common requests.
#[inline(never)]
pub(super) fn decide_other<'p>(
    pinned: &'p Pinned<'_>,
    class: Class<'p>,
    request: &Request<'_>,
    now: Timestamp,
) -> Decision<'p> {
    let (keys, store) = (&pinned.in_force.keys, &pinned.limiter.store);
    match class {
        Class::NoRules => {
            let statuses = smallvec![Status::NO_LIMIT; request.descriptors().len()];
            Decision { number: store.next_number(), ..Decision::new(Code::Ok, statuses) }
        }
        Class::Multi(domain) => {
            // Pushed one by one: collected into an option, they would be copied.
            let mut charges: SmallVec<[_; fast_path::DESCRIPTORS_MAX]> = SmallVec::new();
            for descriptor in request.descriptors() {
                match fast_path::charge(descriptor, domain, keys) {
                    Some(charge) => charges.push(charge),
                    None => return decide_general(pinned, domain, request, now),
                }
            }
            fast_path::fetch(&charges, store);
            match fast_path::decide_multi(&charges, store, now) {
                Some(decision) => decision,
                None => decide_general(pinned, domain, request, now),
            }
        }
        Class::Single(domain) | Class::General(domain) | Class::Remote(domain) => {
            decide_general(pinned, domain, request, now)
        }
        Class::GivesBack(domain) => queue::decide_unqueued(pinned, domain, request, now),
    }
}

/// Decides any request that is not to be queued.
pub(super) fn decide_general<'p>(
    pinned: &'p Pinned<'_>,
    domain: &'p DomainRules,
    request: &Request<'_>,
    now: Timestamp,
) -> Decision<'p> {
    let Pinned { in_force, limiter } = pinned;
    let (mut plan, mut counters) = (Plan::empty(), SmallVec::new());
    let named = if domain.features.tickets {
        fill_named(&mut plan, pinned, domain, request, now)
    } else {
        plan.fill(domain, &in_force.keys, request, now);
        None
    };
    add_counters(&plan, &mut counters);
    let (code, mut number, slot) = decide_plan(limiter, &in_force.rules, &mut plan, &mut counters, now);
    if let (Some(named), true) = (named, counters.is_empty()) {
        number = named;
    }
    reported_decision(code, &plan, number, slot)
}

/// Makes the releases and renewals of a request, and fills its plan. Returns the number of the last release or renewal. Not inlined: all
/// other decisions would check whether there is something to drop.
#[inline(never)]
fn fill_named<'p>(
    plan: &mut Plan<'p>,
    pinned: &'p Pinned<'_>,
    domain: &'p DomainRules,
    request: &Request<'_>,
    now: Timestamp,
) -> Option<u64> {
    let Pinned { in_force, limiter } = pinned;
    let named = limiter.change_named((in_force, domain), request, false, now);
    plan.fill(domain, &in_force.keys, request, now);
    named.conclude(plan);
    named.number
}

/// Decides by the charges of a plan: evaluates all of its counters under their locks, and charges all or none. Returns the verdict,
/// the number of the decision, and the slots that were taken.
#[inline]
pub(super) fn decide_plan(
    limiter: &Limiter,
    rules: &RuleSet,
    plan: &mut Plan<'_>,
    counters: &mut [PlannedCounter],
    now: Timestamp,
) -> (Code, u64, Option<Box<GrantedSlot>>) {
    decide_unless(limiter, rules, plan, counters, now, |_, _| false).expect("nothing ends the decision")
}

/// Decides a plan. None, and nothing is charged, if `is_undecided` holds once all counters are evaluated.
#[inline]
fn decide_unless<'l>(
    limiter: &'l Limiter,
    rules: &RuleSet,
    plan: &mut Plan<'_>,
    counters: &mut [PlannedCounter],
    now: Timestamp,
    is_undecided: impl FnOnce(
        &mut Deciding<'_, '_, LockedShards<'_>>,
        &mut Option<MutexGuard<'l, Queues>>,
    ) -> bool,
) -> Option<(Code, u64, Option<Box<GrantedSlot>>)> {
    let mut shards = LockedShards::lock(&limiter.store, counters, plan, rules, now);
    let slots = SlotCharges::new(&limiter.slots);
    let mut deciding = Deciding::new(plan, counters, &mut shards, slots, limiter.compat, now);
    deciding.evaluate();
    let mut queues = limiter.slot_queues_of(&deciding);
    if let Some(queues) = &queues {
        deciding.stay_behind(queues, None);
    }
    if is_undecided(&mut deciding, &mut queues) {
        return None;
    }
    let (code, has_room) = deciding.conclude(&limiter.store, limiter.global_shadow);
    deciding.settle(code == Code::Ok, has_room);
    deciding.combine();
    if let Some(queues) = &queues {
        deciding.report_behind(queues, None);
    }
    let slots = deciding.slots.taken();
    let number = limiter.store.next_number();
    drop((queues, shards));
    if plan.has_bans {
        plan.remove_bans();
    }
    Some((code, number, slots.map(TakenSlots::granted)))
}
