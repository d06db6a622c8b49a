//! Deciding: rules, counters, a request and a time in; a decision out. No IO, no clock, no error.
//!
//! What always holds:
//!
//! - A request is charged as a whole or not at all: what a denied request asked for is still there, in its own counters
//!   and in those of its siblings. Only a rule that says `charge: always` counts a denied request.
//! - Descriptors that share a counter are decided by the sum of their hits.
//! - Never more hits are admitted than the algorithm allows, by any number of threads: all counters of a request are
//!   locked while it is decided.
//! - An answer that a rule holds until its turn is charged when its request comes; see [`Limiter::due`].

mod batch;
mod charge;
mod counters;
mod decide;
mod fast_path;
mod keys;
mod queue;
mod service_limits;
mod status;
#[cfg(test)]
mod tests;
mod update;

pub use queue::{Due, Ticket, Verdict};
pub use service_limits::ServiceLimit;
pub use update::{NextRules, RetiredRules, RuleUpdate};

use crate::{
    limit::{Decision, Descriptor, Hits, Request, Timestamp},
    rules::{DomainRules, RuleSet},
    store::{Seed, Store, StoreSettings},
    sync::{ArcSwap, Guard, Mutex},
};
use keys::Keys;
use queue::Queues;
use std::{sync::Arc, time::Duration};

/// The rules in force and the counters.
pub struct Limiter {
    in_force: ArcSwap<InForce>,
    /// Held while the rules are replaced.
    updating: Mutex<()>,
    store: Store,
    global_shadow: bool,
    queues: Mutex<Queues>,
}

/// Requests that may wait for their turn at once, unless said otherwise.
pub const QUEUED_MAX_DEFAULT: usize = 1_000;

/// The limiter with the rules of one moment: a decision refers to them.
pub struct Pinned<'l> {
    in_force: Guard<Arc<InForce>>,
    limiter: &'l Limiter,
}

/// Rules, and what is worked out of them once, for all decisions.
struct InForce {
    rules: Arc<RuleSet>,
    keys: Keys,
    /// Whether rules before these held answers: some who came under them may still wait.
    queued_before: bool,
}

impl InForce {
    fn new(mut rules: RuleSet, seed: &Seed) -> Self {
        Self { keys: Keys::new(&mut rules, seed), rules: Arc::new(rules), queued_before: false }
    }

    fn after(former: &Self, rules: RuleSet, seed: &Seed) -> Self {
        let queued_before = former.queued_before || former.rules.may_queue();
        Self { queued_before, ..Self::new(rules, seed) }
    }
}

impl Limiter {
    /// A limiter without counters. With `global_shadow` every request is admitted, and the statuses say what would have
    /// been denied.
    pub fn new(rules: RuleSet, store: StoreSettings, global_shadow: bool) -> Self {
        let in_force = ArcSwap::from_pointee(InForce::new(rules, &store.seed));
        let queues = Mutex::new(Queues::new(QUEUED_MAX_DEFAULT));
        let updating = Mutex::new(());
        Self { in_force, updating, store: Store::new(store), global_shadow, queues }
    }

    /// The same with room for so many requests that wait for their turn, over all counters.
    pub fn with_queued_max(mut self, requests_max: usize) -> Self {
        self.queues = Mutex::new(Queues::new(requests_max));
        self
    }

    /// The rules as they are now, for one or more decisions.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        Pinned { in_force: self.in_force.load(), limiter: self }
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        Arc::clone(&self.in_force.load().rules)
    }

    /// Whether every request is admitted, whatever its limits.
    pub fn is_global_shadow(&self) -> bool {
        self.global_shadow
    }

    /// The counters.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl Pinned<'_> {
    /// Decides one request, and charges it if it is admitted. It is not held: what does not fit now is denied.
    #[inline]
    pub fn decide(&self, request: &Request<'_>, now: Timestamp) -> Decision<'_> {
        if let Some(domain) = self.domain_with_lines(request) {
            return queue::decide_unqueued(self, domain, request, now);
        }
        decide::decide(&self.in_force, self.limiter, request, now)
    }

    /// Decides requests that came together: one after the other, as [`Pinned::decide`] would, but in less time, since memory
    /// is asked for their counters ahead. Each decision is told with the index of its request.
    #[inline]
    pub fn decide_all<'r, 'q, 't: 'q>(
        &'r self,
        requests: impl Iterator<Item = &'q Request<'t>> + Clone,
        now: Timestamp,
        tell: impl FnMut(usize, &Decision<'r>),
    ) {
        batch::decide_all(self, requests, now, tell);
    }

    /// Decides one request for a caller that waits no longer than `patience` if the answer has to be held.
    pub fn decide_or_queue(&self, request: &Request<'_>, patience: Duration, now: Timestamp) -> Verdict<'_> {
        match self.in_force.rules.queueing_domain(request.domain()) {
            Some(domain) => queue::decide(self, domain, request, patience, now),
            None => Verdict::Decided(self.decide(request, now)),
        }
    }

    /// The domain of a request that has to look at those who wait: it may wait itself, or move them up.
    #[inline]
    fn domain_with_lines(&self, request: &Request<'_>) -> Option<&DomainRules> {
        let InForce { rules, queued_before, .. }: &InForce = &self.in_force;
        let gives_back = |descriptor: &Descriptor<'_>| matches!(descriptor.hits, Hits::GiveBack(_));
        match rules.queueing_domain(request.domain()) {
            None if *queued_before && request.descriptors().iter().any(gives_back) => {
                rules.domain(request.domain())
            }
            holding => holding,
        }
    }

    /// Whether answers of this domain may be held.
    #[inline]
    pub fn may_queue(&self, domain: &str) -> bool {
        self.in_force.rules.queueing_domain(domain).is_some()
    }

    /// What a request is told that was held and whose turn has come: the counters as they are now.
    pub fn queued_decision(&self, request: &Request<'_>, ticket: &Ticket, now: Timestamp) -> Decision<'_> {
        queue::decision(self, request, ticket, now)
    }
}
