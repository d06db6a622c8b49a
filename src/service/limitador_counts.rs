//! Counts of calls and hits as Limitador has them: by domain, which is its namespace, and of denied calls by the limit that denied.
//!
//! Domains are texts of requests, so each thread counts in a map of its own, under a lock that only scrapes contend for. Their number is
//! bounded; further ones share [`OTHER_DOMAIN`].

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};
use tidegate_core::limit::{Code, Decision, Hits, Request};
use tidegate_counts::{PerThread, ThreadSlot};

/// Name of the domains beyond the bound.
const OTHER_DOMAIN: &str = "other";

/// Labels of denied calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitadorLabels {
    /// The namespace.
    Namespace,
    /// The name of the limit too.
    LimitName,
}

/// Calls and hits of one domain.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LimitadorCalls {
    /// Calls that were admitted.
    pub authorized_calls: u64,
    /// Hits of these, and of reports.
    pub authorized_hits: u64,
    /// Calls that were denied, by the name of the limit; by an empty one if names are not counted.
    pub limited_calls: BTreeMap<Box<str>, u64>,
}

type ByDomain = HashMap<Box<str>, LimitadorCalls>;

/// Counts by domain.
pub struct LimitadorCounts {
    labels: LimitadorLabels,
    /// Bound on the domains of one thread, and on the limits of a domain.
    series_max: usize,
    lines: PerThread<Mutex<ByDomain>>,
}

impl LimitadorCounts {
    /// Counts of nothing yet.
    pub(super) fn new(labels: LimitadorLabels, series_max: usize) -> Self {
        Self { labels, series_max, lines: PerThread::default() }
    }

    /// The labels of denied calls.
    pub fn labels(&self) -> LimitadorLabels {
        self.labels
    }

    /// Counts a decision that is sent.
    pub(super) fn count(&self, request: &Request<'_>, decision: &Decision<'_>) {
        let mut line = lock(self.lines.of(ThreadSlot::current()));
        let is_known = line.contains_key(request.domain());
        let domain = if is_known || line.len() < self.series_max { request.domain() } else { OTHER_DOMAIN };
        if !line.contains_key(domain) {
            line.insert(domain.into(), LimitadorCalls::default());
        }
        let calls = line.get_mut(domain).expect("it was inserted");
        let hits = match request.descriptors().first().map(|descriptor| descriptor.hits) {
            Some(Hits::Take(hits)) => hits.get(),
            _ => 0,
        };
        match decision.code {
            _ if request.is_report() => calls.authorized_hits += hits,
            Code::Ok => {
                calls.authorized_calls += 1;
                calls.authorized_hits += hits;
            }
            Code::OverLimit => {
                let name = decision.denying().find_map(|status| status.limit).map_or("", |limit| limit.name);
                let name = if self.labels == LimitadorLabels::LimitName { name } else { "" };
                let limited = &mut calls.limited_calls;
                let name = if limited.contains_key(name) || limited.len() < self.series_max {
                    name
                } else {
                    "other"
                };
                *limited.entry(name.into()).or_default() += 1;
            }
        }
    }

    /// The counts of all threads, by domain.
    pub fn sums(&self) -> BTreeMap<Box<str>, LimitadorCalls> {
        let mut sums: BTreeMap<Box<str>, LimitadorCalls> = BTreeMap::new();
        for line in self.lines.iter() {
            for (domain, calls) in &*lock(line) {
                let sum = sums.entry(domain.clone()).or_default();
                sum.authorized_calls += calls.authorized_calls;
                sum.authorized_hits += calls.authorized_hits;
                for (name, calls) in &calls.limited_calls {
                    *sum.limited_calls.entry(name.clone()).or_default() += calls;
                }
            }
        }
        sums
    }
}

fn lock(line: &Mutex<ByDomain>) -> MutexGuard<'_, ByDomain> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}
