//! Deciding: rules, counters, a request and a time in; a decision out. No IO, no clock, no error.
//!
//! Invariants:
//!
//! - A request is charged as a whole or not at all: a denied request consumes nothing, in its own counters or in its
//!   siblings'. Only a rule with `charge: always` counts a denied request.
//! - Descriptors that share a counter are decided by the sum of their hits; with the semantics of the reference server, one
//!   after another.
//! - No more hits are admitted than the algorithm allows, by any number of threads: all counters of a request are locked
//!   while it is decided.
//! - A queued request is charged on arrival; see [`Pinned::decide_or_queue`].

mod batch;
mod class;
mod compat;
mod conditional;
mod counters;
mod decide;
mod fast_path;
mod keys;
mod leasable;
mod plan;
mod queue;
mod remote;
mod reset;
mod schedules;
mod service_limits;
mod shared_resets;
mod slots;
mod status;
#[cfg(test)]
mod tests;
mod update;

pub use class::Class;
pub use compat::Compat;
pub use conditional::CounterNumbers;
pub use keys::GROUPS;
pub use leasable::{LeasableCharge, LeasableCharges, LeasedStatus, leased_decision};
pub use queue::{Due, QueuePoll, SlotWait, Ticket, Verdict};
pub use remote::{Denial, HeldRules, RemoteCharge, RemoteCounter, RemoteRequest, WithoutStore};
pub use reset::ResetError;
pub use service_limits::ListedLimits;
pub use shared_resets::SharedResets;
pub use slots::{SlotCounts, SlotRelease};
pub use update::{NextRules, RetiredRules, RuleUpdate};

use crate::{
    limit::{Decision, Request, Timestamp},
    rules::{DomainRules, RuleSet},
    store::{Seed, Store, StoreSettings},
    sync::{ArcSwap, AtomicUsize, Guard, Mutex, guard},
};
use keys::{Keys, Seeds};
use queue::{Caller, Queues};
use slots::SlotSource;
use std::{sync::Arc, time::Duration};

/// The rules in force and the counters.
pub struct Limiter {
    in_force: ArcSwap<InForce>,
    /// Held while the rules are replaced.
    updating: Mutex<()>,
    store: Store,
    global_shadow: bool,
    compat: Compat,
    /// Taken after the locks of shards, never before.
    queues: Mutex<Queues>,
    /// Number of requests that wait for slots. It changes under that lock.
    waiting: AtomicUsize,
    queue_margin: Duration,
    slots: SlotSource,
    /// Whether shared counters have groups, which only a cluster needs.
    has_groups: bool,
}

/// Requests that may be queued at once, over all counters, unless configured otherwise.
pub const QUEUED_MAX_DEFAULT: usize = 1_000;

/// The limiter under the rules of one moment; decisions borrow from it.
pub struct Pinned<'l> {
    in_force: Guard<Arc<InForce>>,
    limiter: &'l Limiter,
}

/// Rules, and what is derived from them once for all decisions.
struct InForce {
    rules: Arc<RuleSet>,
    keys: Keys,
    /// Whether rules before these queued requests, some of which may still be queued.
    queued_before: bool,
    /// Number of the rules: 1 for the first, and one more for each that replaces them.
    generation: u64,
}

impl InForce {
    fn new(mut rules: RuleSet, seeds: &Seeds, resets: &Arc<SharedResets>) -> Self {
        Self {
            keys: Keys::new(&mut rules, seeds, resets),
            rules: Arc::new(rules),
            queued_before: false,
            generation: 1,
        }
    }

    fn after(former: &Self, rules: RuleSet) -> Self {
        let queued_before = former.queued_before || former.rules.may_queue();
        let (seeds, resets) = (former.keys.seeds(), former.keys.resets());
        Self { queued_before, generation: former.generation + 1, ..Self::new(rules, seeds, resets) }
    }
}

impl Limiter {
    /// A limiter without counters. With `global_shadow` every request is admitted, and statuses report what would have
    /// been denied.
    pub fn new(rules: RuleSet, store: StoreSettings, global_shadow: bool) -> Self {
        let seeds = Seeds { local: store.seed.clone(), shared: store.seed.clone() };
        Self {
            in_force: ArcSwap::from_pointee(InForce::new(rules, &seeds, &Arc::default())),
            slots: SlotSource::new(&store.seed),
            store: Store::new(store),
            global_shadow,
            compat: Compat::default(),
            queues: Mutex::new(Queues::new(QUEUED_MAX_DEFAULT)),
            waiting: AtomicUsize::new(0),
            queue_margin: Duration::ZERO,
            has_groups: false,
            updating: Mutex::new(()),
        }
    }

    /// Sets the secret of the keys in a shared store, which is common to all servers that use it.
    pub fn with_shared_seed(mut self, seed: Seed) -> Self {
        let former = Arc::clone(&self.in_force.load());
        let seeds = Seeds { local: former.keys.seeds().local.clone(), shared: seed };
        let rules = RuleSet::clone(&former.rules);
        self.in_force = ArcSwap::from_pointee(InForce::new(rules, &seeds, &Arc::default()));
        self
    }

    /// Computes the groups of shared counters, which are stored in a cluster.
    pub fn with_groups(mut self) -> Self {
        self.has_groups = true;
        self
    }

    /// Sets options of the reference server. They concern rules with its semantics.
    pub fn with_compat(mut self, compat: Compat) -> Self {
        self.compat = compat;
        self
    }

