//! Decisions over counters that a shared store holds: what the store is to evaluate, and the decision from what it returns.
//!
//! The store reads the counters of a request, evaluates, and charges all or none, at one moment of its own clock. It returns
//! that moment and the states that it read; from these the same steps as for local counters yield the same verdict, and the
//! numbers of the statuses.
//!
//! A request may have local counters besides (`counters: local` of a rule). They are evaluated before the store is called, which
//! charges nothing if they deny, and decided with the store's states when it has responded. If they deny only then, the store has
//! to take back what it has charged.

use super::{
    InForce, Limiter, Pinned,
    counters::{Counters, LockedShards, PlannedCounter, counters},
    decide::{Deciding, decide_plan},
    plan::{Charge, DescriptorPlan, Fit, INLINE, Plan},
    service_limits,
    status::{Reading, reported_decision},
};
use crate::{
    algorithm::{Algorithm, Standing, State},
    limit::{Code, Decision, Descriptor, Hits, Request, Timestamp},
    rules::{DomainRules, RuleLimit, Semantics},
    store::Key,
};
use smallvec::SmallVec;
use std::{borrow::Cow, num::NonZeroU64, sync::Arc};

/// The rules of one moment, for a decision that takes time.
pub struct HeldRules<'l> {
    pub(super) in_force: Arc<InForce>,
    pub(super) limiter: &'l Limiter,
}

/// A request to a domain whose counters are in a shared store.
pub struct RemoteRequest<'h> {
    held: &'h HeldRules<'h>,
    plan: Plan<'h>,
    /// Those in the store.
    counters: SmallVec<[PlannedCounter; INLINE]>,
    /// Those of this server.
    local: SmallVec<[PlannedCounter; INLINE]>,
    /// Whether local counters have denied it before the store was called.
    is_denied: bool,
    /// The groups of the counters of each descriptor, if counters have groups.
    groups: SmallVec<[u16; INLINE]>,
}

/// One counter of a remote request.
pub struct RemoteCounter<'p> {
    /// Its key.
    pub key: Key,
    /// Its limit; all charges of a counter have it, but for the number of a limit that the request brings along.
    pub limit: &'p RuleLimit,
    /// Hits that the request gives back to it.
    pub given: u64,
    /// Its group: counters of one group are in one slot of a cluster. 0 if counters have no groups.
    pub group: u16,
}

/// The hits of one descriptor for a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteCharge {
    /// Index of the descriptor.
    pub descriptor: u32,
    /// What follows if it does not fit.
    pub denial: Denial,
    /// Whether its hits are counted even if the request is denied.
    pub is_always: bool,
    /// It fits if the hits used plus these are at most `used_max`; none if it always fits.
    pub need: Option<u64>,
    /// See `need`.
    pub used_max: u64,
    /// Hits to be counted.
    pub taken: u64,
    /// Hits to be given back.
    pub given: u64,
}

/// What follows if a charge does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// The request is denied.
    Always,
    /// Nothing: the rule is in shadow mode.
    Never,
    /// The request is denied if every quota of it is over its limit.
    Quota,
}

/// What is decided if the store does not decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WithoutStore {
    /// Deny.
    Deny,
    /// Admit without counting.
    Allow,
    /// Decide over local counters, by an equal share of each limit for each of so many servers.
    Local {
        /// Servers that share the store, this one included.
        servers: u32,
    },
}

impl Limiter {
    /// The rules as they are now, for a decision that takes time.
    pub fn hold(&self) -> HeldRules<'_> {
        HeldRules { in_force: Arc::clone(&self.in_force.load()), limiter: self }
    }
}

impl HeldRules<'_> {
    /// Number of these rules: see [`NextRules::generation`](super::NextRules::generation).
    pub fn generation(&self) -> u64 {
        self.in_force.generation
    }

    /// The request as the store is to decide it; none if all of its counters are local.
    pub fn remote(&self, request: &Request<'_>) -> Option<RemoteRequest<'_>> {
        let domain = self.in_force.rules.domain(request.domain()).filter(|domain| domain.is_shared())?;
        let plan = Plan::new(domain, &self.in_force.keys, request);
        let is_local = |counter: &PlannedCounter| plan.first(counter).limit.is_local;
        let (local, counters): (SmallVec<_>, SmallVec<_>) = counters(&plan).into_iter().partition(is_local);
        if counters.is_empty() && !local.is_empty() {
            return None;
        }
        let groups = if self.limiter.has_groups { self.groups(domain, request) } else { SmallVec::new() };
        Some(RemoteRequest { held: self, plan, counters, local, is_denied: false, groups })
    }

    fn groups(&self, domain: &DomainRules, request: &Request<'_>) -> SmallVec<[u16; INLINE]> {
        let keys = &self.in_force.keys;
        let group = |descriptor: &Descriptor<'_>| {
            let found = if descriptor.limit.is_some() { None } else { domain.find(&descriptor.entries) };
            let (shared, shard_by) = match &found {
                Some(found) => (&found.shared[..], found.rule.shard_by),
                None => (&[][..], None),
            };
            keys.group(domain, &descriptor.entries, shared, shard_by)
        };
        request.descriptors().iter().map(group).collect()
    }
}

