//! The status of each descriptor, read from its counters after the decision.

use super::{
    hit_sum::HitSum,
    plan::{Charge, DescriptorPlan, Fit, Plan},
    reached::Reached,
};
use crate::{
    algorithm::{Algorithm, Standing, State, StateView},
    limit::{AppliedLimit, Code, Decision, GrantedSlot, Hits, RareNumbers, Reset, Status, Timestamp},
    rules::Semantics,
};
use smallvec::SmallVec;
use std::time::Duration;

/// Numbers of one counter after the decision, as one limit reads them.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    /// Hits that would be admitted now.
    pub(super) remaining: u64,
    /// Time until the whole limit is free, if computed along with the state; a denial does not need it.
    pub(super) until_full: Option<Duration>,
}

impl Reading {
    #[inline]
    pub(super) fn of(algorithm: &Algorithm, state: &State, now: Timestamp) -> Self {
        Self { remaining: algorithm.remaining(state, now), until_full: None }
    }
}

/// Sets `remaining` and `reset` of a charge. `hits` are the whole request's for this counter: the reset of a denial is the wait until the
/// same request would be admitted, so the hits that it gives back are applied first.
#[inline]
pub(super) fn report<'s>(
    charge: &mut Charge<'_>,
    hits: HitSum,
    is_shadow: impl FnOnce() -> bool,
    reading: Reading,
    state: impl FnOnce() -> StateView<'s>,
    now: Timestamp,
) {
    if charge.fit == Fit::NoRoom {
        // Also in shadow mode: nothing is known of the counter.
        return;
    }
    let algorithm = &charge.limit.algorithm;
    // The reference server always reports the end of the window.
    let of_reference = if charge.limit.semantics == Semantics::Reference { algorithm.fixed() } else { None };
    let reset = if let Some(fixed) = of_reference {
        Reset::After(fixed.until_window_ends(&state(), now))
    } else if code(charge, is_shadow) == Code::Ok {
        Reset::After(reading.until_full.unwrap_or_else(|| algorithm.until_full(&state(), now)))
    } else if let Some(concurrency) = algorithm.concurrency() {
        let taken = if charge.hits == Hits::Peek { 1 } else { hits.taken };
        concurrency.expected_wait(&state(), taken, now)
    } else {
        charge.until_admits(&state(), hits, now)
    };
    charge.remaining = reading.remaining;
    charge.reset = Some(reset);
}

/// The state that the hits of a request have to fit: with the request's own negative hits given back.
#[inline]
pub(super) fn after_give_back<'s>(
    algorithm: &Algorithm,
    state: StateView<'s>,
    hits: HitSum,
    now: Timestamp,
) -> StateView<'s> {
    if hits.given == 0 {
        return state;
    }
    StateView::Owned(algorithm.give_back(state.into_owned(), hits.given, now))
}

/// Counts hits on a counter.
#[inline]
pub(super) fn apply(hits: HitSum, algorithm: &Algorithm, state: State, now: Timestamp) -> Standing {
    let state = give_back(hits.given, algorithm, state, now);
    if hits.taken == 0 { algorithm.standing(state, now) } else { algorithm.charge(state, hits.taken, now) }
}

#[inline]
pub(super) fn give_back(hits: u64, algorithm: &Algorithm, state: State, now: Timestamp) -> State {
    if hits == 0 { state } else { algorithm.give_back(state, hits, now) }
}

