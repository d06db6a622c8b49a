//! Leases of counters of this process: nodes share a limit with one server, and without a store.
//!
//! The leases are a part of the counter's state ([`Leased`]), so that every decision of the server counts outstanding credits, and a
//! snapshot has them. This module bounds leases, and ends the leases of silent nodes.
//!
//! Invariants:
//!
//! - A claim gets credits only if the node got the number of the counter under the rules in force. Under other rules it reports, and gets
//!   nothing.
//! - Nothing is granted in the first lease length of a process. Nodes declare meanwhile what a former process granted.
//! - The number of leases is bounded: on a counter, of one node on a counter, and in total.
//! - A false claim takes no more from other nodes than a true claim could: at most the granted credits count as spent, and they are dated
//!   no earlier than they can have been spent.

#[cfg(test)]
mod tests;

use crate::lease::{Epoch, HolderTerms, LeaseRequest, LeaseResponse, NodeId, Settings, Supply, Terms, lease};
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};
use tidegate_core::{
    algorithm::{Algorithm, Lease, Leased},
    limit::{Reset, Timestamp},
    limiter::Pinned,
    store::Key,
    sync::Mutex,
};

/// The most leases on one counter.
const LEASES_OF_COUNTER_MAX: usize = 1_024;

/// The most leases of one node on one counter. A node may drop its holder and make another before the lease of the first has ended.
const LEASES_OF_NODE_MAX: usize = 4;

/// The most hits that a claim may demand in one lease length.
const DEMAND_MAX: u64 = u32::MAX as u64;

/// Totals of a claim are below this bound: a sum of two does not overflow, and each is exact as a double.
pub const TOTAL_MAX: u64 = 1 << 53;

/// The most leases on all counters. One takes some 60 bytes.
const LEASES_MAX: u64 = 65_536;

/// Number of counters whose leases each call checks for their end. It is more than a call can add.
const LOOKS: usize = 4;

/// Grants leases, and counts them.
pub struct Granter {
    settings: Settings,
    epoch: Epoch,
    out: Mutex<Out>,
}

/// Counters with leases.
#[derive(Default)]
struct Out {
    /// Number of leases, and the time from which on none of them is left.
    counters: HashMap<Key, (u64, Timestamp)>,
    /// Each of the counters once, with a time at which its leases may have ended.
    ends: VecDeque<(Timestamp, Key)>,
    counts: GranterCounts,
}

/// Numbers of a counter that a node needs to hold its credits, or to keep denials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterTerms {
    /// The numbers of its holder.
    pub holder: HolderTerms,
    /// Time for which the hits of the request are certainly denied. Zero if they are admitted, or if only outstanding credits deny them.
    pub denied_for: Duration,
}

/// Figures since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GranterCounts {
    /// Known leases, including leases that have just ended.
    pub leases: u64,
    /// Claims of nodes.
    pub claims: u64,
    /// Claims under former rules or of a former process.
    pub stale: u64,
    /// Hits that nodes reported as spent before their leases had ended.
    pub spent: u64,
    /// Hits that were granted, beyond credits that nodes kept.
    pub granted: u64,
}

/// The leases of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeLeases {
    /// Their number.
    pub leases: u64,
    /// Outstanding credits.
    pub credits: u64,
    /// Hits that the node expects in one lease length.
    pub demand: u64,
}

impl Granter {
    /// Grants leases for a process with this random number, which began to decide at `began`.
    pub fn new(id: u64, began: Timestamp) -> Self {
        Self { settings: Settings::default(), epoch: Epoch { id: id.max(1), began }, out: Mutex::default() }
    }

    /// Number of the process; never zero.
    pub fn epoch(&self) -> u64 {
        self.epoch.id
    }

    /// The settings of all leases.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The terms of a counter, after a request for `hits` of it was decided. None if the counter is not leased.
    pub fn terms(&self, rules: &Pinned<'_>, key: Key, hits: u64, now: Timestamp) -> Option<CounterTerms> {
        rules.with_leases(key, now, |algorithm, leased| {
            let holder = Terms::of(algorithm, self.settings)?.for_holder();
            leased.expire(algorithm, now);
            let denied_for = match algorithm.until_admits(&leased.state, hits, now) {
                Reset::After(wait) => wait,
                Reset::Never => Duration::MAX,
            };
            Some(CounterTerms { holder, denied_for })
        })?
    }

    /// The response to the claim of a node; none if the claim is not newer than the node's last one. `is_current`: the node got the number
    /// of the counter from this process, under the rules in force.
    pub fn lease(
        &self,
        rules: &Pinned<'_>,
        key: Key,
        request: &LeaseRequest,
        is_current: bool,
        now: Timestamp,
    ) -> Option<LeaseResponse> {
        // Locked until the counter is changed, so that the number of leases is as of the last change.
        let mut out = self.out.lock();
        self.end_some(&mut out, rules, now);
        let counts = &mut out.counts;
        counts.claims += 1;
        counts.stale += u64::from(!is_current);
        let has_room = counts.leases < LEASES_MAX;
        let (mut leases, mut end) = (0, now);
        let response = rules.with_leases(key, now, |algorithm, leased| {
            leased.expire(algorithm, now);
            let of_node = leased.leases.iter().filter(|lease| lease.node == request.node.0).count();
            let has_room =
                has_room && leased.leases.len() < LEASES_OF_COUNTER_MAX && of_node < LEASES_OF_NODE_MAX;
            let fits = has_room || lease_of(leased, request).is_some();
            let response = if fits {
                self.lease_of(counts, (algorithm, leased), request, is_current, now)
            } else {
                Some(self.nothing(request))
            };
            (leases, end) = (
                leased.leases.len() as u64,
                leased.leases.iter().map(|lease| lease.end).max().unwrap_or(now),
            );
            response
        });
        out.set(key, leases, end);
        // A counter that is not in the limiter any more has no credits: the node gives up its own.
        response.unwrap_or_else(|| Some(self.nothing(request)))
    }

