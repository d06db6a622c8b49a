//! The store's side: one counter with the leases on it. These are the operations that the store's script runs.
//!
//! Each of them first expires leases, then reads `remaining` of the hits that are used, less the outstanding credits.

use super::{LeaseRequest, LeaseResponse, Supply, Terms, allocation::Claims, epoch::Epoch};
use std::time::Duration;
use tidegate_core::{
    algorithm::{Lease, Leased, State},
    limit::{Reset, Timestamp},
};

/// A counter and its leases.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SharedCounter(pub(super) Leased);

/// Credits for one node.
struct Grant {
    /// Of all credits.
    share: u64,
    /// Beyond those that it keeps.
    credits: u64,
    supply: Supply,
    report_after: Duration,
}

/// A lease of which a node has reported.
struct Settled {
    /// Credits that the node keeps.
    kept: u64,
    /// The time up to which they were granted; none if they were declared.
    end: Option<Timestamp>,
}

/// Result of an exact decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExactDecision {
    /// The hits are counted.
    Admitted {
        /// Hits that are then neither used nor granted.
        free: u64,
        /// Time until the whole limit would be free.
        until_full: Duration,
    },
    /// No hit is counted.
    Denied {
        /// Hits that are neither used nor granted.
        free: u64,
        /// The wait after which the hits are admitted, whatever is spent or returned of the credits that are out now.
        reset: Reset,
        /// The wait for which they cannot be admitted even if all credits are returned; zero if credits alone deny them.
        denied_for: Duration,
    },
    /// The store is in a learning phase, and decides nothing.
    Learning,
}

impl SharedCounter {
    /// A counter with these hits, without outstanding credits.
    pub fn new(state: State) -> Self {
        Self(Leased { state, ..Leased::default() })
    }

    /// The counter with these leases.
    pub fn of(leased: Leased) -> Self {
        Self(leased)
    }

    /// The counter as it is stored.
    pub fn into_leased(self) -> Leased {
        self.0
    }

    /// The hits that are used.
    pub fn state(&self) -> &State {
        &self.0.state
    }

    /// The leases, in no order. Those that have ended are still there until the next operation.
    pub fn leases(&self) -> &[Lease] {
        &self.0.leases
    }

    /// Decides hits on the store's time; zero hits are a peek.
    pub fn decide(&mut self, terms: Terms<'_>, epoch: Epoch, hits: u64, now: Timestamp) -> ExactDecision {
        self.expire_leases(terms, now);
        if epoch.is_learning(terms.settings.length_nanos(), now) {
            return ExactDecision::Learning;
        }
        let free = self.free(terms, now);
        if hits <= free {
            self.0.add_exact(terms.algorithm, hits, now);
            let until_full = terms.algorithm.until_full(&self.0.state, now);
            return ExactDecision::Admitted { free: free - hits, until_full };
        }
        let leased = State::Leased(Box::new(self.0.clone()));
        let reset = terms.algorithm.until_admits(&leased, hits, now);
        let denied_for = match terms.algorithm.until_admits(&self.0.state, hits, now) {
            Reset::After(wait) => wait,
            Reset::Never => Duration::MAX,
        };
        ExactDecision::Denied { free, reset, denied_for }
    }

    /// Gives back the newest hits, and returns their number: see [`Leased::give_back`].
    pub fn give_back(&mut self, terms: Terms<'_>, hits: u64, now: Timestamp) -> u64 {
        self.expire_leases(terms, now);
        self.0.give_back(terms.algorithm, hits, now)
    }

    /// Frees all hits, and returns the number of those that stay: see [`Leased::reset`].
    pub fn reset(&mut self, terms: Terms<'_>, now: Timestamp) -> u64 {
        self.0.reset(terms.algorithm, now)
    }

    /// Converts the counter to another algorithm: hits that are used stay used, credits stay outstanding until their end.
    pub fn change_rule(&mut self, former: Terms<'_>, terms: Terms<'_>, now: Timestamp) {
        self.0 = std::mem::take(&mut self.0).take_over(terms.algorithm, former.algorithm, now);
    }

    /// Counts what the node reports as spent, takes back what it does not keep, and grants its share; none for a request that is
    /// not newer than the node's last one.
    pub fn lease(
        &mut self,
        terms: Terms<'_>,
        epoch: Epoch,
        request: &LeaseRequest,
        now: Timestamp,
    ) -> Option<LeaseResponse> {
        self.expire_leases(terms, now);
        let is_learning = epoch.is_learning(terms.settings.length_nanos(), now);
        let Settled { kept, end: former_end } = self.settle(terms, request, is_learning, now)?;
        let end = terms.end(&self.0.state, now);
        // Without an end no credits are possible; those that the node keeps have passed with their window.
        let kept = if end.is_some() { kept } else { 0 };
        let free = self.free(terms, now).saturating_sub(kept);
        let none = |supply| Grant { share: 0, credits: 0, supply, report_after: terms.settings.length / 2 };
        let granted = match end {
            _ if is_learning => none(Supply::Learning),
            Some(end) => self.grant(terms, request, kept, free, (now, end)),
            None => none(Supply::TooSmall),
        };
        // What a node keeps beyond its share is not renewed. It cannot be taken back at once: the node goes on to spend it.
        let former_end = former_end.filter(|_| !is_learning && kept > granted.share);
        let end = end.map(|end| former_end.map_or(end, |former| former.min(end)));
        let end_or_now = end.unwrap_or(now);
        let outstanding = kept + granted.credits;
        if request.demand > 0 || outstanding > 0 {
            let (node, holder, sequence) = (request.node.0, request.holder, request.sequence);
            let end = if outstanding > 0 { end_or_now } else { self.silent_end(terms, now) };
            let demand = request.demand;
            self.0.leases.push(Lease {
                node,
                holder,
                sequence,
                settled: request.spent,
                outstanding,
                end,
                demand,
            });
        }
        Some(LeaseResponse {
            sequence: request.sequence,
            epoch: epoch.id,
            spend_to: request.spent + outstanding,
            valid_for: end_or_now.since(now),
            supply: granted.supply,
            report_after: granted.report_after,
            free: free - granted.credits,
            empty_for: self.empty_for(terms, now),
            until_full: terms.algorithm.until_full(&self.0.state, now),
        })
    }

