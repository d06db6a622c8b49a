//! The store's side: one counter with the leases on it. These are the operations that the store's script runs.
//!
//! Each of them first expires leases, then reads `remaining` of the hits that are used, less the credits that are out.

use super::{LeaseRequest, LeaseResponse, NodeId, Supply, Terms, allocation::Claims, epoch::Epoch};
use std::time::Duration;
use tidegate_core::{
    algorithm::State,
    limit::{Reset, Timestamp},
};

/// Credits of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The node.
    pub node: NodeId,
    /// Number of its holder.
    pub holder: u64,
    /// Sequence number of its last request.
    pub sequence: u64,
    /// Its total of spent hits, as far as they are counted as used.
    pub settled: u64,
    /// Credits that it may spend beyond that.
    pub outstanding: u64,
    /// Time from which on it spends none of them.
    pub end: Timestamp,
    /// Hits that it expects in one lease length.
    pub demand: u64,
}

/// A counter and its leases.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SharedCounter {
    /// Hits that are used.
    pub(super) state: State,
    pub(super) leases: Vec<Lease>,
    /// Of the hits in a window from the first hit, those that exact decisions admitted: they certainly are in it.
    pub(super) exact: u64,
}

/// Credits for one node.
struct Grant {
    /// Beyond those that it keeps.
    credits: u64,
    supply: Supply,
    report_after: Duration,
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
        /// The wait after which the hits would be admitted if all credits were spent now.
        reset: Reset,
        /// The wait for which they cannot be admitted even if all credits are returned; zero if credits alone deny them.
        denied_for: Duration,
    },
    /// The store is in a learning phase, and decides nothing.
    Learning,
}

impl SharedCounter {
    /// A counter with these hits, of which no credits are out.
    pub fn new(state: State) -> Self {
        Self { state, leases: Vec::new(), exact: 0 }
    }

    /// The hits that are used.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The leases, in no order. Those that have ended are still there until the next operation.
    pub fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// Decides hits on the store's time; zero hits are a peek.
    pub fn decide(&mut self, terms: Terms<'_>, epoch: Epoch, hits: u64, now: Timestamp) -> ExactDecision {
        self.expire_leases(terms, now);
        if epoch.is_learning(terms.settings.length_nanos(), now) {
            return ExactDecision::Learning;
        }
        let free = self.free(terms, now);
        if hits <= free {
            self.add(terms, hits, now);
            self.exact += hits;
            let until_full = terms.algorithm.until_full(&self.state, now);
            return ExactDecision::Admitted { free: free - hits, until_full };
        }
        let all_spent = terms.algorithm.add(self.state.clone(), self.outstanding(), now);
        let reset = terms.algorithm.until_admits(&all_spent, hits, now);
        let denied_for = match terms.algorithm.until_admits(&self.state, hits, now) {
            Reset::After(wait) => wait,
            Reset::Never => Duration::MAX,
        };
        ExactDecision::Denied { free, reset, denied_for }
    }

    /// Gives back the newest hits, and returns their number.
    ///
    /// A window from the first hit is not closed once it was leased: how many of the hits that nodes report, or of those
    /// that expired with a lease, are in this window is not known, and so neither whether the give-back leaves any.
    pub fn give_back(&mut self, terms: Terms<'_>, hits: u64, now: Timestamp) -> u64 {
        self.expire_leases(terms, now);
        let used = terms.algorithm.used(&self.state, now);
        let is_leased = self.outstanding() > 0 || used > self.exact;
        let stays_open = terms.is_from_first_hit() && is_leased;
        let most = if stays_open { self.exact.saturating_sub(1) } else { used };
        let given = hits.min(most);
        if given > 0 {
            self.state = terms.algorithm.give_back(std::mem::take(&mut self.state), given, now);
            self.exact = self.exact.saturating_sub(given);
        }
        given
    }

    /// Frees all hits, and returns the number of those that stay. Credits that are out stay valid, and count.
    ///
    /// While they are, a window from the first hit stays open with one hit: a hit that a node reports later has to be in it.
    pub fn reset(&mut self, terms: Terms<'_>, now: Timestamp) -> u64 {
        self.expire_leases(terms, now);
        let used = terms.algorithm.used(&self.state, now);
        let state = std::mem::take(&mut self.state);
        let stays_open = terms.is_from_first_hit() && used > 0 && self.outstanding() > 0;
        if self.outstanding() == 0 {
            self.leases.clear();
        }
        self.exact = u64::from(stays_open);
        if stays_open {
            self.state = terms.algorithm.give_back(state, used - 1, now);
        }
        self.exact
    }