impl<'h> RemoteRequest<'h> {
    /// Evaluates the local counters. If they deny the request, the store charges nothing.
    pub fn evaluate_local(&mut self, now: Timestamp) {
        if self.local.is_empty() {
            return;
        }
        let Limiter { store, compat, global_shadow, .. } = self.held.limiter;
        let mut shards =
            LockedShards::lock(store, &mut self.local, &self.plan, &self.held.in_force.rules, now);
        let mut deciding = Deciding::new(&mut self.plan, &self.local, &mut shards, *compat, now).by_sums();
        deciding.evaluate();
        self.is_denied = !global_shadow && deciding.verdict() == Code::OverLimit;
    }

    /// Whether some of its counters are local.
    pub fn has_local_counters(&self) -> bool {
        !self.local.is_empty()
    }

    /// Whether no counter is to be read, so that the decision needs no store.
    pub fn needs_no_store(&self) -> bool {
        self.counters.is_empty()
    }

    /// The counters, in the order in which [`Self::decide`] expects their states, each with its charges.
    pub fn counters(
        &self,
    ) -> impl ExactSizeIterator<Item = (RemoteCounter<'_>, impl ExactSizeIterator<Item = RemoteCharge>)> {
        self.counters.iter().map(move |counter| {
            let of_counter = &self.plan.by_key[counter.charges()];
            let first = self.plan.first(counter);
            let group = self.groups.get(first.descriptor as usize).copied().unwrap_or(0);
            let remote =
                RemoteCounter { key: counter.key, limit: &first.limit, given: counter.hits.given, group };
            let taken = counter.hits.taken;
            (
                remote,
                of_counter.iter().map(move |&charge| self.charge(&self.plan.charges[charge as usize], taken)),
            )
        })
    }

    /// Number of quotas in the store that must all be over their limits for one of them to deny.
    pub fn quotas(&self) -> usize {
        let quotas = self.quota_descriptors().filter(|descriptor| !descriptor.reached.is_local());
        if self.quotas_deny() { quotas.count() } else { 0 }
    }

