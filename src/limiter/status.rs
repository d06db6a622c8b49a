//! What a descriptor is told of its limits: the tightest one's numbers.

use super::charge::{Answer, Charge, Reached};
use crate::{
    algorithm::{Algorithm, State},
    limit::{Code, CurrentLimit, Hits, Reset, Status, Timestamp},
    rules::Semantics,
};

/// One limit as its counter stands after the decision.
#[derive(Clone, Copy)]
pub(super) struct Seen<'r> {
    limit: CurrentLimit<'r>,
    /// Which of the rule's limits; the first wins ties.
    ordinal: u32,
    code: Code,
    remaining: u64,
    /// None if nobody knows: there is no room for the counter.
    reset: Option<Reset>,
}

impl<'r> Seen<'r> {
    /// Reads the counter's state. `taken` is what all charges of the counter asked for together: the reset of a denial
    /// is that of this same request.
    #[inline]
    pub(super) fn read(
        charge: &Charge<'r>,
        taken: u64,
        is_shadow: bool,
        state: &State,
        now: Timestamp,
    ) -> Self {
        let algorithm = &charge.limit.algorithm;
        let code = if charge.answer == Answer::Admitted || is_shadow { Code::Ok } else { Code::OverLimit };
        if code == Code::OverLimit && charge.answer == Answer::NoRoom {
            let (limit, ordinal) = (charge.current(), charge.limit.ordinal);
            return Self { limit, ordinal, code, remaining: 0, reset: None };
        }
        let wanted = if charge.hits == Hits::Peek { 1 } else { taken };
        let reset = match (charge.limit.semantics, algorithm, code) {
            // The reference server always speaks of the window's end.
            (Semantics::Reference, Algorithm::FixedWindow(fixed), _) => {
                Reset::After(fixed.until_window_ends(state, now))
            }
            (_, _, Code::Ok) => Reset::After(algorithm.until_full(state, now)),
            (_, _, Code::OverLimit) => algorithm.until_admits(state, wanted, now),
        };
        let remaining = algorithm.remaining(state, now);
        Self { limit: charge.current(), ordinal: charge.limit.ordinal, code, remaining, reset: Some(reset) }
    }

    /// A denial is tighter than an admission; among denials the one with the longest known reset, among admissions the
    /// one with less left.
    #[inline]
    pub(super) fn is_tighter_than(&self, other: &Self) -> bool {
        let is_first = self.ordinal < other.ordinal;
        match (self.code, other.code) {
            (Code::OverLimit, Code::Ok) => true,
            (Code::Ok, Code::OverLimit) => false,
            (Code::OverLimit, Code::OverLimit) => {
                self.reset > other.reset || (self.reset == other.reset && is_first)
            }
            (Code::Ok, Code::Ok) => {
                self.remaining < other.remaining || (self.remaining == other.remaining && is_first)
            }
        }
    }
}

/// The status of a descriptor that reached `reached`, of whose limits `seen` is the tightest.
#[inline]
pub(super) fn status<'r>(reached: Reached<'r>, seen: Option<Seen<'r>>) -> Status<'r> {
    match (reached, seen) {
        (Reached::Unlimited(_), _) => Status::UNLIMITED,
        (_, None) => Status::NO_LIMIT,
        (_, Some(seen)) => Status {
            code: seen.code,
            limit: Some(seen.limit),
            remaining: u32::try_from(seen.remaining).unwrap_or(u32::MAX),
            reset: seen.reset,
        },
    }
}
