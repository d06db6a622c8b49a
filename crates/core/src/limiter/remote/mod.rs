//! Decisions over counters in a shared store: the charges for the store to evaluate, and the decision from the states that it returns.
//!
//! The store reads the counters of a request, evaluates, and charges all or none, at one moment of its own clock. It returns
//! that moment and the states that it read; from these the same steps as for local counters yield the same verdict, and the
//! numbers of the statuses.
//!
//! A request may have local counters besides (`counters: local` of a rule). They are evaluated before the store is called, which
//! charges nothing if they deny, and decided with the store's states when it has responded. If they deny only then, the store has
//! to take back what it has charged.

mod decide;
mod fetched;
mod waits;

use super::{
    counters::LockedShards,
    deciding::Deciding,
    hit_sum::HitSum,
    in_force::{Limiter, OwnedPinned, Pinned},
    keys::Keys,
    plan::{Charge, DescriptorPlan, INLINE, Plan, PlannedCounter, counters},
    queue::{StoreWait, Wanted},
    releases::NamedChanges,
    slots::{SlotCharges, StoredCharges},
    ticket::{self, Held},
};
use crate::{
    algorithm::{Algorithm, State},
    limit::{Code, Descriptor, Hits, Request, Timestamp, Window},
    rules::{DomainRules, Reserve, RuleLimit, Semantics},
    store::Key,
};
use smallvec::SmallVec;

/// A request to a domain whose counters are in a shared store.
pub struct RemoteRequest<'h> {
    owned: &'h OwnedPinned<'h>,
    plan: Plan<'h>,
    /// Counters in the store.
    counters: SmallVec<[PlannedCounter; INLINE]>,
    /// Counters of this server.
    local: SmallVec<[PlannedCounter; INLINE]>,
    /// Whether it was denied before the store was called: by local counters, or by a renewal.
    is_denied: bool,
    groups: Groups,
    /// The slots and the reservations that it takes in the store.
    stored: StoredCharges,
    /// How long it may wait for slots; none if it is denied at once.
    wait: Option<StoreWait>,
    /// The lines in which it waits, if the store's decision makes it wait.
    wanted: Option<Wanted>,
}

/// The groups of the counters.
enum Groups {
    /// Counters have none.
    None,
    /// The counters of each descriptor have one group.
    OfDescriptors(SmallVec<[u16; INLINE]>),
    /// Each counter has its own, by its key: requests with different entries share counters of limits that apply by conditions.
    OfKeys,
}

/// One counter of a remote request.
pub struct RemoteCounter<'p> {
    /// Its key.
    pub key: Key,
    /// Its limit. All charges of a counter have the same, except that limits in a request may differ in number.
    pub limit: &'p RuleLimit,
    /// Hits that the request gives back to it.
    pub given: u64,
    /// The id of the slot that the request takes there; 0 if it takes none.
    pub slot: u64,
    /// The reservation that it starts there.
    pub reservation: Option<StoredReservation>,
    /// Its group: counters of one group are in one slot of a cluster. 0 if counters have no groups.
    pub group: u16,
}

/// A reservation that a request starts in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredReservation {
    /// The id by which it is ended; never 0.
    pub id: u64,
    /// The longest time until its end.
    pub max_hold: Window,
    /// Whether its hits are returned then; else they stay counted.
    pub returns: bool,
}

/// The hits of one descriptor for a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteCharge {
    /// Index of the descriptor.
    pub descriptor: u32,
    /// The consequence if it does not fit.
    pub denial: DeniesWhen,
    /// Whether its hits are counted even if the request is denied.
    pub is_always: bool,
    /// Whether the hits are not counted if another charge of this kind exceeds its limit by itself, and this charge does not.
    pub stops_counting: bool,
    /// It fits if the hits used plus these are at most `used_max`; none if it always fits.
    pub need: Option<u64>,
    /// See `need`.
    pub used_max: u64,
    /// Hits to be counted.
    pub taken: u64,
    /// Hits to be given back.
    pub given: u64,
}

/// The consequence of a charge that does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeniesWhen {
    /// The request is denied.
    Always,
    /// Nothing: the rule is in shadow mode.
    Never,
    /// The request is denied if all of its quotas are over their limits.
    Quota,
}

