//! Resets of descriptors with several limits, of which one has a schedule.
//!
//! Without schedules what fits a limit fits it from then on, and all limits admit when the last of them does. With one, a limit that
//! admits now may not when another one begins to.

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
use std::time::Duration;

/// Moments that are tried before the last one is reported. Each is at least as late as the one before it.
const MOMENTS_MAX: usize = 64;

impl<C: Counters> Deciding<'_, '_, C> {
    /// Sets the resets of denials to the first moment at which all limits of the descriptor admit.
    #[cold]
    pub(super) fn join_resets(&mut self) {
        for index in 0..self.descriptors.len() as u32 {
            let of = |charge: &&Charge<'_>| charge.descriptor == index;
            let charges = || self.charges.iter().filter(of);
            let has_schedule = |charge: &Charge<'_>| {
                charge.limit.has_schedule() && charge.limit.semantics == Semantics::Exact
            };
            let is_joint = charges().count() > 1 && charges().any(has_schedule);
            let is_over = |charge: &Charge<'_>| charge.fit == Fit::Over && charge.reset.is_some();
            if !is_joint || !charges().any(is_over) {
                continue;
            }
            let reset = self.until_all_admit(index);
            for charge in
                self.charges.iter_mut().filter(|charge| charge.descriptor == index && is_over(charge))
            {
                charge.reset = Some(reset);
            }
        }
    }

    fn until_all_admit(&self, descriptor: u32) -> Reset {
        let of_descriptor = |counter: &&PlannedCounter| {
            self.by_key[counter.charges()]
                .iter()
                .any(|&charge| self.charges[charge as usize].descriptor == descriptor)
        };
        let mut wait = Duration::ZERO;
        for _ in 0..MOMENTS_MAX {
            let then = self.now.saturating_add(wait);
            let more =
                self.counters.iter().filter(of_descriptor).map(|counter| self.until_admits(counter, then));
            match more.max().unwrap_or(Reset::NOW) {
                Reset::Never => return Reset::Never,
                Reset::After(Duration::ZERO) => break,
                Reset::After(more) => wait = wait.saturating_add(more),
            }
        }
        Reset::After(wait)
    }

    /// The wait from a moment on until the hits of the request for a counter fit it.
    fn until_admits(&self, counter: &PlannedCounter, then: Timestamp) -> Reset {
        let charge = self.first(counter);
        let state = after_give_back(&charge.limit.algorithm, self.shards.state(counter), counter.hits, then);
        let taken = if charge.hits == Hits::Peek { 1 } else { counter.hits.taken };
        charge.limit.until_admits(&state, taken, then)
    }
}
