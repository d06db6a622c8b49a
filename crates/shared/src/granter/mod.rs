//! Leases of counters of this process: nodes share a limit with one server, and without a store.
//!
//! The leases are a part of the counter's state ([`Leased`]), so that every decision of the server counts credits that are out, and a
//! snapshot has them. This module bounds them, and ends those of which nodes do not report.
//!
//! Invariants:
//!
//! - A claim is met only under the rules by which the node got the number of the counter: under others it reports, and gets nothing.
//! - Nothing is granted in the first lease length of a process. Nodes declare meanwhile what a former process granted.
//! - Numbers of leases are bounded: on a counter, and in total.

#[cfg(test)]
mod tests;

use crate::lease::{Epoch, LeaseRequest, LeaseResponse, Settings, SharedCounter, Supply, Terms};
use std::{
    collections::{HashMap, VecDeque},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tidegate_core::{
    algorithm::{Algorithm, Leased},
    limit::{Reset, Timestamp},
    limiter::Pinned,
    store::Key,
    sync::Mutex,
};

/// The most leases on one counter.
const LEASES_OF_COUNTER_MAX: usize = 1_024;

/// The most leases on all counters. One takes some 60 bytes.
const LEASES_MAX: usize = 65_536;

/// Counters of which a call looks whether their leases have ended: more than it can add.
const LOOKS: usize = 4;

/// Grants leases, and counts them.
pub struct Granter {
    settings: Settings,
    epoch: Epoch,
    out: Mutex<Out>,
    counts: [AtomicU64; 4],
}

/// Counters with leases.
#[derive(Default)]
struct Out {
    /// Number of leases, and the time from which on none of them is left.
    counters: HashMap<Key, (usize, Timestamp)>,
    /// Each of the counters, once, with a time at which its leases may have ended.
    ends: VecDeque<(Timestamp, Key)>,
    leases: usize,
}

/// What a node has to know of a counter in order to hold credits of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterTerms {
    /// Hits that the empty counter admits.
    pub limit: u64,
    /// Time that a hit counts.
    pub span: Duration,
    /// Time for which the hits of the request are certainly denied; zero if they are not, or by credits that are out.
    pub denied_for: Duration,
}

/// Figures since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GranterCounts {
    /// Leases that are known, those that have just ended too.
    pub leases: u64,
    /// Claims of nodes.
    pub claims: u64,
    /// Those under former rules or of a former process.
    pub stale: u64,
    /// Hits that nodes reported as spent, of leases that had not ended.
    pub spent: u64,
    /// Hits that were granted, beyond those that nodes kept.
    pub granted: u64,
}

#[derive(Clone, Copy)]
enum Count {
    Claims,
    Stale,
    Spent,
    Granted,
}

impl Granter {
    /// For a process of this random number that began at `began` to decide.
    pub fn new(id: u64, began: Timestamp) -> Self {
        Self {
            settings: Settings::default(),
            epoch: Epoch { id: id.max(1), began },
            out: Mutex::default(),
            counts: Default::default(),
        }
    }

    /// Number of the process; never zero.
    pub fn epoch(&self) -> u64 {
        self.epoch.id
    }

    /// The settings of all leases.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The terms of a counter, after a request for so many hits of it was decided; none if it is not leased.
    pub fn terms(&self, rules: &Pinned<'_>, key: Key, hits: u64, now: Timestamp) -> Option<CounterTerms> {
        rules.with_leases(key, now, |algorithm, leased| {
            let terms = self.terms_of(algorithm)?;
            leased.expire(algorithm, now);
            let numbers = terms.numbers();
            let denied_for = match algorithm.until_admits(&leased.state, hits, now) {
                Reset::After(wait) => wait,
                Reset::Never => Duration::MAX,
            };
            let (limit, span) = (numbers.limit, Duration::from_micros(numbers.span));
            Some(CounterTerms { limit, span, denied_for })
        })?
    }

