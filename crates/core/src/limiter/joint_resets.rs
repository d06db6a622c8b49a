//! Resets of denials that depend on several limits.
//!
//! Usually hits that fit a limit still fit it later, and a descriptor admits when the last of its limits does. The exceptions:
//!
//! - a limit has a schedule: it admits now, but may not once another limit begins to admit, or a ban ends;
//! - a limit has `charge: always`: the denial by another limit has charged it, so the same request may no longer fit it;
//! - for either reason, all quotas of a request may deny it later, though not now.

use super::{
    counters::Counters,
    deciding::Deciding,
    plan::{Charge, DescriptorPlan, Fit, PlannedCounter},
};
use crate::{
    limit::{Hits, Reset},
    rules::{ChargePolicy, Semantics},
};
use smallvec::SmallVec;
use std::{ops::Range, time::Duration};

/// Moments to try before concluding that the limits never admit together: at each, one begins to admit and another does not.
const MOMENTS_MAX: usize = 64;

/// Indices of charges.
type Charges = SmallVec<[usize; 4]>;

/// The charges of each quota, as ranges.
type Quotas = SmallVec<[Range<usize>; 2]>;

impl<C: Counters> Deciding<'_, '_, C> {
    /// Sets the resets that depend on several limits, after the decision: of bans, of descriptors with schedules, and of charged denials.
    #[inline]
    pub(super) fn combine(&mut self) {
        if self.has_bans {
            self.fold_bans();
        }
        if self.is_charged_denial || self.has_schedules {
            self.join_resets();
        }
    }

    #[cold]
    fn join_resets(&mut self) {
        let charged = if self.is_charged_denial { self.charged_by_denial() } else { Charges::new() };
        let quotas = self.quotas_that_admit();
        if self.has_schedules || !charged.is_empty() || !quotas.is_empty() {
            self.join(&charged, &quotas);
        }
    }

    /// The quotas, if one of them admits now: one has to admit a later request too.
    fn quotas_that_admit(&self) -> Quotas {
        let (mut quotas, mut begin, mut are_over) = (Quotas::new(), 0, true);
        for DescriptorPlan { reached, charges, is_over } in &*self.descriptors {
            let of_descriptor = begin..begin + *charges as usize;
            begin = of_descriptor.end;
            if reached.is_quota(self.compat) {
                if reached.is_shadow() {
                    return Quotas::new();
                }
                are_over &= is_over;
                quotas.push(of_descriptor);
            }
        }
        if are_over || self.charges.iter().any(Charge::is_report) { Quotas::new() } else { quotas }
    }

    /// The charges that fitted and were counted although the request is denied: a later request must fit their limits too. Excludes shadow
    /// rules and quotas, which do not deny by themselves, and counters for which there was no room.
    fn charged_by_denial(&self) -> Charges {
        let is_charged = |charge: &Charge<'_>| {
            let reached = self.descriptors[charge.descriptor as usize].reached;
            charge.limit.charge == ChargePolicy::Always
                && charge.limit.semantics == Semantics::Exact
                && charge.fit == Fit::Admitted
                && matches!(charge.hits, Hits::Take(_))
                && !(charge.is_report() || reached.is_shadow() || reached.is_quota(self.compat))
        };
        let has_counter =
            |charge: usize| self.counter_of(charge).is_some_and(|counter| self.shards.has(counter));
        let charges = self.charges.iter().enumerate();
        let charged = charges.filter(|(index, charge)| is_charged(charge) && has_counter(*index));
        charged.map(|(index, _)| index).collect()
    }

    /// Sets the reset of each denial to the first moment when all limits of its descriptor, all charged limits and a quota admit, and no
    /// ban is in force.
    fn join(&mut self, charged: &[usize], quotas: &[Range<usize>]) {
        let mut begin = 0;
        for descriptor in 0..self.descriptors.len() {
            let DescriptorPlan { reached, charges, .. } = self.descriptors[descriptor];
            let of_descriptor = begin..begin + charges as usize;
            begin = of_descriptor.end;
            let has_schedule = |charge: &Charge<'_>| {
                charge.limit.has_schedule() && charge.limit.semantics == Semantics::Exact
            };
            let is_scheduled = charges > 1 && self.charges[of_descriptor.clone()].iter().any(has_schedule);
            let is_denial = |charge: &Charge<'_>| {
                matches!(charge.fit, Fit::Over | Fit::BanBegins | Fit::Banned)
                    && charge.limit.semantics == Semantics::Exact
                    && !charge.is_ban
                    && charge.reset.is_some()
            };
            let quotas = if reached.is_quota(self.compat) { &[] } else { quotas };
            let is_joint = is_scheduled || !charged.is_empty();
            if reached.is_shadow() || (!is_joint && quotas.is_empty()) {
                continue;
            }
            for index in of_descriptor.clone() {
                let denial = &self.charges[index];
                // Slots alone: their reset is an estimate, and stays.
                if !is_denial(denial) || (!is_joint && denial.limit.algorithm.holds_slots()) {
                    continue;
                }
                let others = charged.iter().copied().filter(|charge| !of_descriptor.contains(charge));
                let with_ban =
                    (index..of_descriptor.end).take_while(|&next| next == index || self.charges[next].is_ban);
                let all: Charges = match is_joint {
                    true => others.chain(of_descriptor.clone()).collect(),
                    false => with_ban.collect(),
                };
                self.charges[index].reset = Some(self.until_all_admit(&all, quotas));
            }
        }
    }

    fn until_all_admit(&self, charges: &[usize], quotas: &[Range<usize>]) -> Reset {
        let mut wait = Duration::ZERO;
        for _ in 0..MOMENTS_MAX {
            let until = |charge| self.until_admits(charge, wait);
            let takes = |&charge: &usize| !matches!(self.charges[charge].hits, Hits::GiveBack(_));
            let of_quota =
                |quota: &Range<usize>| quota.clone().filter(takes).map(until).max().unwrap_or(Reset::NOW);
            let a_quota = quotas.iter().map(of_quota).min();
            let more = charges.iter().copied().map(until).chain(a_quota);
            match more.max().unwrap_or(Reset::NOW) {
                Reset::Never => return Reset::Never,
                Reset::After(Duration::ZERO) => return Reset::After(wait),
                Reset::After(more) => wait = wait.saturating_add(more),
            }
        }
        Reset::Never
    }

    /// The wait, after `after`, until the limit of a charge admits the request's hits for its counter; for a ban, until it ends.
    pub(super) fn until_admits(&self, charge: usize, after: Duration) -> Reset {
        let Some(counter) = self.counter_of(charge) else { return Reset::NOW };
        let then = self.shards.time(counter, self.now).saturating_add(after);
        let charge = &self.charges[charge];
        charge.until_admits(&self.shards.state(counter), counter.hits, then)
    }

    fn counter_of(&self, charge: usize) -> Option<&PlannedCounter> {
        self.counters.iter().find(|counter| self.by_key[counter.charges()].contains(&(charge as u32)))
    }
}