/// The decision on a request, from the reports of its charges. Complete: a decision completed by the caller would be copied.
pub(super) fn reported_decision<'r>(
    code: Code,
    plan: &Plan<'r>,
    number: u64,
    slot: Option<Box<GrantedSlot>>,
) -> Decision<'r> {
    let mut decision = Decision::new(code, SmallVec::new());
    (decision.number, decision.slot) = (number, slot);
    let mut rest = plan.charges.as_slice();
    for descriptor in &plan.descriptors {
        let charges;
        (charges, rest) = rest.split_at(descriptor.charges as usize);
        let tightest = tightest(descriptor, charges);
        if charges.len() > 1 {
            let others = charges.iter().filter(|charge| tightest.is_none_or(|it| !std::ptr::eq(it, *charge)));
            decision.beside.extend(others.map(beside));
        }
        decision.statuses.push(status(descriptor, tightest));
    }
    if plan.charges.iter().any(|charge| charge.excess > 0) {
        decision.rare = Some(Box::new(RareNumbers { excess: excess(plan), ..RareNumbers::default() }));
    }
    if !plan.unknown_days.is_empty() {
        decision.rare.get_or_insert_default().unknown_days = plan.unknown_days.to_vec();
    }
    decision
}

/// See [`RareNumbers::excess`]: the most of any limit of the descriptor.
#[cold]
fn excess(plan: &Plan<'_>) -> Box<[u64]> {
    let mut excess: Box<[u64]> = plan.descriptors.iter().map(|_| 0).collect();
    for charge in &plan.charges {
        let most = &mut excess[charge.descriptor as usize];
        *most = charge.excess.max(*most);
    }
    excess
}

fn beside(charge: &Charge<'_>) -> AppliedLimit {
    AppliedLimit {
        descriptor: charge.descriptor,
        capacity: charge.limit.capacity,
        remaining: remaining(charge),
        series: charge.limit.series,
        is_over: charge.fit != Fit::Admitted,
        reset: charge.reset,
        ban: charge.ban(),
    }
}

fn remaining(charge: &Charge<'_>) -> u32 {
    u32::try_from(charge.remaining).unwrap_or(u32::MAX)
}

/// The tightest limit of one descriptor, the first of equally tight ones.
#[inline]
fn tightest<'c, 'r>(descriptor: &DescriptorPlan<'r>, charges: &'c [Charge<'r>]) -> Option<&'c Charge<'r>> {
    charges.iter().reduce(|tightest, next| tighter(tightest, next, descriptor.reached.is_shadow()))
}

/// The status of one descriptor: that of its tightest limit.
#[inline]
fn status<'r>(descriptor: &DescriptorPlan<'r>, tightest: Option<&Charge<'r>>) -> Status<'r> {
    match (descriptor.reached, tightest) {
        (Reached::Unlimited(_), _) => Status::UNLIMITED,
        (Reached::NotHeld, _) => Status { code: Code::OverLimit, is_over: true, ..Status::NO_LIMIT },
        (_, None) => Status::NO_LIMIT,
        (_, Some(charge)) => Status {
            code: code(charge, || descriptor.reached.is_shadow()),
            limit: Some(charge.current()),
            remaining: remaining(charge),
            reset: charge.reset,
            rule: descriptor.reached.rule_info(&charge.limit),
            series: charge.limit.series,
            is_over: charge.fit != Fit::Admitted,
            ban: charge.ban(),
            shows_values: matches!(descriptor.reached, Reached::Rule(rule) if rule.shows_values),
        },
    }
}

/// The tighter of two limits of one descriptor, the first if they are equal. A denial is tighter than an admission. Between denials the
/// longer known reset is tighter, between admissions fewer remaining hits.
fn tighter<'c, 'r>(first: &'c Charge<'r>, second: &'c Charge<'r>, is_shadow: bool) -> &'c Charge<'r> {
    let is_second = match (code(first, || is_shadow), code(second, || is_shadow)) {
        (Code::Ok, Code::OverLimit) => true,
        (Code::OverLimit, Code::Ok) => false,
        (Code::OverLimit, Code::OverLimit) => second.reset > first.reset,
        (Code::Ok, Code::Ok) => second.remaining < first.remaining,
    };
    if is_second { second } else { first }
}

#[inline]
fn code(charge: &Charge<'_>, is_shadow: impl FnOnce() -> bool) -> Code {
    if charge.fit == Fit::Admitted || is_shadow() { Code::Ok } else { Code::OverLimit }
}
