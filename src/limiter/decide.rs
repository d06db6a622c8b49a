//! The decision, in three steps: every counter of the request is evaluated; the verdict decides whether all are charged
//! or none; each descriptor's status is read from what its counters then hold.

use super::{
    charge::{Answer, Charge, Plan},
    counters::Counters,
    status::{read, statuses},
};
use crate::{
    algorithm::{Algorithm, State},
    limit::{Code, Decision, Hits, Request, Status, Timestamp},
    rules::{RuleLimit, RuleSet, Semantics},
    store::{OnFull, Store},
};
use smallvec::smallvec;

pub(super) fn decide<'r>(
    rules: &'r RuleSet,
    store: &Store,
    global_shadow: bool,
    request: &Request<'_>,
    now: Timestamp,
) -> Decision<'r> {
    let Some(domain) = rules.domain(request.domain()) else {
        return Decision {
            code: Code::Ok,
            statuses: smallvec![Status::NO_LIMIT; request.descriptors().len()],
        };
    };
    let mut plan = Plan::new(domain, store.seed(), request);
    let mut counters = Counters::lock(store, &plan);
    let mut deciding = Deciding { rules, now, plan: &mut plan, counters: &mut counters };
    deciding.evaluate();
    let mut code = deciding.verdict();
    let has_room = deciding.make_room(code == Code::Ok || global_shadow);
    if !has_room && store.on_full() == OnFull::Deny {
        deciding.deny_newcomers();
        code = deciding.verdict();
    }
    let admitted = code == Code::Ok || global_shadow;
    deciding.settle(admitted, has_room);
    drop(counters);
    Decision { code: if admitted { Code::Ok } else { code }, statuses: statuses(&plan) }
}

struct Deciding<'d, 'r, 's> {
    rules: &'r RuleSet,
    now: Timestamp,
    plan: &'d mut Plan<'r>,
    counters: &'d mut Counters<'s>,
}

impl Deciding<'_, '_, '_> {
    /// Asks every counter whether it admits its charges; charges nothing.
    #[inline]
    fn evaluate(&mut self) {
        let Self { rules, now, ref mut plan, ref counters } = *self;
        for index in 0..counters.len() {
            let charges = &plan.by_key[counters.charges(index)];
            let limit = &*plan.charges[charges[0] as usize].limit;
            let state = counters.state(index, limit, rules, now);
            let asked = Asked::of(charges.iter().map(|&charge| &plan.charges[charge as usize]));
            let given =
                (asked.given > 0).then(|| limit.algorithm.give_back((*state).clone(), asked.given, now));
            let state = given.as_ref().unwrap_or(&state);
            for &charge in charges {
                let charge = &mut plan.charges[charge as usize];
                if !admits(charge, asked.taken, state, now) {
                    charge.answer = Answer::Over;
                    plan.asking[charge.descriptor as usize].is_over = true;
                }
            }
        }
    }

    /// The verdict on the whole: over if any descriptor is, where quota descriptors count only when all of them are.
    #[inline]
    fn verdict(&self) -> Code {
        let (mut quotas, mut quotas_over) = (0, 0);
        for asking in &self.plan.asking {
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
    fn counted(&self, index: usize, admitted: bool) -> Asked {
        let charges = self.plan.by_key[self.counters.charges(index)].iter();
        Asked::of(charges.map(|&charge| &self.plan.charges[charge as usize]).filter(|charge| {
            charge.is_always() || (admitted && !self.plan.asking[charge.descriptor as usize].is_over)
        }))
    }

    /// Sees to it that there is room for the counters that settling will make.
    #[inline]
    fn make_room(&mut self, admitted: bool) -> bool {
        let makes = |&index: &usize| !self.counters.exists(index) && self.counted(index, admitted).taken > 0;
        let new = (0..self.counters.len()).filter(makes).count();
        new == 0 || self.counters.make_room(new, self.now)
    }

    /// There is no room: descriptors that need a new counter are over.
    #[cold]
    fn deny_newcomers(&mut self) {
        for index in (0..self.counters.len()).filter(|&index| !self.counters.exists(index)) {
            for &charge in &self.plan.by_key[self.counters.charges(index)] {
                let charge = &mut self.plan.charges[charge as usize];
                if matches!(charge.hits, Hits::Take(_)) && charge.answer == Answer::Admitted {
                    charge.answer = Answer::NoRoom;
                    self.plan.asking[charge.descriptor as usize].is_over = true;
                }
            }
        }
    }

    /// Charges what is to be charged, and reads what the counters then hold. Without room no counter is made.
    #[inline]
    fn settle(&mut self, admitted: bool, has_room: bool) {
        for index in 0..self.counters.len() {
            let counted = self.counted(index, admitted);
            let Self { rules, now, ref mut plan, ref mut counters } = *self;
            let charges = &plan.by_key[counters.charges(index)];
            let first = charges[0] as usize;
            if !counted.is_nothing(counters.exists(index), has_room) {
                let limit = &*plan.charges[first].limit;
                let change = |state| counted.apply(&limit.algorithm, state, now);
                counters.update(index, limit, rules, now, change);
            }
            let state = counters.state(index, &plan.charges[first].limit, rules, now);
            let asked = Asked::of(charges.iter().map(|&charge| &plan.charges[charge as usize])).taken;
            for &charge in charges {
                let charge = &mut plan.charges[charge as usize];
                let is_shadow = plan.asking[charge.descriptor as usize].reached.is_shadow();
                read(charge, asked, is_shadow, &state, now);
            }
        }
    }
}

/// Hits asked of one counter, summed over its charges.
#[derive(Clone, Copy)]
struct Asked {
    taken: u64,
    given: u64,
}

impl Asked {
    #[inline]
    fn of<'c, 'r: 'c>(charges: impl Iterator<Item = &'c Charge<'r>>) -> Self {
        let mut sum = Self { taken: 0, given: 0 };
        for charge in charges {
            match charge.hits {
                Hits::Take(hits) => sum.taken = sum.taken.saturating_add(hits.get()),
                Hits::GiveBack(hits) => sum.given = sum.given.saturating_add(hits.get()),
                Hits::Peek => {}
            }
        }
        sum
    }

    /// Whether the counter stays as it is. One that does not exist has nothing to give back.
    #[inline]
    fn is_nothing(self, exists: bool, has_room: bool) -> bool {
        if exists { self.taken == 0 && self.given == 0 } else { self.taken == 0 || !has_room }
    }

    #[inline]
    fn apply(self, algorithm: &Algorithm, state: State, now: Timestamp) -> State {
        let state = if self.given == 0 { state } else { algorithm.give_back(state, self.given, now) };
        if self.taken == 0 { state } else { algorithm.add(state, self.taken, now) }
    }
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
