//! Resets of descriptors with several limits, of which one has a schedule.
//!
//! Without schedules what fits a limit fits it from then on, and all limits admit when the last of them does. With one, a limit that
//! admits now may not when another one begins to, or when a ban ends.

use super::{
    counters::Counters,
    deciding::Deciding,
    plan::{Charge, Fit, PlannedCounter},
    status::after_give_back,
};
use crate::{
    limit::{Hits, Reset, Timestamp},
    rules::Semantics,
};
use std::{ops::Range, time::Duration};

/// Moments that are tried: after so many at which one limit begins to admit and another does not, they never admit together.
const MOMENTS_MAX: usize = 64;

impl<C: Counters> Deciding<'_, '_, C> {
    /// Sets the resets of denials to the first moment at which all limits of the descriptor admit, and no ban is in force.
    #[cold]
    pub(super) fn join_resets(&mut self) {
        let mut begin = 0;
        for descriptor in 0..self.descriptors.len() {
            let plan = self.descriptors[descriptor];
            let charges = begin..begin + plan.charges as usize;
            begin = charges.end;
            let has_schedule = |charge: &Charge<'_>| {
                charge.limit.has_schedule() && charge.limit.semantics == Semantics::Exact
            };
            let is_joint = charges.len() > 1 && self.charges[charges.clone()].iter().any(has_schedule);
            let is_denial = |charge: &Charge<'_>| {
                matches!(charge.fit, Fit::Over | Fit::BanBegins | Fit::Banned)
                    && !charge.is_ban
                    && charge.reset.is_some()
            };
            let is_shown = is_joint && !plan.reached.is_shadow();
            if !is_shown || !self.charges[charges.clone()].iter().any(is_denial) {
                continue;
            }
            let reset = self.until_all_admit(charges.clone());
            for charge in self.charges[charges].iter_mut().filter(|charge| is_denial(charge)) {
                charge.reset = Some(reset);
            }
        }
    }

    fn until_all_admit(&self, charges: Range<usize>) -> Reset {
        let mut wait = Duration::ZERO;
        for _ in 0..MOMENTS_MAX {
            let then = self.now.saturating_add(wait);
            let more = charges.clone().map(|charge| self.until_admits(charge, then));
            match more.max().unwrap_or(Reset::NOW) {
                Reset::Never => return Reset::Never,
                Reset::After(Duration::ZERO) => return Reset::After(wait),
                Reset::After(more) => wait = wait.saturating_add(more),
            }
        }
        Reset::Never
    }

    /// The wait from a moment on until the limit of a charge admits the hits of the request for its counter; of a ban, until it ends.
    pub(super) fn until_admits(&self, charge: usize, then: Timestamp) -> Reset {
        let of_charge = |counter: &&PlannedCounter| self.by_key[counter.charges()].contains(&(charge as u32));
        let Some(counter) = self.counters.iter().find(of_charge) else { return Reset::NOW };
        let charge = &self.charges[charge];
        let state = after_give_back(&charge.limit.algorithm, self.shards.state(counter), counter.hits, then);
        let taken = if charge.hits == Hits::Peek { 1 } else { counter.hits.taken };
        charge.limit.until_admits(&state, taken, then)
    }
}