    /// Converts the counter to another algorithm: hits that are used stay used, credits stay out until their end.
    pub fn change_rule(&mut self, former: Terms<'_>, terms: Terms<'_>, now: Timestamp) {
        self.expire_leases(former, now);
        let state = std::mem::take(&mut self.state);
        self.state = terms.algorithm.take_over(former.algorithm, state, now);
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
        let kept = self.settle(terms, request, is_learning, now)?;
        let end = terms.end(&self.state, now);
        // Without an end no credits are possible; those that the node keeps have passed with their window.
        let kept = if end.is_some() { kept } else { 0 };
        let free = self.free(terms, now).saturating_sub(kept);
        let none = |supply| Grant { credits: 0, supply, report_after: terms.settings.length / 2 };
        let granted = match end {
            _ if is_learning => none(Supply::Learning),
            Some(end) => self.grant(terms, request, kept, free, (now, end)),
            None => none(Supply::TooSmall),
        };
        let end_or_now = end.unwrap_or(now);
        let outstanding = kept + granted.credits;
        if request.demand > 0 || outstanding > 0 {
            let (node, holder, sequence) = (request.node, request.holder, request.sequence);
            let end = if outstanding > 0 { end_or_now } else { self.silent_end(terms, now) };
            let demand = request.demand;
            self.leases.push(Lease {
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
            until_full: terms.algorithm.until_full(&self.state, now),
        })
    }

    /// The time from which on the counter may be dropped: all leases have ended, and their hits no longer count.
    pub fn expires(&self, terms: Terms<'_>) -> Timestamp {
        let mut at_end = self.clone();
        let last = self.leases.iter().map(|lease| lease.end).max().unwrap_or_default();
        at_end.expire_leases(terms, last);
        terms.algorithm.expires(&at_end.state).max(last)
    }

    /// Counts the hits of leases that have ended as used, dated at the end: the node did not report how many it spent.
    fn expire_leases(&mut self, terms: Terms<'_>, now: Timestamp) {
        // In the order of their ends, so that the state is written in the order of time.
        while let Some((index, _)) = self
            .leases
            .iter()
            .enumerate()
            .filter(|(_, lease)| lease.end <= now)
            .min_by_key(|(_, lease)| lease.end)
        {
            let lease = self.leases.swap_remove(index);
            self.add_leased(terms, lease.outstanding, lease.end);
        }
        if !terms.is_from_first_hit() || terms.algorithm.used(&self.state, now) == 0 {
            self.exact = 0;
        }
    }

    /// Counts the hits that the request reports and takes the node's lease out. Returns the credits that the node keeps.
    fn settle(
        &mut self,
        terms: Terms<'_>,
        request: &LeaseRequest,
        is_learning: bool,
        now: Timestamp,
    ) -> Option<u64> {
        let Some(index) =
            self.leases.iter().position(|lease| (lease.node, lease.holder) == (request.node, request.holder))
        else {
            // The lease has ended, and all of its credits count as used. Or it was lost: then the declaration applies, but
            // not to windows from the first hit, which only an exact decision opens.
            if is_learning && !terms.is_from_first_hit() {
                self.add(terms, request.spent.saturating_sub(request.acknowledged), now);
                return Some(request.kept);
            }
            return Some(0);
        };
        if request.sequence <= self.leases[index].sequence {
            return None;
        }
        let lease = self.leases.swap_remove(index);
        let spent = request.spent.saturating_sub(lease.settled);
        self.add_leased(terms, spent, terms.spent_at(request.spent_ago, now));
        let rest = lease.outstanding.saturating_sub(spent);
        Some(if is_learning { request.kept } else { request.kept.min(rest) })
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
        let demands = || self.leases.iter().map(|lease| lease.demand).chain([request.demand]);
        let demands = || demands().filter(|&demand| demand > 0);
        let horizon = numbers.horizon(demands().sum());
        let report_after = Duration::from_micros(numbers.report_after(horizon));
        if request.demand == 0 {
            return Grant { credits: 0, supply: Supply::Ample, report_after };
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
        let available = free + kept + self.outstanding();
        let share = claims.share(want(request.demand), available, terms.settings.grant_min);
        let credits = share.credits.saturating_sub(kept).min(free);
        let report_after = if kept + credits == 0 && share.supply == Supply::Scarce {
            self.until_worthwhile(terms, now)
        } else {
            report_after
        };
        Grant { credits, supply: share.supply, report_after }
    }

    /// Time after which half as many hits are free as become free between two reports, if no credits are returned.
    fn until_worthwhile(&self, terms: Terms<'_>, now: Timestamp) -> Duration {
        until_worthwhile(terms, &self.state, self.outstanding(), now)
    }

    /// Time for which nothing can be granted: the wait of the hits that are used alone.
    fn empty_for(&self, terms: Terms<'_>, now: Timestamp) -> Duration {
        empty_for(terms, &self.state, now)
    }

    /// The end of the record of a node without credits: its demand is considered for that long.
    fn silent_end(&self, terms: Terms<'_>, now: Timestamp) -> Timestamp {
        now.saturating_add_nanos(terms.settings.length_nanos())
    }

    /// Counts hits of a lease. Where no window from the first hit is open, they are of an earlier one: they open none.
    fn add_leased(&mut self, terms: Terms<'_>, hits: u64, at: Timestamp) {
        if !terms.is_from_first_hit() || terms.algorithm.used(&self.state, at) > 0 {
            self.add(terms, hits, at);
        }
    }

    fn add(&mut self, terms: Terms<'_>, hits: u64, at: Timestamp) {
        if hits > 0 {
            self.state = terms.algorithm.add(std::mem::take(&mut self.state), hits, at);
        }
    }

    /// Credits that are out.
    fn outstanding(&self) -> u64 {
        self.leases.iter().map(|lease| lease.outstanding).sum()
    }

    /// Hits that are neither used nor granted.
    fn free(&self, terms: Terms<'_>, now: Timestamp) -> u64 {
        terms.algorithm.remaining(&self.state, now).saturating_sub(self.outstanding())
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
