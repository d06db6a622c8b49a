//! What a descriptor is told of its limits: the tightest one's numbers.

use super::charge::{Charge, DescriptorPlan, Outcome, Plan, Reached};
use crate::{
    algorithm::{Algorithm, State},
    limit::{Code, Hits, Reset, Status, Timestamp},
    rules::{RuleLimit, Semantics},
};
use smallvec::SmallVec;
use std::{borrow::Cow, time::Duration};

/// What a counter tells all of its charges after the decision.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    /// Hits that would be admitted now.
    pub(super) remaining: u64,
    /// Until the whole limit is free.
    pub(super) until_full: Duration,
}

impl Reading {
    #[inline]
    pub(super) fn of(algorithm: &Algorithm, state: &State, now: Timestamp) -> Self {
        Self { remaining: algorithm.remaining(state, now), until_full: algorithm.until_full(state, now) }
    }
}

/// Reads what the counter of a charge tells after the decision, and what its state says beyond that. `taken` is what all
/// charges of the counter asked for together: the reset of a denial is that of this same request.
#[inline]
pub(super) fn read<'s>(
    charge: &mut Charge<'_>,
    taken: u64,
    is_shadow: bool,
    told: Reading,
    state: impl FnOnce(&RuleLimit) -> Cow<'s, State>,
    now: Timestamp,
) {
    let algorithm = &charge.limit.algorithm;
    let reset = match (charge.limit.semantics, algorithm, code(charge, is_shadow)) {
        (_, _, Code::OverLimit) if charge.outcome == Outcome::NoRoom => return,
        // The reference server always speaks of the window's end.
        (Semantics::Reference, Algorithm::FixedWindow(fixed), _) => {
            Reset::After(fixed.until_window_ends(&state(&charge.limit), now))
        }
        (_, _, Code::Ok) => Reset::After(told.until_full),
        (_, _, Code::OverLimit) => {
            let wanted = if charge.hits == Hits::Peek { 1 } else { taken };
            algorithm.until_admits(&state(&charge.limit), wanted, now)
        }
    };
    charge.remaining = told.remaining;
    charge.reset = Some(reset);
}

/// The statuses of a request whose charges have been read.
#[inline]
pub(super) fn statuses<'r>(plan: &Plan<'r>) -> SmallVec<[Status<'r>; 4]> {
    let mut statuses = SmallVec::new();
    let mut rest = plan.charges.as_slice();
    for asking in &plan.asking {
        let charges;
        (charges, rest) = rest.split_at(asking.charges as usize);
        statuses.push(status(asking, charges));
    }
    statuses
}

/// The status of one descriptor: what its tightest limit says, the first of several equally tight ones.
#[inline]
fn status<'r>(asking: &DescriptorPlan<'r>, charges: &[Charge<'r>]) -> Status<'r> {
    let is_shadow = asking.reached.is_shadow();
    let tightest = charges.iter().reduce(
        |tightest, next| {
            if is_tighter(next, tightest, is_shadow) { next } else { tightest }
        },
    );
    match (asking.reached, tightest) {
        (Reached::Unlimited(_), _) => Status::UNLIMITED,
        (_, None) => Status::NO_LIMIT,
        (_, Some(charge)) => Status {
            code: code(charge, is_shadow),
            limit: Some(charge.current()),
            remaining: u32::try_from(charge.remaining).unwrap_or(u32::MAX),
            reset: charge.reset,
            rule: asking.reached.rule_info(),
        },
    }
}

/// A denial is tighter than an admission; among denials the one with the longest known reset, among admissions the one
/// with less left.
fn is_tighter(one: &Charge<'_>, other: &Charge<'_>, is_shadow: bool) -> bool {
    match (code(one, is_shadow), code(other, is_shadow)) {
        (Code::OverLimit, Code::Ok) => true,
        (Code::Ok, Code::OverLimit) => false,
        (Code::OverLimit, Code::OverLimit) => one.reset > other.reset,
        (Code::Ok, Code::Ok) => one.remaining < other.remaining,
    }
}

#[inline]
fn code(charge: &Charge<'_>, is_shadow: bool) -> Code {
    if charge.outcome == Outcome::Admitted || is_shadow { Code::Ok } else { Code::OverLimit }
}