    /// Numbers decisions, for readers that need their order: see [`Decision::number`].
    pub fn with_numbered_decisions(self) -> Self {
        self.store.number_decisions(true);
        self
    }

    /// Bounds the number of requests that are queued at once, over all counters.
    pub fn with_queued_max(mut self, requests_max: usize) -> Self {
        self.queues = Mutex::new(Queues::new(requests_max));
        self
    }

    /// Sets the time that a queued request is released before its caller's deadline, at least. It is what the response
    /// needs to reach the caller: one that would be released later is denied at once instead of charged in vain.
    pub fn with_queue_margin(mut self, margin: Duration) -> Self {
        self.queue_margin = margin;
        self
    }

    /// The rules as they are now, for one or more decisions.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        Pinned { in_force: self.in_force.load(), limiter: self }
    }

    /// Replaced rules, for decisions that began under them.
    pub fn pin_retired(&self, rules: &RetiredRules) -> Pinned<'_> {
        Pinned { in_force: guard(Arc::clone(&rules.0)), limiter: self }
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        Arc::clone(&self.in_force.load().rules)
    }

    /// Whether every request is admitted, whatever its limits.
    pub fn is_global_shadow(&self) -> bool {
        self.global_shadow
    }

    /// The options of the reference server.
    pub fn compat(&self) -> Compat {
        self.compat
    }

    /// The counters.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl Pinned<'_> {
    /// The rules of this moment.
    pub fn rules(&self) -> &RuleSet {
        &self.in_force.rules
    }

    /// Number of these rules: see [`NextRules::generation`].
    pub fn generation(&self) -> u64 {
        self.in_force.generation
    }

    /// Decides one request, and charges it if it is admitted. It is never queued: hits that do not fit now are denied.
    #[inline]
    pub fn decide(&self, request: &Request<'_>, now: Timestamp) -> Decision<'_> {
        decide::decide(self, request, now)
    }

    /// Decides requests that arrived together, each exactly as [`Pinned::decide`] would, in order. Faster than one by one,
    /// because memory is prefetched for the counters of all of them. `decided` gets the index of each request and its
    /// decision.
    #[inline]
    pub fn decide_all<'r, 'q, 't: 'q>(
        &'r self,
        requests: impl Iterator<Item = &'q Request<'t>> + Clone,
        now: Timestamp,
        decided: impl FnMut(usize, &Decision<'r>),
    ) {
        batch::decide_all(self, requests, now, decided);
    }

    /// Decides one request for a caller that waits up to `wait_max`, its remaining deadline. If its hits do not fit now
    /// but will within that time, less the margin, and a `max_wait` allows it, the request is charged and queued. If only slots
    /// are missing, it waits for them, and nothing is charged.
    pub fn decide_or_queue(&self, request: &Request<'_>, wait_max: Duration, now: Timestamp) -> Verdict<'_> {
        // Hits of a report were used already.
        let wait_max = if request.is_report() { Duration::ZERO } else { wait_max };
        let wait_max = wait_max.saturating_sub(self.limiter.queue_margin);
        match self.in_force.rules.waiting_domain(request.domain()) {
            Some(domain) => queue::decide(self, domain, request, Caller::Waits(wait_max), now),
            None => Verdict::Decided(self.decide(request, now)),
        }
    }

    /// Decides a request once more that waits for slots: when it is called, and at the time of [`SlotWait::again`].
    pub fn decide_again(&self, request: &Request<'_>, wait: SlotWait, now: Timestamp) -> Verdict<'_> {
        match self.in_force.rules.waiting_domain(request.domain()) {
            Some(domain) => queue::decide(self, domain, request, Caller::Again(wait), now),
            // The rules have changed.
            None => {
                self.limiter.leave(&wait);
                Verdict::Decided(self.decide(request, now))
            }
        }
    }

    /// Decides a request that would not wait for slots if its caller did; none if it would, and nothing is changed.
    pub fn decide_unless_waits(&self, request: &Request<'_>, now: Timestamp) -> Option<Decision<'_>> {
        decide::decide_unless_waits(self, request, now)
    }

    /// Whether decisions on requests to this domain may take time: they are queued, or a shared store makes them.
    #[inline]
    pub fn may_wait(&self, domain: &str) -> bool {
        self.in_force.rules.may_wait(domain)
    }

    /// Whether a rule that a descriptor of the request reaches may have it wait for slots.
    pub fn may_wait_for_slots(&self, request: &Request<'_>) -> bool {
        let domain = self.in_force.rules.waiting_domain(request.domain());
        let waits = |domain: &DomainRules| {
            request.descriptors().iter().any(|descriptor| domain.waits_for_slots(&descriptor.entries))
        };
        domain.is_some_and(waits)
    }

    /// Whether a rule that a descriptor of the request reaches may queue it. Requests to other rules of its domain are decided at once.
    pub fn may_queue(&self, request: &Request<'_>) -> bool {
        let domain = self.in_force.rules.queueing_domain(request.domain());
        let queues = |domain: &DomainRules| {
            request.descriptors().iter().any(|descriptor| domain.queues(&descriptor.entries))
        };
        domain.is_some_and(queues)
    }

    /// The decision for a queued request on its release: admitted, with its counters as they are now. Its hits were
    /// charged on arrival.
    pub fn queued_decision(&self, request: &Request<'_>, ticket: &Ticket, now: Timestamp) -> Decision<'_> {
        queue::decision(self, request, ticket, now)
    }
}
