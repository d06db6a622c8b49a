//! The decision, in three steps: every counter of the request is evaluated; the verdict decides whether all are charged
//! or none; each descriptor's status is read from what its counters then hold.

use super::{
    InForce, Limiter,
    charge::{Charge, DescriptorPlan, HitSum, Outcome, Plan},
    counters::{LockedShards, PlannedCounter, counters},
    fast_path,
    status::{Reading, read, statuses},
};
use crate::{
    algorithm::{Algorithm, Standing, State},
    limit::{Code, Decision, Hits, Request, Status, Timestamp},
    rules::{DomainRules, RuleLimit, RuleSet, Semantics},
    store::{OnFull, Store},
};
use smallvec::{SmallVec, smallvec};

pub(super) fn decide<'r>(
    in_force: &'r InForce,
    limiter: &Limiter,
    request: &Request<'_>,
    now: Timestamp,
) -> Decision<'r> {
    let Some(domain) = in_force.rules.domain(request.domain()) else {
        return Decision {
            code: Code::Ok,
            statuses: smallvec![Status::NO_LIMIT; request.descriptors().len()],
        };
    };
    if let [descriptor] = request.descriptors()
        && !limiter.global_shadow
        && let Some(Some(charge)) = fast_path::asked(descriptor, domain, &in_force.keys)
        && let Some(decision) = fast_path::decide_single(charge, &limiter.store, now)
    {
        return decision;
    }
    decide_longer(in_force, domain, limiter, request, now)
}

/// What is not decided by the shortest way. Kept out of its way, which so many values on the stack would slow down.
#[inline(never)]
fn decide_longer<'r>(
    in_force: &'r InForce,
    domain: &'r DomainRules,
    limiter: &Limiter,
    request: &Request<'_>,
    now: Timestamp,
) -> Decision<'r> {
    let descriptors = request.descriptors();
    if descriptors.len() > 1 && !limiter.global_shadow && fast_path::may_take(descriptors, domain) {
        let asked = descriptors.iter().map(|descriptor| fast_path::asked(descriptor, domain, &in_force.keys));
        if let Some(asked) = asked.collect::<Option<SmallVec<[_; fast_path::DESCRIPTORS_MAX]>>>() {
            fast_path::fetch(&asked, &limiter.store);
            if let Some(decision) = fast_path::decide_multi(&asked, &limiter.store, now) {
                return decision;
            }
        }
    }
    decide_any(in_force, domain, limiter, request, now)
}

/// The way that every request can take.
pub(super) fn decide_any<'r>(
    in_force: &'r InForce,
    domain: &'r DomainRules,
    limiter: &Limiter,
    request: &Request<'_>,
    now: Timestamp,
) -> Decision<'r> {
    let mut plan = Plan::new(domain, &in_force.keys, request);
    let mut counters = counters(&plan);
    let mut shards = LockedShards::lock(&limiter.store, &mut counters);
    let mut deciding = Deciding::new(&mut plan, &counters, &mut shards, &in_force.rules, now);
    deciding.evaluate();
    let (code, has_room) = deciding.conclude(&limiter.store, limiter.global_shadow);
    deciding.settle(code == Code::Ok, has_room);
    drop(shards);
    Decision { code, statuses: statuses(&plan) }
}

/// A request that is being decided. See [`Plan`] for the first three.
pub(super) struct Deciding<'d, 'r, 's> {
    pub(super) asking: &'d mut [DescriptorPlan<'r>],
    pub(super) charges: &'d mut [Charge<'r>],
    pub(super) by_key: &'d [u32],
    pub(super) counters: &'d [PlannedCounter],
    pub(super) shards: &'d mut LockedShards<'s>,
    pub(super) rules: &'r RuleSet,
    pub(super) now: Timestamp,
}

impl<'d, 'r, 's> Deciding<'d, 'r, 's> {
    /// A plan whose counters are locked; nothing is evaluated yet.
    #[inline]
    pub(super) fn new(
        plan: &'d mut Plan<'r>,
        counters: &'d [PlannedCounter],
        shards: &'d mut LockedShards<'s>,
        rules: &'r RuleSet,
        now: Timestamp,
    ) -> Self {
        let Plan { asking, charges, by_key } = plan;
        Self { asking, charges, by_key, counters, shards, rules, now }
    }

    /// Asks every counter whether it admits its charges; charges nothing.
    #[inline]
    pub(super) fn evaluate(&mut self) {
        for counter in self.counters {
            let charges = &self.by_key[counter.charges()];
            let limit = &*self.charges[charges[0] as usize].limit;
            let state = self.shards.state(counter, limit, self.rules, self.now);
            let given = (counter.hits.given > 0)
                .then(|| limit.algorithm.give_back((*state).clone(), counter.hits.given, self.now));
            let state = given.as_ref().unwrap_or(&state);
            for &charge in charges {
                let charge = &mut self.charges[charge as usize];
                if !admits(charge, counter.hits.taken, state, self.now) {
                    charge.outcome = Outcome::Over;
                    self.asking[charge.descriptor as usize].is_over = true;
                }
            }
        }
    }

