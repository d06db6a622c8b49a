//! The limit of a charge.

use super::hit_sum::HitSum;
use crate::{
    algorithm::State,
    limit::{Reset, Timestamp},
    rules::RuleLimit,
};
use std::ops::Deref;

/// The limit of a charge.
pub(super) enum ChargeLimit<'r> {
    /// From a rule.
    Rule(&'r RuleLimit),
    /// From a rule with a schedule: the limit that applies at the time of the request.
    // `in_force` lies where the other variants keep their limit: to read it is one load.
    Scheduled { in_force: &'r RuleLimit, declared: &'r RuleLimit },
    /// From the request. Boxed because it is rare and large.
    RequestLimit(Box<RuleLimit>),
}

impl Deref for ChargeLimit<'_> {
    type Target = RuleLimit;

    #[inline]
    fn deref(&self) -> &RuleLimit {
        match self {
            Self::Rule(limit) | Self::Scheduled { in_force: limit, .. } => limit,
            Self::RequestLimit(limit) => limit,
        }
    }
}

impl ChargeLimit<'_> {
    /// Whether another number may apply at another time.
    pub(super) fn has_schedule(&self) -> bool {
        match self {
            Self::Rule(limit) => limit.schedule.is_some(),
            Self::Scheduled { .. } => true,
            Self::RequestLimit(_) => false,
        }
    }

    /// The least wait until the hits would be admitted, if no other hits arrived and the request's negative hits were given back. Estimates
    /// are recomputed for the limit that applies then.
    #[inline]
    pub(super) fn until_admits(
        &self,
        state: &State,
        (HitSum { taken, given }, are_estimates): (HitSum, bool),
        now: Timestamp,
    ) -> Reset {
        match self {
            Self::Rule(declared) | Self::Scheduled { declared, .. } if declared.schedule.is_some() => {
                let hits = |limit: &RuleLimit| self.hits_of(limit, taken, are_estimates);
                declared.until_admits_any(state, (given, hits), now)
            }
            limit => limit.algorithm.until_admits_after(state, (given, taken), now),
        }
    }

    /// The hits that `limit`, of the same schedule, would charge instead.
    fn hits_of(&self, limit: &RuleLimit, hits: u64, are_estimates: bool) -> u64 {
        // A sum of estimates: the same number of estimates of the other limit.
        if are_estimates { hits / self.hits_of_peek() * limit.hits_of_peek() } else { hits }
    }
}