    /// The response to the claim of a node; none if it is not newer than the last one. `is_current`: the node got the number of the
    /// counter from this process, under the rules in force.
    pub fn lease(
        &self,
        rules: &Pinned<'_>,
        key: Key,
        request: &LeaseRequest,
        is_current: bool,
        now: Timestamp,
    ) -> Option<LeaseResponse> {
        self.count(Count::Claims, 1);
        self.count(Count::Stale, u64::from(!is_current));
        // Held for as long as the counter is changed, so that the number of leases is that of the last change.
        let mut out = self.out.lock();
        self.end_some(&mut out, rules, now);
        let has_room = out.leases < LEASES_MAX;
        let (mut leases, mut end) = (0, now);
        let response = rules.with_leases(key, now, |algorithm, leased| {
            let is_known = leased
                .leases
                .iter()
                .any(|lease| (lease.node, lease.holder) == (request.node.0, request.holder));
            let fits = is_known || has_room && leased.leases.len() < LEASES_OF_COUNTER_MAX;
            let response = self.lease_of(algorithm, leased, request, is_current && fits, now);
            (leases, end) =
                (leased.leases.len(), leased.leases.iter().map(|lease| lease.end).max().unwrap_or(now));
            response
        });
        out.set(key, leases, end);
        // What is not counted any more has no credits either: those of the node are given up.
        response.unwrap_or_else(|| Some(self.nothing(request)))
    }

    /// The figures.
    pub fn counts(&self) -> GranterCounts {
        let count = |count: Count| self.counts[count as usize].load(Ordering::Relaxed);
        GranterCounts {
            leases: self.out.lock().leases as u64,
            claims: count(Count::Claims),
            stale: count(Count::Stale),
            spent: count(Count::Spent),
            granted: count(Count::Granted),
        }
    }

    fn lease_of(
        &self,
        algorithm: &Algorithm,
        leased: &mut Leased,
        request: &LeaseRequest,
        may_grant: bool,
        now: Timestamp,
    ) -> Option<LeaseResponse> {
        let granting = self.terms_of(algorithm).filter(|_| may_grant);
        let terms = granting.unwrap_or(Terms { algorithm, settings: self.settings });
        let demand = if granting.is_some() { request.demand } else { 0 };
        let settled = |leased: &Leased| {
            let of_node = |lease: &&tidegate_core::algorithm::Lease| {
                (lease.node, lease.holder) == (request.node.0, request.holder)
            };
            leased.leases.iter().find(of_node).map(|lease| lease.settled)
        };
        leased.expire(algorithm, now);
        let before = settled(leased);
        let mut counter = SharedCounter::of(std::mem::take(leased));
        let response = counter.lease(terms, self.epoch, &LeaseRequest { demand, ..*request }, now);
        *leased = counter.into_leased();
        let mut response = response?;
        if let Some(before) = before {
            self.count(Count::Spent, request.spent.saturating_sub(before));
        }
        let credits = response.spend_to - request.spent;
        self.count(Count::Granted, credits.saturating_sub(request.kept));
        if granting.is_none() {
            response.supply = Supply::TooSmall;
        }
        Some(response)
    }

    /// The terms of counters that are leased.
    fn terms_of<'a>(&self, algorithm: &'a Algorithm) -> Option<Terms<'a>> {
        Terms::of(algorithm, self.settings).filter(|terms| !terms.is_small())
    }

    /// The response to a claim to a counter that does not exist: an exact decision makes it.
    fn nothing(&self, request: &LeaseRequest) -> LeaseResponse {
        LeaseResponse {
            sequence: request.sequence,
            epoch: self.epoch.id,
            spend_to: request.spent,
            valid_for: Duration::ZERO,
            supply: Supply::TooSmall,
            report_after: self.settings.length / 2,
            free: 0,
            empty_for: Duration::ZERO,
            until_full: Duration::ZERO,
        }
    }

    /// Ends leases of silent nodes on a few counters, whose states are plain again then.
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

    fn count(&self, count: Count, by: u64) {
        self.counts[count as usize].fetch_add(by, Ordering::Relaxed);
    }
}

impl Out {
    fn set(&mut self, key: Key, leases: usize, end: Timestamp) {
        match self.counters.insert(key, (leases, end)) {
            Some((before, _)) => self.leases -= before,
            None => self.ends.push_back((end, key)),
        }
        self.leases += leases;
    }

    fn forget(&mut self, key: Key) {
        if let Some((leases, _)) = self.counters.remove(&key) {
            self.leases -= leases;
        }
    }
}