    /// The verdict on the whole: over if any descriptor is, where quota descriptors count only when all of them are.
    #[inline]
    pub(super) fn verdict(&self) -> Code {
        let (mut quotas, mut quotas_over) = (0, 0);
        for asking in &*self.asking {
            let over = asking.is_over && !asking.reached.is_shadow();
            if asking.reached.is_quota() {
                quotas += 1;
                quotas_over += usize::from(over);
            } else if over {
                return Code::OverLimit;
            }
        }
        if quotas > 0 && quotas == quotas_over { Code::OverLimit } else { Code::Ok }
    }

    /// What is counted on a counter, given whether the request is admitted. A descriptor that is over is not charged
    /// even if it is let through: all of its limits must admit.
    #[inline]
    pub(super) fn counted(&self, counter: &PlannedCounter, admitted: bool) -> HitSum {
        let mut counted = HitSum::NOTHING;
        for &charge in &self.by_key[counter.charges()] {
            let charge = &self.charges[charge as usize];
            if charge.is_always() || (admitted && !self.asking[charge.descriptor as usize].is_over) {
                counted.add(charge.hits);
            }
        }
        counted
    }

    /// Makes room for new counters if the request is admitted. The last verdict, and whether there is room.
    #[inline]
    pub(super) fn conclude(&mut self, store: &Store, global_shadow: bool) -> (Code, bool) {
        let verdict = |deciding: &Self| if global_shadow { Code::Ok } else { deciding.verdict() };
        let mut code = verdict(self);
        let has_room = self.make_room(code == Code::Ok);
        if !has_room && store.on_full() == OnFull::Deny {
            self.deny_newcomers();
            code = verdict(self);
        }
        (code, has_room)
    }

    /// Sees to it that there is room for the counters that settling will make.
    #[inline]
    fn make_room(&mut self, admitted: bool) -> bool {
        if self.counters.iter().all(|counter| self.shards.has(counter)) {
            return true;
        }
        let makes: SmallVec<[bool; 4]> =
            self.counters.iter().map(|counter| self.counted(counter, admitted).taken > 0).collect();
        self.shards.make_room(self.counters, &makes, self.now)
    }

    /// There is no room: descriptors that need a new counter are over.
    #[cold]
    fn deny_newcomers(&mut self) {
        for counter in self.counters.iter().filter(|counter| !self.shards.has(counter)) {
            for &charge in &self.by_key[counter.charges()] {
                let charge = &mut self.charges[charge as usize];
                if matches!(charge.hits, Hits::Take(_)) && charge.outcome == Outcome::Admitted {
                    charge.outcome = Outcome::NoRoom;
                    self.asking[charge.descriptor as usize].is_over = true;
                }
            }
        }
    }

    /// Charges what is to be charged, and reads what the counters then hold. Without room no counter is made.
    #[inline]
    pub(super) fn settle(&mut self, admitted: bool, has_room: bool) {
        for counter in self.counters {
            let charges = &self.by_key[counter.charges()];
            let first = charges[0] as usize;
            let counted = self.counted(counter, admitted);
            // A counter that is not there has nothing to give back.
            let changes = if self.shards.has(counter) {
                counted != HitSum::NOTHING
            } else {
                counted.taken > 0 && has_room
            };
            let limit = &*self.charges[first].limit;
            let told = if changes {
                let change = |state| apply(counted, &limit.algorithm, state, self.now);
                self.shards.change(counter, limit, self.rules, self.now, change)
            } else {
                let state = self.shards.state(counter, limit, self.rules, self.now);
                Reading::of(&limit.algorithm, &state, self.now)
            };
            for &charge in charges {
                let charge = &mut self.charges[charge as usize];
                let is_shadow = self.asking[charge.descriptor as usize].reached.is_shadow();
                let state = |limit: &RuleLimit| self.shards.state(counter, limit, self.rules, self.now);
                read(charge, counter.hits.taken, is_shadow, told, state, self.now);
            }
        }
    }
}

#[inline]
fn apply(asked: HitSum, algorithm: &Algorithm, state: State, now: Timestamp) -> Standing {
    let state = if asked.given == 0 { state } else { algorithm.give_back(state, asked.given, now) };
    if asked.taken == 0 { algorithm.standing(state, now) } else { algorithm.charge(state, asked.taken, now) }
}

/// Whether the charge is admitted, when all charges of its counter together take `taken`.
#[inline]
fn admits(charge: &Charge<'_>, taken: u64, state: &State, now: Timestamp) -> bool {
    let RuleLimit { algorithm, semantics, requests, .. } = &*charge.limit;
    match (charge.hits, semantics) {
        (Hits::GiveBack(_), _) => true,
        (Hits::Take(_), _) => taken <= algorithm.remaining(state, now),
        (Hits::Peek, Semantics::Exact) => algorithm.remaining(state, now) > 0,
        (Hits::Peek, Semantics::Reference) => algorithm.used(state, now) <= u64::from(*requests),
    }
}
