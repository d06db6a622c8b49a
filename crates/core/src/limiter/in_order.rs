//! Decisions as the reference server makes them: it charges the counters of a request one descriptor after another.
//!
//! Applies to limits that the reference server has too ([`RuleLimit::is_joined`](crate::rules::RuleLimit::is_joined)). All of their charges
//! are counted, whatever the verdict, so no charge depends on a later charge.

use super::{
    counters::Counters,
    deciding::Deciding,
    plan::{Fit, PlannedCounter},
};
use crate::limit::Hits;

impl<C: Counters> Deciding<'_, '_, C> {
    /// Evaluates the charges of one counter in the order of the request, and sets what remains after each.
    pub(super) fn evaluate_in_order(&mut self, counter: &PlannedCounter) {
        let algorithm = &self.first(counter).limit.algorithm;
        let mut used = algorithm.used(&self.shards.state(counter), self.now);
        for &charge in &self.by_key[counter.charges()] {
            let charge = &mut self.charges[charge as usize];
            let limit = u64::from(charge.limit.requests);
            match charge.hits {
                Hits::Take(hits) if charge.counts => used = used.saturating_add(hits.get()),
                Hits::GiveBack(hits) => used = used.saturating_sub(hits.get()),
                Hits::Take(_) | Hits::Peek => {}
            }
            let is_full = charge.is_check && used >= limit;
            if (used > limit || is_full) && !matches!(charge.hits, Hits::GiveBack(_)) {
                charge.fit = Fit::Over;
                self.descriptors[charge.descriptor as usize].is_over = true;
            }
            charge.remaining = limit.saturating_sub(used);
            charge.excess = used.saturating_sub(limit);
        }
    }

    /// Sets the excess of the charges to a counter in a shared store, which charges the sum of its hits.
    #[cold]
    pub(super) fn set_excess_of_sum(&mut self, counter: &PlannedCounter) {
        let algorithm = &self.first(counter).limit.algorithm;
        let used = algorithm.used(&self.shards.state(counter), self.shards.time(counter, self.now));
        let used = used.saturating_sub(counter.hits.given).saturating_add(counter.hits.taken);
        for &charge in &self.by_key[counter.charges()] {
            let charge = &mut self.charges[charge as usize];
            charge.excess = used.saturating_sub(u64::from(charge.limit.requests));
        }
    }

    /// If a descriptor would exceed its limit, stops counting for those that would not. Evaluates each by itself, before anything is
    /// counted.
    #[cold]
    pub(super) fn stop_counting(&mut self) {
        let mut is_any_over = false;
        for counter in self.counters {
            if !self.first(counter).limit.is_joined {
                continue;
            }
            let now = self.shards.time(counter, self.now);
            let used = self.first(counter).limit.algorithm.used(&self.shards.state(counter), now);
            for &charge in &self.by_key[counter.charges()] {
                let charge = &mut self.charges[charge as usize];
                let hits = match charge.hits {
                    Hits::Take(hits) => hits.get(),
                    Hits::Peek => 0,
                    // Counted in any case.
                    Hits::GiveBack(_) => continue,
                };
                charge.counts = used.saturating_add(hits) > u64::from(charge.limit.requests);
                is_any_over |= charge.counts;
            }
        }
        if !is_any_over {
            self.charges.iter_mut().for_each(|charge| charge.counts = true);
        }
    }
}
