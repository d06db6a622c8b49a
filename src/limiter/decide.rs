//! The decision, in three steps: every counter of the request is evaluated; the verdict decides whether all are charged
//! or none; each descriptor's status is read from what its counters then hold.

use super::{
    charge::{Answer, Charge, Plan},
    counters::Counters,
    status::{Seen, status},
};
use crate::{
    algorithm::{Algorithm, State},
    limit::{Code, Decision, Hits, Request, Status, Timestamp},
    rules::{RuleLimit, RuleSet, Semantics},
    store::{OnFull, Store},
};
use smallvec::{SmallVec, smallvec};

pub(super) fn decide<'r>(
    rules: &'r RuleSet,
    store: &Store,
    global_shadow: bool,
    request: &Request<'_>,
    now: Timestamp,
) -> Decision<'r> {
    let count = request.descriptors().len();
    let Some(domain) = rules.domain(request.domain()) else {
        return Decision { code: Code::Ok, statuses: smallvec![Status::NO_LIMIT; count] };
    };
    let plan = Plan::new(domain, store.seed(), request);
    let counters = Counters::lock(store, &plan.charges);
    let mut deciding = Deciding { rules, now, plan, counters, over: smallvec![false; count] };
    deciding.evaluate();
    let mut code = deciding.verdict();
    let has_room = deciding.make_room(code == Code::Ok || global_shadow);
    if !has_room && store.on_full() == OnFull::Deny {
        deciding.deny_newcomers();
        code = deciding.verdict();
    }
    let admitted = code == Code::Ok || global_shadow;
    let statuses = deciding.settle(admitted, has_room);
    Decision { code: if admitted { Code::Ok } else { code }, statuses }
}

struct Deciding<'r, 's> {
    rules: &'r RuleSet,
    now: Timestamp,
    plan: Plan<'r>,
    counters: Counters<'s>,
    /// For each descriptor, whether a limit of it does not admit; whatever shadow or quota make of it.
    over: SmallVec<[bool; 4]>,
}

impl<'r> Deciding<'r, '_> {
    /// Asks every counter whether it admits its charges; charges nothing.
    fn evaluate(&mut self) {
        for index in 0..self.counters.len() {
            let charges = &mut self.plan.charges[self.counters.charges(index)];
            let state = self.counters.state(index, &charges[0].limit, self.rules, self.now);
            let asked = Asked::of(charges, |_| true);
            let given = (asked.given > 0)
                .then(|| charges[0].limit.algorithm.give_back((*state).clone(), asked.given, self.now));
            let state = given.as_ref().unwrap_or(&state);
            for charge in charges {
                if !admits(charge, asked.taken, state, self.now) {
                    charge.answer = Answer::Over;
                    self.over[charge.descriptor] = true;
                }
            }
        }
    }

    /// The verdict on the whole: over if any descriptor is, where quota descriptors count only when all of them are.
    fn verdict(&self) -> Code {
        let (mut quotas, mut quotas_over) = (0, 0);
        for (&reached, &over) in self.plan.reached.iter().zip(&self.over) {
            let over = over && !reached.is_shadow();
            if reached.is_quota() {
                quotas += 1;
                quotas_over += usize::from(over);
            } else if over {
                return Code::OverLimit;
            }
        }
        if quotas > 0 && quotas == quotas_over { Code::OverLimit } else { Code::Ok }
    }

    /// Whether the charge is counted, given whether the request is admitted. A descriptor that is over is not charged
    /// even if it is let through: all of its limits must admit.
    fn counts(&self, charge: &Charge<'_>, admitted: bool) -> bool {
        charge.is_always() || (admitted && !self.over[charge.descriptor])
    }

    /// Whether settling will make this counter.
    fn is_newcomer(&self, index: usize, admitted: bool) -> bool {
        !self.counters.exists(index)
            && Asked::of(&self.plan.charges[self.counters.charges(index)], |c| self.counts(c, admitted)).taken
                > 0
    }

    /// Sees to it that there is room for the counters that settling will make.
    fn make_room(&mut self, admitted: bool) -> bool {
        let new = (0..self.counters.len()).filter(|&index| self.is_newcomer(index, admitted)).count();
        self.counters.make_room(new, self.now)
    }

    /// There is no room: descriptors that need a new counter are over.
    fn deny_newcomers(&mut self) {
        for index in (0..self.counters.len()).filter(|&index| !self.counters.exists(index)) {
            for charge in &mut self.plan.charges[self.counters.charges(index)] {
                if matches!(charge.hits, Hits::Take(_)) && charge.answer == Answer::Admitted {
                    charge.answer = Answer::NoRoom;
                    self.over[charge.descriptor] = true;
                }
            }
        }
    }

    /// Charges what is to be charged, and reads the statuses. Without room no counter is made.
    fn settle(mut self, admitted: bool, has_room: bool) -> SmallVec<[Status<'r>; 2]> {
        let mut tightest: SmallVec<[Option<Seen<'r>>; 4]> = smallvec![None; self.over.len()];
        for index in 0..self.counters.len() {
            let range = self.counters.charges(index);
            let charges = &self.plan.charges[range.clone()];
            let asked = Asked::of(charges, |_| true).taken;
            let counted = Asked::of(charges, |charge| self.counts(charge, admitted));
            let (limit, now) = (&*charges[0].limit, self.now);
            let mut read = |state: &State| {
                for charge in charges {
                    let is_shadow = self.plan.reached[charge.descriptor].is_shadow();
                    let seen = Seen::read(charge, asked, is_shadow, state, now);
                    let tightest = &mut tightest[charge.descriptor];
                    if tightest.as_ref().is_none_or(|other| seen.is_tighter_than(other)) {
                        *tightest = Some(seen);
                    }
                }
            };
            if counted.is_nothing(self.counters.exists(index), has_room) {
                read(&self.counters.state(index, limit, self.rules, now));
            } else {
                let change = |state| counted.apply(&limit.algorithm, state, now);
                self.counters.update(index, limit, self.rules, now, change, read);
            }
        }
        self.plan.reached.iter().zip(tightest).map(|(&reached, seen)| status(reached, seen)).collect()
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
    fn of(charges: &[Charge<'_>], which: impl Fn(&Charge<'_>) -> bool) -> Self {
        let mut sum = Self { taken: 0, given: 0 };
        for charge in charges.iter().filter(|charge| which(charge)) {
            match charge.hits {
                Hits::Take(hits) => sum.taken = sum.taken.saturating_add(hits.get()),
                Hits::GiveBack(hits) => sum.given = sum.given.saturating_add(hits.get()),
                Hits::Peek => {}
            }
        }
        sum
    }

    /// Whether the counter stays as it is. One that does not exist has nothing to give back.
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