    /// The leases of each node, on counters that were claimed since the start.
    pub fn nodes(&self, rules: &Pinned<'_>, now: Timestamp) -> HashMap<NodeId, NodeLeases> {
        let keys: Vec<Key> = self.out.lock().counters.keys().copied().collect();
        let mut nodes = HashMap::<NodeId, NodeLeases>::new();
        for key in keys {
            rules.with_leases(key, now, |algorithm, leased| {
                leased.expire(algorithm, now);
                for lease in &leased.leases {
                    let node = nodes.entry(NodeId(lease.node)).or_default();
                    node.leases += 1;
                    node.credits = node.credits.saturating_add(lease.outstanding);
                    node.demand = node.demand.saturating_add(lease.demand);
                }
            });
        }
        nodes
    }

    /// The figures.
    pub fn counts(&self) -> GranterCounts {
        self.out.lock().counts
    }

    fn lease_of(
        &self,
        counts: &mut GranterCounts,
        (algorithm, leased): (&Algorithm, &mut Leased),
        request: &LeaseRequest,
        may_grant: bool,
        now: Timestamp,
    ) -> Option<LeaseResponse> {
        let granting = self.terms_of(algorithm).filter(|_| may_grant);
        let terms = granting.unwrap_or(Terms { algorithm, settings: self.settings });
        let request = &self.plausible(terms, lease_of(leased, request), request, now);
        let request =
            &LeaseRequest { demand: if granting.is_some() { request.demand } else { 0 }, ..*request };
        let before = lease_of(leased, request).map(|lease| lease.settled);
        let mut response = lease(leased, terms, self.epoch, request, now)?;
        if let Some(before) = before {
            counts.spent = counts.spent.wrapping_add(request.spent.saturating_sub(before));
        }
        let credits = response.spend_to - request.spent;
        counts.granted = counts.granted.wrapping_add(credits.saturating_sub(request.kept));
        if granting.is_none() {
            response.supply = Supply::TooSmall;
        }
        Some(response)
    }

    /// Limits the claim to what can be true.
    fn plausible(
        &self,
        terms: Terms<'_>,
        lease: Option<&Lease>,
        request: &LeaseRequest,
        now: Timestamp,
    ) -> LeaseRequest {
        let length = self.settings.length_nanos();
        // A former process may have granted more than is counted here.
        let declared = if self.epoch.is_learning(length, now) { terms.for_holder().limit } else { 0 };
        let credits = lease.map_or(0, |lease| lease.outstanding).max(declared);
        let settled = lease.map_or(request.acknowledged, |lease| lease.settled);
        let spent = match lease {
            // The credits of a lease that has ended already count as spent.
            None if declared == 0 => request.spent,
            _ => request.spent.min(settled.saturating_add(credits)),
        };
        LeaseRequest {
            spent: spent.min(TOTAL_MAX),
            kept: request.kept.min(credits),
            demand: request.demand.min(DEMAND_MAX),
            // Hits that are not reported yet were spent in the last lease length: each claim, and the end of the lease, dates the hits
            // before it.
            spent_ago: request.spent_ago.min(length),
            ..*request
        }
    }

    /// The terms of counters that are leased.
    fn terms_of<'a>(&self, algorithm: &'a Algorithm) -> Option<Terms<'a>> {
        Terms::of(algorithm, self.settings).filter(|terms| !terms.is_small())
    }

    /// The response to a claim that gets no credits: the counter does not exist yet (exact decisions make counters), or has no room for
    /// another lease.
    fn nothing(&self, request: &LeaseRequest) -> LeaseResponse {
        LeaseResponse {
            sequence: request.sequence,
            epoch: self.epoch.id,
            spend_to: request.spent.min(TOTAL_MAX),
            valid_for: Duration::ZERO,
            supply: Supply::TooSmall,
            report_after: self.settings.length / 2,
            free: 0,
            empty_for: Duration::ZERO,
            until_full: Duration::ZERO,
        }
    }

    /// Ends leases of silent nodes on a few counters. The states of these counters are plain again then.
    fn end_some(&self, out: &mut Out, rules: &Pinned<'_>, now: Timestamp) {
        for _ in 0..LOOKS {
            let Some((_, key)) = out.ends.pop_front_if(|(end, _)| *end <= now) else { return };
            match out.counters.get(&key) {
                Some(&(_, end)) if end > now => out.ends.push_back((end, key)),
                _ => {
                    rules.with_leases(key, now, |algorithm, leased| leased.expire(algorithm, now));
                    out.forget(key);
                }
            }
        }
    }
}

/// The lease of the holder that sent the claim.
fn lease_of<'l>(leased: &'l Leased, request: &LeaseRequest) -> Option<&'l Lease> {
    leased.leases.iter().find(|lease| (lease.node, lease.holder) == (request.node.0, request.holder))
}

impl Out {
    fn set(&mut self, key: Key, leases: u64, end: Timestamp) {
        match self.counters.insert(key, (leases, end)) {
            Some((before, _)) => self.counts.leases -= before,
            None => self.ends.push_back((end, key)),
        }
        self.counts.leases += leases;
    }

    fn forget(&mut self, key: Key) {
        if let Some((leases, _)) = self.counters.remove(&key) {
            self.counts.leases -= leases;
        }
    }
}