    /// Whether quotas in the store can deny at all: not if one is in shadow mode, which is never over, and not if a local one is not
    /// over.
    fn quotas_deny(&self) -> bool {
        let admits = |descriptor: &DescriptorPlan<'_>| {
            descriptor.reached.is_shadow() || (descriptor.reached.is_local() && !descriptor.is_over)
        };
        !self.held.limiter.global_shadow && !self.quota_descriptors().any(admits)
    }

    fn quota_descriptors(&self) -> impl Iterator<Item = &DescriptorPlan<'h>> {
        let compat = self.held.limiter.compat;
        self.plan.descriptors.iter().filter(move |descriptor| descriptor.reached.is_quota(compat))
    }

    fn charge(&self, charge: &Charge<'_>, taken_of_counter: u64) -> RemoteCharge {
        let reached = self.plan.descriptors[charge.descriptor as usize].reached;
        let denial = if self.held.limiter.global_shadow || reached.is_shadow() {
            Denial::Never
        } else if reached.is_quota(self.held.limiter.compat) {
            if self.quotas_deny() { Denial::Quota } else { Denial::Never }
        } else {
            Denial::Always
        };
        let admitted = admitted(&charge.limit.algorithm);
        let (need, used_max) = match (charge.hits, charge.limit.semantics) {
            (Hits::Take(_), _) => (Some(taken_of_counter), admitted),
            (Hits::Peek, Semantics::Exact) => (Some(1), admitted),
            (Hits::Peek, Semantics::Reference) => (Some(0), u64::from(charge.limit.requests)),
            (Hits::GiveBack(_), _) => (None, 0),
        };
        let (taken, given) = match charge.hits {
            Hits::Take(hits) => (hits.get(), 0),
            Hits::GiveBack(hits) => (0, hits.get()),
            Hits::Peek => (0, 0),
        };
        let is_always = charge.is_always();
        let (taken, given) = if self.is_denied && !is_always { (0, 0) } else { (taken, given) };
        RemoteCharge { descriptor: charge.descriptor, denial, is_always, need, used_max, taken, given }
    }

    /// The decision of the store, which read these states at `now`, one for each counter. `times` has the times of the
    /// counters instead if several nodes read them. With `with_limits`, the service limits of the request too, as of after the
    /// decision. `local_now` is the time of this server, by which local counters are decided and charged.
    pub fn decide(
        &mut self,
        states: SmallVec<[State; INLINE]>,
        now: Timestamp,
        times: &[Timestamp],
        with_limits: bool,
        local_now: Timestamp,
    ) -> Decision<'h> {
        debug_assert_eq!(states.len(), self.counters.len());
        let keys = self.counters.iter().map(|counter| counter.key);
        let mut fetched = Fetched { states: keys.zip(states).collect(), times: times.into() };
        if self.has_local_counters() {
            if times.is_empty() {
                fetched.times = SmallVec::from_elem(now, self.counters.len());
            }
            return self.decide_mixed(fetched, with_limits, local_now);
        }
        let mut deciding =
            Deciding::new(&mut self.plan, &self.counters, &mut fetched, self.held.limiter.compat, now)
                .by_sums();
        deciding.evaluate();
        let code = if self.held.limiter.global_shadow { Code::Ok } else { deciding.verdict() };
        deciding.settle(code == Code::Ok, true);
        let mut decision = reported_decision(code, &self.plan);
        if with_limits && !self.held.limiter.global_shadow {
            let limits = service_limits::of(&self.plan, &self.counters, &fetched, now);
            decision.service_limits = Some(Box::new(limits));
        }
        decision
    }

    /// The decision from the states of the store and the local counters, which are charged with it.
    fn decide_mixed(&mut self, fetched: Fetched, with_limits: bool, now: Timestamp) -> Decision<'h> {
        let HeldRules { in_force, limiter } = self.held;
        let mut all: SmallVec<[PlannedCounter; INLINE]> = std::mem::take(&mut self.local);
        let locals = all.len();
        let shards = LockedShards::lock(&limiter.store, &mut all, &self.plan, &in_force.rules, now);
        all.append(&mut self.counters);
        let mut states = Mixed { local: shards, locals, fetched };
        let mut deciding = Deciding::new(&mut self.plan, &all, &mut states, limiter.compat, now).by_sums();
        deciding.evaluate();
        let (code, has_room) = deciding.conclude(&limiter.store, limiter.global_shadow);
        deciding.settle(code == Code::Ok, has_room);
        let number = limiter.store.next_number();
        let mut decision = Decision { number, ..reported_decision(code, &self.plan) };
        if with_limits && !limiter.global_shadow {
            let limits = service_limits::of(&self.plan, &all, &states, now);
            decision.service_limits = Some(Box::new(limits));
        }
        self.counters = all.drain(locals..).collect();
        self.local = all;
        decision
    }

    /// The decision if the store does not decide.
    pub fn decide_without_store(mut self, how: WithoutStore, now: Timestamp) -> Decision<'h> {
        match how {
            WithoutStore::Allow => self.decide_by_local_counters(now),
            WithoutStore::Deny => {
                for charge in &mut self.plan.charges {
                    if !matches!(charge.hits, Hits::GiveBack(_)) && !charge.limit.is_local {
                        charge.fit = Fit::NoRoom;
                        self.plan.descriptors[charge.descriptor as usize].is_over = true;
                    }
                }
                self.decide_by_local_counters(now)
            }
            WithoutStore::Local { servers } => self.decide_locally(servers, now),
        }
    }

    /// Decides by the local counters, if there are any, and by the charges that do not fit already.
    fn decide_by_local_counters(mut self, now: Timestamp) -> Decision<'h> {
        let HeldRules { in_force, limiter } = self.held;
        let (code, number) = decide_plan(limiter, &in_force.rules, &mut self.plan, &mut self.local, now);
        Decision { number, ..reported_decision(code, &self.plan) }
    }

    /// Decides over local counters. An equal share of a limit is enforced by counting each hit as often as there are
    /// servers: the states of counters do not depend on their number, which may change. A limit below that number admits
    /// one hit.
    fn decide_locally(mut self, servers: u32, now: Timestamp) -> Decision<'h> {
        let weight = |charge: &Charge<'_>| {
            let servers = if charge.limit.is_local { 1 } else { u64::from(servers) };
            NonZeroU64::new(servers.min(admitted(&charge.limit.algorithm))).unwrap_or(NonZeroU64::MIN)
        };
        for charge in &mut self.plan.charges {
            let weight = weight(charge);
            charge.hits = match charge.hits {
                Hits::Take(hits) => Hits::Take(hits.saturating_mul(weight)),
                Hits::GiveBack(hits) => Hits::GiveBack(hits.saturating_mul(weight)),
                Hits::Peek => Hits::Peek,
            };
        }
        self.counters = counters(&self.plan);
        let Self { held: HeldRules { in_force, limiter }, mut plan, mut counters, .. } = self;
        let (code, number) = decide_plan(limiter, &in_force.rules, &mut plan, &mut counters, now);
        for charge in &mut plan.charges {
            charge.remaining /= weight(charge);
        }
        Decision { number, ..reported_decision(code, &plan) }
    }
}

