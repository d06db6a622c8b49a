//! The rules in force and the counters, and the rules pinned for decisions.

use super::{
    compat::Compat,
    keys::{Keys, Seeds},
    queue::Queues,
    shared_resets::SharedResets,
    slots::SlotSource,
};
use crate::{
    limit::Request,
    rules::{DomainRules, RuleSet},
    store::{Seed, Store, StoreSettings},
    sync::{ArcSwap, AtomicUsize, Guard, Mutex},
};
use std::{sync::Arc, time::Duration};

/// The rules in force and the counters.
pub struct Limiter {
    pub(super) in_force: ArcSwap<InForce>,
    /// Held while the rules are replaced.
    pub(super) updating: Mutex<()>,
    pub(super) store: Store,
    pub(super) global_shadow: bool,
    pub(super) compat: Compat,
    /// Taken after the locks of shards, never before.
    pub(super) queues: Mutex<Queues>,
    /// Number of requests that wait for slots. Changes under the lock of `queues`.
    pub(super) waiting: AtomicUsize,
    pub(super) queue_margin: Duration,
    pub(super) slots: SlotSource,
    /// Whether shared counters have groups, which only a cluster needs.
    pub(super) has_groups: bool,
}

/// Default bound on the requests that are queued at once, over all counters.
pub const QUEUED_MAX_DEFAULT: usize = 1_000;

/// The limiter under the rules of one moment; decisions borrow from it.
pub struct Pinned<'l> {
    pub(super) in_force: Guard<Arc<InForce>>,
    pub(super) limiter: &'l Limiter,
}

/// Rules, and what is derived from them once for all decisions.
pub(super) struct InForce {
    pub(super) rules: Arc<RuleSet>,
    pub(super) keys: Keys,
    /// Whether former rules queued requests, some of which may still be queued.
    pub(super) queued_before: bool,
    /// Number of the rules: 1 for the first, and one more for each that replaces them.
    pub(super) generation: u64,
}

impl InForce {
    pub(super) fn new(mut rules: RuleSet, seeds: &Seeds, resets: &Arc<SharedResets>) -> Self {
        Self {
            keys: Keys::new(&mut rules, seeds, resets),
            rules: Arc::new(rules),
            queued_before: false,
            generation: 1,
        }
    }

    /// The same rules with other keys of counters in a shared store.
    pub(super) fn with_keys(&self, seeds: &Seeds, resets: &Arc<SharedResets>) -> Self {
        let Self { queued_before, generation, .. } = *self;
        Self { queued_before, generation, ..Self::new(RuleSet::clone(&self.rules), seeds, resets) }
    }

    pub(super) fn after(former: &Self, rules: RuleSet) -> Self {
        let queued_before = former.queued_before || former.rules.may_queue();
        let (seeds, resets) = (former.keys.seeds(), former.keys.resets());
        Self { queued_before, generation: former.generation + 1, ..Self::new(rules, seeds, resets) }
    }
}

impl Limiter {
    /// A limiter without counters. With `global_shadow`, every request is admitted, and statuses report what would have been denied.
    pub fn new(rules: RuleSet, store: StoreSettings, global_shadow: bool) -> Self {
        let seeds = Seeds { local: store.seed.clone(), shared: store.seed.clone() };
        Self {
            slots: SlotSource::new(&store.seed, rules.limits().clone()),
            in_force: ArcSwap::from_pointee(InForce::new(rules, &seeds, &Arc::default())),
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
        self.in_force = ArcSwap::from_pointee(former.with_keys(&seeds, &Arc::default()));
        self
    }

    /// Computes the groups of shared counters, which are stored in a cluster.
    pub fn with_groups(mut self) -> Self {
        self.has_groups = true;
        self
    }

    /// Sets options of the reference server. They apply to rules with its semantics.
    pub fn with_compat(mut self, compat: Compat) -> Self {
        self.compat = compat;
        self
    }

    /// Sets from the next decision on whether every request is admitted, and the options of the reference server. Counters stay.
    pub fn set_switches(&mut self, global_shadow: bool, compat: Compat) {
        (self.global_shadow, self.compat) = (global_shadow, compat);
    }

    /// Numbers decisions, for readers that need their order: see [`Decision::number`](crate::limit::Decision::number).
    pub fn with_numbered_decisions(self) -> Self {
        self.store.number_decisions(true);
        self
    }

    /// Bounds the number of requests that are queued at once, over all counters.
    pub fn with_queued_max(mut self, requests_max: usize) -> Self {
        self.queues = Mutex::new(Queues::new(requests_max));
        self
    }

    /// Sets the least time between the release of a queued request and its caller's deadline: what the response needs to reach the caller.
    /// A request that would be released later is denied at once instead of charged in vain.
    pub fn with_queue_margin(mut self, margin: Duration) -> Self {
        self.queue_margin = margin;
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

    /// Number of these rules: see [`NextRules::generation`](super::NextRules::generation).
    pub fn generation(&self) -> u64 {
        self.in_force.generation
    }

    /// Whether decisions on requests to this domain may take time, because they are queued or a shared store makes them.
    #[inline]
    pub fn may_wait(&self, domain: &str) -> bool {
        self.in_force.rules.may_wait(domain)
    }

    /// Whether a descriptor of the request reaches a rule that may have it wait for slots.
    pub fn may_wait_for_slots(&self, request: &Request<'_>) -> bool {
        let domain = self.in_force.rules.waiting_domain(request.domain());
        let waits = |domain: &DomainRules| {
            request.descriptors().iter().any(|descriptor| domain.waits_for_slots(&descriptor.entries))
        };
        domain.is_some_and(waits)
    }

    /// Whether a descriptor of the request reaches a rule that may queue it. Requests to other rules of its domain are decided at once.
    pub fn may_queue(&self, request: &Request<'_>) -> bool {
        let domain = self.in_force.rules.queueing_domain(request.domain());
        let queues = |domain: &DomainRules| {
            request.descriptors().iter().any(|descriptor| domain.queues(&descriptor.entries))
        };
        domain.is_some_and(queues)
    }
}

/// The rules of one moment, for a decision that takes time.
pub struct OwnedPinned<'l> {
    pub(super) in_force: Arc<InForce>,
    pub(super) limiter: &'l Limiter,
}

impl Limiter {
    /// The rules as they are now, for a decision that takes time.
    pub fn pin_owned(&self) -> OwnedPinned<'_> {
        OwnedPinned { in_force: Arc::clone(&self.in_force.load()), limiter: self }
    }
}

impl OwnedPinned<'_> {
    /// Number of these rules: see [`NextRules::generation`](super::NextRules::generation).
    pub fn generation(&self) -> u64 {
        self.in_force.generation
    }

    /// The rules.
    pub fn rules(&self) -> &RuleSet {
        &self.in_force.rules
    }
}