    fn expire_leases(&mut self, terms: Terms<'_>, now: Timestamp) {
        self.0.expire(terms.algorithm, now);
    }

    /// Counts the hits that the request reports and takes the node's lease out.
    fn settle(
        &mut self,
        terms: Terms<'_>,
        request: &LeaseRequest,
        is_learning: bool,
        now: Timestamp,
    ) -> Option<Settled> {
        let Some(index) = self
            .0
            .leases
            .iter()
            .position(|lease| (lease.node, lease.holder) == (request.node.0, request.holder))
        else {
            // The lease has ended, and all of its credits count as used. Or it was lost: then the declaration applies, but
            // not to windows from the first hit, which only an exact decision opens.
            let is_declared = is_learning && !terms.algorithm.is_from_first_hit();
            if is_declared {
                self.0.add(terms.algorithm, request.spent.saturating_sub(request.acknowledged), now);
            }
            return Some(Settled { kept: if is_declared { request.kept } else { 0 }, end: None });
        };
        if request.sequence <= self.0.leases[index].sequence {
            return None;
        }
        let lease = self.0.leases.swap_remove(index);
        let spent = request.spent.saturating_sub(lease.settled);
        self.0.add_reported(terms.algorithm, spent, terms.spent_at(request.spent_ago, now));
        let rest = lease.outstanding.saturating_sub(spent);
        let kept = if is_learning { request.kept } else { request.kept.min(rest) };
        Some(Settled { kept, end: Some(lease.end) })
    }

    /// Credits that are granted beyond those kept, for a lease from `now` to `end` at most.
    fn grant(
        &self,
        terms: Terms<'_>,
        request: &LeaseRequest,
        kept: u64,
        free: u64,
        (now, end): (Timestamp, Timestamp),
    ) -> Grant {
        let numbers = terms.numbers();
        let demands = || self.0.leases.iter().map(|lease| lease.demand).chain([request.demand]);
        let demands = || demands().filter(|&demand| demand > 0);
        let horizon = numbers.horizon(demands().sum());
        let report_after = Duration::from_micros(numbers.report_after(horizon));
        if request.demand == 0 {
            return Grant { share: 0, credits: 0, supply: Supply::Ample, report_after };
        }
        let granted_for = u64::try_from(end.since(now).as_micros()).unwrap_or(u64::MAX).min(horizon);
        // Demand varies: a quarter is added for the lease, a half for the shorter time until the next report.
        let want = |demand: u64| numbers.part(demand, granted_for) * 5 / 4 + 1;
        let need = |demand: u64| numbers.part(demand, numbers.report_min) * 3 / 2 + 1;
        let claims = Claims {
            wants: demands().map(want).collect(),
            need: demands().map(need).sum(),
            freed: numbers.freed_per_report,
        };
        // Hits of quota are not for nodes.
        let leased: u64 = self.0.leases.iter().map(|lease| lease.outstanding).sum();
        let available = free + kept + leased;
        let share = claims.share(want(request.demand), available, terms.settings.grant_min);
        let credits = share.credits.saturating_sub(kept).min(free);
        let report_after = if kept + credits == 0 && share.supply == Supply::Scarce {
            self.until_worthwhile(terms, now)
        } else {
            report_after
        };
        Grant { share: share.credits, credits, supply: share.supply, report_after }
    }

    /// Time after which half as many hits are free as become free between two reports, if no credits are returned.
    fn until_worthwhile(&self, terms: Terms<'_>, now: Timestamp) -> Duration {
        until_worthwhile(terms, &self.0.state, self.outstanding(), now)
    }

    /// Time for which nothing can be granted: the wait of the hits that are used alone.
    fn empty_for(&self, terms: Terms<'_>, now: Timestamp) -> Duration {
        empty_for(terms, &self.0.state, now)
    }

    /// The end of the record of a node without credits: its demand is considered for that long.
    fn silent_end(&self, terms: Terms<'_>, now: Timestamp) -> Timestamp {
        now.saturating_add_nanos(terms.settings.length_nanos())
    }

    /// Outstanding credits.
    fn outstanding(&self) -> u64 {
        self.0.outstanding()
    }

    /// Hits that are neither used nor granted.
    fn free(&self, terms: Terms<'_>, now: Timestamp) -> u64 {
        terms.algorithm.remaining(&self.0.state, now).saturating_sub(self.outstanding())
    }
}

/// Time after which half as many hits are free as become free between two reports, if no credits are returned.
pub(super) fn until_worthwhile(
    terms: Terms<'_>,
    state: &State,
    outstanding: u64,
    now: Timestamp,
) -> Duration {
    let hits = outstanding.saturating_add(terms.numbers().freed_per_report / 2 + 1);
    match terms.algorithm.until_admits(state, hits, now) {
        Reset::After(wait) => wait,
        Reset::Never => terms.settings.length / 2,
    }
}

/// Time for which nothing can be granted: the wait of the hits that are used alone.
pub(super) fn empty_for(terms: Terms<'_>, state: &State, now: Timestamp) -> Duration {
    match terms.algorithm.until_admits(state, 1, now) {
        Reset::After(wait) => wait,
        Reset::Never => Duration::MAX,
    }
}