/// The decision if the store does not decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WithoutStore {
    /// Deny.
    Deny,
    /// Admit without counting.
    Allow,
    /// Decide over local counters, with an equal share of each limit for each of `servers` servers.
    Local {
        /// Servers that share the store, this one included.
        servers: u32,
    },
}

impl Groups {
    /// The group of a counter, by its key and the first of its charges; 0 if counters have none.
    fn of(&self, key: Key, first: &Charge<'_>) -> u16 {
        match self {
            Self::None => 0,
            Self::OfDescriptors(groups) => groups.get(first.descriptor as usize).copied().unwrap_or(0),
            Self::OfKeys => Keys::group_of(key),
        }
    }
}

impl OwnedPinned<'_> {
    /// The request as the store is to decide it, received at `now`; none if all of its counters are local.
    pub fn remote(&self, request: &Request<'_>, now: Timestamp) -> Option<RemoteRequest<'_>> {
        let domain = self.in_force.rules.domain(request.domain()).filter(|domain| domain.is_shared())?;
        let plan = Plan::new(domain, &self.in_force.keys, request, now);
        let mut remote = self.planned(domain, plan, request)?;
        if domain.features.tickets {
            remote.plan_tickets(now);
        }
        Some(remote)
    }

    /// As [`OwnedPinned::remote`], but past blocks and overrides that count nothing.
    pub(super) fn remote_counters(&self, request: &Request<'_>) -> Option<RemoteRequest<'_>> {
        let domain = self.in_force.rules.domain(request.domain()).filter(|domain| domain.is_shared())?;
        self.planned(domain, Plan::of_counters(domain, &self.in_force.keys, request), request)
    }

    fn planned<'h>(
        &'h self,
        domain: &DomainRules,
        plan: Plan<'h>,
        request: &Request<'_>,
    ) -> Option<RemoteRequest<'h>> {
        let is_local = |counter: &PlannedCounter| plan.first(counter).limit.is_local;
        let (local, counters): (SmallVec<_>, SmallVec<_>) = counters(&plan).into_iter().partition(is_local);
        // The tickets have been applied already: the rest is decided with them.
        let names_ticket = domain.features.tickets && request.descriptors().iter().any(ticket::names_ticket);
        if counters.is_empty() && !local.is_empty() && !names_ticket {
            return None;
        }
        let groups = match domain.conditional() {
            _ if !self.limiter.has_groups => Groups::None,
            Some(_) => Groups::OfKeys,
            None => Groups::OfDescriptors(self.groups(domain, request)),
        };
        let stored = StoredCharges::default();
        Some(RemoteRequest {
            owned: self,
            plan,
            counters,
            local,
            is_denied: false,
            groups,
            stored,
            wait: None,
            wanted: None,
        })
    }

    fn groups(&self, domain: &DomainRules, request: &Request<'_>) -> SmallVec<[u16; INLINE]> {
        let keys = &self.in_force.keys;
        let group = |descriptor: &Descriptor<'_>| {
            // The counters behind a block have the group that they have without it; the block has none.
            let found =
                if descriptor.limit.is_some() { None } else { domain.find_counted(&descriptor.entries) };
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
    /// Lists the counters of the store in which the request takes slots or reserves, and gives these an id.
    fn plan_tickets(&mut self, now: Timestamp) {
        let Self { owned, plan, counters, groups, stored, .. } = self;
        for counter in counters.iter().filter(|counter| counter.hits.taken > 0) {
            let (first, key) = (plan.first(counter), counter.key);
            if let Some((kind, _)) = first.hold() {
                stored.held.push((Held { kind, key }, groups.of(key, first)));
            }
        }
        if !stored.held.is_empty() {
            stored.id = owned.limiter.slots.next_id(now);
        }
    }

    /// Denies the request if it renews what is no longer held. The store then charges nothing.
    pub fn conclude(&mut self, named: &NamedChanges) {
        named.conclude(&mut self.plan);
        self.is_denied |= !named.not_held.is_empty() && !self.owned.limiter.global_shadow;
    }

    /// Evaluates the local counters. If they deny the request, the store charges nothing.
    pub fn evaluate_local(&mut self, now: Timestamp) {
        if self.local.is_empty() {
            return;
        }
        let Limiter { store, compat, global_shadow, slots, .. } = self.owned.limiter;
        let mut shards =
            LockedShards::lock(store, &mut self.local, &self.plan, &self.owned.in_force.rules, now);
        let slots = SlotCharges::new(slots);
        let mut deciding =
            Deciding::new(&mut self.plan, &self.local, &mut shards, slots, *compat, now).by_sums();
        deciding.evaluate();
        self.is_denied |= !global_shadow && deciding.verdict() == Code::OverLimit;
    }

    /// Whether some of its counters are local.
    fn has_local_counters(&self) -> bool {
        !self.local.is_empty()
    }

    /// Whether this server may deny the request although the store admits it: by a renewal of what is not held, or by local counters.
    pub fn may_be_denied_here(&self) -> bool {
        self.is_denied || self.has_local_counters()
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
            let group = self.groups.of(counter.key, first);
            let (key, HitSum { taken, given }) = (counter.key, counter.hits);
            let slot = if first.limit.algorithm.holds_slots() { self.stored.id } else { 0 };
            let reserve = first.reserves().filter(|_| self.stored.id != 0 && taken > 0);
            let reservation = reserve.map(|Reserve { max_hold, returns, .. }| StoredReservation {
                id: self.stored.id,
                max_hold,
                returns,
            });
            let remote = RemoteCounter { key, limit: &first.limit, given, slot, reservation, group };
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

    /// Whether quotas in the store can deny at all: not if a quota is in shadow mode, which is never over, and not if a local quota is not
    /// over.
    fn quotas_deny(&self) -> bool {
        let admits = |descriptor: &DescriptorPlan<'_>| {
            descriptor.reached.is_shadow() || (descriptor.reached.is_local() && !descriptor.is_over)
        };
        !self.owned.limiter.global_shadow && !self.quota_descriptors().any(admits)
    }

    fn quota_descriptors(&self) -> impl Iterator<Item = &DescriptorPlan<'h>> {
        let compat = self.owned.limiter.compat;
        self.plan.descriptors.iter().filter(move |descriptor| descriptor.reached.is_quota(compat))
    }

    fn charge(&self, charge: &Charge<'_>, taken_of_counter: u64) -> RemoteCharge {
        let reached = self.plan.descriptors[charge.descriptor as usize].reached;
        let denial = if self.owned.limiter.global_shadow || reached.is_shadow() {
            DeniesWhen::Never
        } else if reached.is_quota(self.owned.limiter.compat) {
            if self.quotas_deny() { DeniesWhen::Quota } else { DeniesWhen::Never }
        } else {
            DeniesWhen::Always
        };
        let admitted = admitted(&charge.limit.algorithm);
        let (need, used_max) = match (charge.hits, charge.limit.semantics) {
            (Hits::Take(_), _) => (Some(taken_of_counter), admitted),
            (Hits::Peek, Semantics::Exact) => (Some(charge.limit.hits_of_peek()), admitted),
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
        let stops_counting =
            self.owned.limiter.compat.stop_counting && charge.limit.is_joined && need.is_some();
        let descriptor = charge.descriptor;
        RemoteCharge { descriptor, denial, is_always, stops_counting, need, used_max, taken, given }
    }
}

impl Pinned<'_> {
    /// Whether a shared store decides the request: its domain has shared counters, and not all rules it reaches have local counters.
    pub fn is_remote(&self, request: &Request<'_>) -> bool {
        let rules = &self.in_force.rules;
        let domain = rules.domain(request.domain()).filter(|domain| domain.is_shared());
        domain.is_some_and(|domain| !domain.features.local_rules || has_shared_counters(domain, request))
    }
}

/// Whether a descriptor of the request has a limit with shared counters, or names a slot or a reservation of such a limit.
fn has_shared_counters(domain: &DomainRules, request: &Request<'_>) -> bool {
    if domain.features.tickets && request.descriptors().iter().any(ticket::names_stored_ticket) {
        return true;
    }
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
