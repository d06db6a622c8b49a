//! Leases of this server's counters: the claims of holders, and what holders need of the counters of a request.

use super::{
    NotReady, RateLimitService,
    grants::Grants,
    lease_callers::{LeaseCaller, LeaseNode},
};
use smallvec::SmallVec;
use tidegate_core::{
    limit::{Request, Timestamp},
    limiter::{LeasableCharge, Pinned},
    store::Key,
};
use tidegate_shared::{
    granter::{CounterTerms, Granter},
    lease::{LeaseRequest, LeaseResponse, NodeId},
};

/// The counters of a request that a holder may decide: one for each descriptor, none for a descriptor without a limit.
pub type GrantableCounters = SmallVec<[Option<(CounterId, CounterTerms)>; 4]>;

/// Identity of a counter for holders.
pub type CounterId = [u8; 16];

/// The rules in force, for holders of credits.
pub struct GrantRules<'g> {
    /// The granter.
    pub granter: &'g Granter,
    rules: Pinned<'g>,
    now: Timestamp,
}

impl RateLimitService {
    /// Lets the service grant leases of its counters.
    pub fn with_grants(self, grants: Option<Grants>) -> Self {
        Self { grants, ..self }
    }

    /// The granter of leases, if the service grants any.
    pub fn grants(&self) -> Option<&Grants> {
        self.grants.as_ref()
    }

    /// The rules in force now.
    pub fn grant_rules(&self) -> Result<GrantRules<'_>, NotReady> {
        let granter = self.grants.as_ref().and_then(Grants::granter);
        let limiter = self.limiter.get().ok_or_else(|| self.not_ready())?;
        let granter = granter.ok_or_else(|| self.not_ready())?;
        Ok(GrantRules { granter, rules: limiter.pin(), now: self.clock.now() })
    }

    /// Notes the caller that claims credits.
    pub fn note_lease_caller(&self, node: NodeId, caller: LeaseCaller) {
        if let Some(grants) = &self.grants {
            grants.callers().note(node, caller);
        }
    }

    /// The nodes with leases, in no order; none if the service grants none.
    pub fn lease_nodes(&self) -> Result<Vec<LeaseNode>, NotReady> {
        let Some(grants) = &self.grants else { return Ok(Vec::new()) };
        let rules = self.grant_rules()?;
        let nodes = rules.granter.nodes(&rules.rules, rules.now);
        let node = |(node, leases)| LeaseNode { caller: grants.callers().get(node), leases };
        Ok(nodes.into_iter().map(node).collect())
    }

    /// Whether responses contain only codes and statuses, which holders can make.
    pub(super) fn has_plain_responses(&self) -> bool {
        self.options.is_none()
    }
}

impl GrantRules<'_> {
    /// Number of the rules.
    pub fn generation(&self) -> u64 {
        self.rules.generation()
    }

    /// The response to a claim on a counter; none if the claim is not newer than the last one. `is_current`: the holder got the identity
    /// from this process, under these rules.
    pub fn lease(&self, id: CounterId, claim: &LeaseRequest, is_current: bool) -> Option<LeaseResponse> {
        self.granter.lease(&self.rules, key_of(id), claim, is_current, self.now)
    }

    /// The counters of a decided request, if a holder may decide equal requests.
    pub fn counters(&self, service: &RateLimitService, request: &Request<'_>) -> Option<GrantableCounters> {
        if !service.has_plain_responses() {
            return None;
        }
        let charges = self.rules.grantable(request)?;
        let counter = |charge: &Option<_>| match charge {
            None => Some(None),
            Some(charge) => self.counter(charge).map(Some),
        };
        charges.iter().map(counter).collect()
    }

    fn counter(&self, charge: &LeasableCharge<'_>) -> Option<(CounterId, CounterTerms)> {
        let terms = self.granter.terms(&self.rules, charge.key(), charge.hits(), self.now)?;
        (!charge.has_on_deny()).then_some((id_of(charge.key()), terms))
    }
}

fn key_of(id: CounterId) -> Key {
    let number = u128::from_be_bytes(id);
    Key::from_halves((number >> 64) as u64, number as u64)
}

fn id_of(key: Key) -> CounterId {
    let (high, low) = key.halves();
    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_that_of_one_key() {
        let key = Key::from_halves(0x0102_0304_0506_0708, u64::MAX - 1);
        assert_eq!(key_of(id_of(key)), key);
        assert_eq!(id_of(key)[..2], [1, 2]);
    }
}
