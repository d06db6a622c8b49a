//! Requests that leased credits may decide: on a server instead of the shared store, or on a node instead of the server. Their charges, and
//! the decision.

use super::{
    fast_path::{DESCRIPTORS_MAX, PlainCharge},
    in_force::{InForce, Limiter, OwnedPinned, Pinned},
    ticket,
};
use crate::{
    algorithm::Algorithm,
    limit::{Code, Decision, Hits, Request, Reset, Status},
    rules::{ConditionalLimits, DomainRules, RuleLimit},
    store::Key,
};
use smallvec::SmallVec;

/// Hits of a descriptor for the counter of its only limit.
#[derive(Clone, Copy)]
pub struct LeasableCharge<'r> {
    charge: PlainCharge<'r>,
    is_shared: bool,
}

/// One charge for each descriptor, none for a descriptor without a limit. No two charges are for one counter.
pub type LeasableCharges<'r> = SmallVec<[Option<LeasableCharge<'r>>; DESCRIPTORS_MAX]>;

/// The numbers of a status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeasedStatus {
    /// Whether the counter of the descriptor admits its hits.
    pub code: Code,
    /// Hits that remain.
    pub remaining: u64,
    /// When `remaining` changes.
    pub reset: Reset,
}

impl Pinned<'_> {
    /// See [`OwnedPinned::leasable`].
    #[inline]
    pub fn leasable(&self, request: &Request<'_>) -> Option<LeasableCharges<'_>> {
        leasable(&self.in_force, self.limiter, request, true)
    }
}

impl OwnedPinned<'_> {
    /// The charges of a request to a domain with shared counters, if credits can decide it. The request has a few descriptors, each with
    /// hits for at most one limit, and no limit counts denied requests, is in shadow or quota mode, or is replaced.
    pub fn leasable(&self, request: &Request<'_>) -> Option<LeasableCharges<'_>> {
        leasable(&self.in_force, self.limiter, request, true)
    }
}

/// See [`Pinned::leasable`]: for domains with shared counters if `is_shared`, else for domains with counters of this process.
pub(super) fn leasable<'p>(
    in_force: &'p InForce,
    limiter: &Limiter,
    request: &Request<'_>,
    is_shared: bool,
) -> Option<LeasableCharges<'p>> {
    let descriptors = request.descriptors();
    if limiter.global_shadow || descriptors.len() > DESCRIPTORS_MAX {
        return None;
    }
    let domain = in_force.rules.domain(request.domain()).filter(|domain| domain.is_shared() == is_shared)?;
    if descriptors.len() > 1 && domain.features.replaces {
        return None;
    }
    if domain.features.tickets && descriptors.iter().any(ticket::names_ticket) {
        return None;
    }
    if let Some(limits) = domain.conditional() {
        return conditional_charge(in_force, domain, limits, request);
    }
    let mut charges = LeasableCharges::new();
    for descriptor in descriptors {
        let (Hits::Take(hits), None) = (descriptor.hits, descriptor.limit) else { return None };
        let Some(found) = domain.find(&descriptor.entries) else {
            charges.push(None);
            continue;
        };
        let limit = found.rule.leasable_limit()?;
        let key = in_force.keys.key(domain, limit, &descriptor.entries, &found.shared);
        if charges.iter().flatten().any(|charge: &LeasableCharge<'_>| charge.key() == key) {
            return None;
        }
        let charge = PlainCharge::new(key, found.rule, limit, hits.get());
        charges.push(Some(LeasableCharge { charge, is_shared }));
    }
    charges.iter().any(Option::is_some).then_some(charges)
}

/// The charge of the only limit that applies by conditions, with the hits of the first descriptor.
fn conditional_charge<'p>(
    in_force: &'p InForce,
    domain: &DomainRules,
    limits: &'p ConditionalLimits,
    request: &Request<'_>,
) -> Option<LeasableCharges<'p>> {
    let descriptors = request.descriptors();
    let Hits::Take(hits) = descriptors.first()?.hits else { return None };
    if descriptors.iter().any(|descriptor| domain.overlaid(&descriptor.entries).is_some()) {
        return None;
    }
    let mut only = None;
    let mut applied = 0;
    limits.for_request(descriptors, |conditional, values| {
        applied += 1;
        let (rule, limit) = (&conditional.rule, conditional.limit());
        let key = in_force.keys.of_values(domain, limit, values);
        let charge = |limit| PlainCharge::new(key, rule, limit, hits.get());
        let charge = |limit| LeasableCharge { charge: charge(limit), is_shared: domain.is_shared() };
        only = rule.leasable_limit().map(charge);
    });
    let mut charges: LeasableCharges<'_> = descriptors.iter().map(|_| None).collect();
    charges[0] = Some(only.filter(|_| applied == 1)?);
    Some(charges)
}

impl<'r> LeasableCharge<'r> {
    /// Key of the counter.
    pub fn key(&self) -> Key {
        self.charge.key
    }

    /// Whether the counter is in a shared store.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Algorithm of the limit.
    pub fn algorithm(&self) -> &'r Algorithm {
        &self.charge.limit.algorithm
    }

    /// Whether a denial has a response of its own.
    pub fn has_on_deny(&self) -> bool {
        self.charge.rule.info.on_deny.is_some()
    }

    /// The limit.
    pub fn limit(&self) -> &'r RuleLimit {
        self.charge.limit
    }

    /// Hits.
    pub fn hits(&self) -> u64 {
        self.charge.hits
    }
}

/// The decision on a request with these charges, each of which has this status.
pub fn leased_decision<'r>(
    charges: &[Option<LeasableCharge<'r>>],
    mut statuses: impl Iterator<Item = LeasedStatus>,
) -> Decision<'r> {
    let mut decision = Decision::new(Code::Ok, SmallVec::new());
    for charge in charges {
        let status = charge.as_ref().and_then(|_| statuses.next());
        let (Some(LeasableCharge { charge, .. }), Some(status)) = (charge, status) else {
            decision.statuses.push(Status::NO_LIMIT);
            continue;
        };
        if status.code == Code::OverLimit {
            decision.code = Code::OverLimit;
        }
        decision.statuses.push(charge.status(status.code, status.remaining, status.reset));
    }
    decision
}