impl Pinned<'_> {
    /// Whether a shared store is to decide the request: one to a domain with shared counters, but not if all of its rules have local
    /// ones.
    pub fn is_remote(&self, request: &Request<'_>) -> bool {
        let rules = &self.in_force.rules;
        let domain = rules.domain(request.domain()).filter(|domain| domain.is_shared());
        domain.is_some_and(|domain| !domain.has_local_rules() || has_shared_counters(domain, request))
    }
}

/// Whether a descriptor of the request has a limit with shared counters.
fn has_shared_counters(domain: &DomainRules, request: &Request<'_>) -> bool {
    request.descriptors().iter().any(|descriptor| {
        let is_shared = |limit: &RuleLimit| !limit.is_local;
        match domain.find(&descriptor.entries) {
            _ if descriptor.limit.is_some() => true,
            Some(found) => found.rule.limits.iter().any(is_shared),
            None => false,
        }
    })
}

/// The most hits that an empty counter admits.
fn admitted(algorithm: &Algorithm) -> u64 {
    algorithm.remaining(&State::EMPTY, Timestamp::EPOCH)
}

/// The counters of one request as the store returned them, in ascending order of keys.
pub(super) struct Fetched {
    states: SmallVec<[(Key, State); INLINE]>,
    /// The times at which they were read, if they differ.
    times: SmallVec<[Timestamp; INLINE]>,
}

impl Fetched {
    fn index(&self, counter: &PlannedCounter) -> usize {
        self.find(counter).expect("the counters of the request are those that were fetched")
    }

    fn find(&self, counter: &PlannedCounter) -> Option<usize> {
        self.states.binary_search_by_key(&counter.key, |(key, _)| *key).ok()
    }
}

impl Counters for Fetched {
    fn has(&self, counter: &PlannedCounter) -> bool {
        self.states[self.index(counter)].1 != State::EMPTY
    }

    fn state(&self, counter: &PlannedCounter) -> Cow<'_, State> {
        Cow::Borrowed(&self.states[self.index(counter)].1)
    }

    fn change(
        &mut self,
        counter: &PlannedCounter,
        _: &RuleLimit,
        _: Timestamp,
        change: impl FnOnce(State) -> Standing,
    ) -> Reading {
        let index = self.index(counter);
        let Standing { state, remaining, until_full, .. } = change(std::mem::take(&mut self.states[index].1));
        self.states[index].1 = state;
        Reading { remaining, until_full }
    }

    fn make_room(&mut self, _: &[PlannedCounter], _: &[bool], _: Timestamp) -> bool {
        true
    }

    fn time(&self, counter: &PlannedCounter, now: Timestamp) -> Timestamp {
        self.times.get(self.index(counter)).copied().unwrap_or(now)
    }
}

/// The counters of a request of which some are local: these, locked, are the first of all counters.
struct Mixed<'s> {
    local: LockedShards<'s>,
    locals: usize,
    fetched: Fetched,
}

impl Mixed<'_> {
    fn is_fetched(&self, counter: &PlannedCounter) -> bool {
        self.fetched.find(counter).is_some()
    }
}

impl Counters for Mixed<'_> {
    /// The store has room for every counter.
    fn has(&self, counter: &PlannedCounter) -> bool {
        self.is_fetched(counter) || self.local.has(counter)
    }

    fn state(&self, counter: &PlannedCounter) -> Cow<'_, State> {
        if self.is_fetched(counter) { self.fetched.state(counter) } else { self.local.state(counter) }
    }

    fn change(
        &mut self,
        counter: &PlannedCounter,
        limit: &RuleLimit,
        now: Timestamp,
        change: impl FnOnce(State) -> Standing,
    ) -> Reading {
        match self.is_fetched(counter) {
            true => self.fetched.change(counter, limit, now, change),
            false => self.local.change(counter, limit, now, change),
        }
    }

    fn make_room(&mut self, counters: &[PlannedCounter], to_be_created: &[bool], now: Timestamp) -> bool {
        self.local.make_room(&counters[..self.locals], &to_be_created[..self.locals], now)
    }

    fn time(&self, counter: &PlannedCounter, now: Timestamp) -> Timestamp {
        if self.is_fetched(counter) { self.fetched.time(counter, now) } else { now }
    }
}
