//! Messages of leases: checked when they are received. Times are whole microseconds, rounded to the side on which less is admitted.

use crate::api::pb::{
    leases::{ExchangeRequest, exchange_response as pb},
    rpc,
    service::RateLimitResponse,
};
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use tidegate_service::{CounterId, GrantableCounters};
use tidegate_shared::{
    granter::{CounterTerms, TOTAL_MAX},
    lease::{HolderTerms, LeaseRequest, LeaseResponse, NodeId, Settings, Supply},
};
use tonic::Status;

/// The most decisions of a call.
const DECISIONS_MAX: usize = 64;

/// The most claims of a call.
const CLAIMS_MAX: usize = 512;

/// The claims of a call.
pub(super) struct Claims {
    pub(super) node: NodeId,
    pub(super) epoch: u64,
    pub(super) generation: u64,
    claims: Vec<(CounterId, LeaseRequest)>,
}

impl Claims {
    pub(super) fn iter(&self) -> impl Iterator<Item = (CounterId, LeaseRequest)> + '_ {
        self.claims.iter().copied()
    }
}

/// Checks a request, and returns its claims.
pub(super) fn claims(request: &ExchangeRequest, actor: &str) -> Result<Claims, Status> {
    let invalid = |text: String| Status::invalid_argument(text);
    if request.node == 0 {
        return Err(invalid(
            "node: is 0; send a random number, the same in every call of the process".into(),
        ));
    }
    for (name, count, max) in
        [("decisions", request.decisions.len(), DECISIONS_MAX), ("claims", request.claims.len(), CLAIMS_MAX)]
    {
        if count > max {
            return Err(invalid(format!("{name}: has {count}; send at most {max} in a call")));
        }
    }
    let node = node_of(actor, request.node);
    let claims = request.claims.iter().enumerate().map(|(index, claim)| {
        let invalid = |field, text: String| invalid(format!("claims[{index}].{field}: {text}"));
        let totals = [("spent", claim.spent), ("acknowledged", claim.acknowledged), ("kept", claim.kept)];
        if let Some((field, total)) = totals.into_iter().find(|(_, total)| *total >= TOTAL_MAX) {
            return Err(invalid(field, format!("is {total}; send less than 2^53")));
        }
        if claim.sequence == 0 {
            return Err(invalid("sequence", "is 0; count from 1".into()));
        }
        let id = claim.counter.as_slice().try_into().map_err(|_| {
            let bytes = claim.counter.len();
            invalid("counter", format!("has {bytes} bytes; send the 16 bytes of a response"))
        })?;
        let request = LeaseRequest {
            node,
            holder: claim.holder,
            sequence: claim.sequence,
            spent: claim.spent,
            acknowledged: claim.acknowledged,
            spent_ago: claim.spent_ago_us.saturating_mul(1_000),
            kept: claim.kept,
            demand: claim.demand,
        };
        Ok((id, request))
    });
    let claims = claims.collect::<Result<_, _>>()?;
    Ok(Claims { node, epoch: request.epoch, generation: request.generation, claims })
}

/// Returns the id of a caller's node, the same after a restart of the server. It depends on the caller, so that no caller can report for
/// another caller's nodes, whose numbers it may have seen.
fn node_of(actor: &str, number: u64) -> NodeId {
    let hash = Sha256::new().chain_update(number.to_le_bytes()).chain_update(actor).finalize();
    NodeId(hash.first_chunk().map_or(number, |bytes| u64::from_le_bytes(*bytes)))
}

/// The response to a claim; empty if the claim was ignored.
pub(super) fn grant(response: Option<LeaseResponse>) -> pb::Grant {
    let Some(response) = response else { return pb::Grant::default() };
    pb::Grant {
        sequence: response.sequence,
        spend_to: response.spend_to,
        valid_us: micros(response.valid_for),
        supply: match response.supply {
            Supply::Ample => pb::Supply::Ample,
            Supply::Scarce => pb::Supply::Scarce,
            Supply::TooSmall => pb::Supply::TooSmall,
            Supply::Learning => pb::Supply::Learning,
        }
        .into(),
        report_after_us: micros(response.report_after),
        free: response.free,
        empty_us: micros(response.empty_for),
        until_full_us: micros(response.until_full.saturating_add(Duration::from_nanos(999))),
    }
}

/// A decision, with the counters of a request that holders may decide.
pub(super) fn decision(
    response: RateLimitResponse,
    hold: Option<Duration>,
    counters: GrantableCounters,
) -> pb::Decision {
    let counters = counters.into_iter().map(|counter| match counter {
        None => pb::Counter::default(),
        Some((id, CounterTerms { holder: HolderTerms { limit, span, .. }, denied_for })) => {
            pb::Counter { id: id.to_vec(), limit, span_us: span, denied_for_us: micros(denied_for) }
        }
    });
    let counters = counters.collect();
    // Never 0 with a ticket.
    let hold_us = hold.map_or(0, |hold| micros(hold).max(1));
    pb::Decision { result: Some(pb::decision::Result::Response(response)), counters, hold_us }
}

/// A request that was not decided.
pub(super) fn error(status: &Status) -> pb::Decision {
    let error = rpc::Status { code: status.code() as i32, message: status.message().to_owned() };
    pb::Decision { result: Some(pb::decision::Result::Error(error)), ..pb::Decision::default() }
}

/// The settings of all leases.
pub(super) fn settings(settings: Settings, has_shared_store: bool) -> pb::Settings {
    let Settings { length, grant_min, limit_min, hold_min } = settings;
    pb::Settings {
        length_us: micros(length),
        grant_min,
        limit_min,
        hold_min_us: micros(hold_min),
        has_shared_store,
    }
}

/// Whole microseconds, rounded down.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pb::leases::exchange_request::Claim;

    fn claim() -> Claim {
        Claim {
            counter: (0..16).collect(),
            holder: 3,
            sequence: 4,
            spent: 10,
            acknowledged: 5,
            spent_ago_us: 6,
            kept: 7,
            demand: 8,
        }
    }

    fn checked(claim: Claim) -> Result<(CounterId, LeaseRequest), String> {
        let request = ExchangeRequest { node: 9, claims: vec![claim], ..ExchangeRequest::default() };
        claims(&request, "a").map(|claims| claims.claims[0]).map_err(|status| status.message().to_owned())
    }

    #[test]
    fn a_claim_is_read_as_it_was_sent() {
        let (id, request) = checked(claim()).unwrap();
        assert_eq!(id[..3], [0, 1, 2]);
        assert_eq!((request.holder, request.sequence, request.spent_ago), (3, 4, 6_000));
        assert_eq!((request.spent, request.acknowledged, request.kept, request.demand), (10, 5, 7, 8));
    }

    #[test]
    fn malformed_claims_are_refused_with_their_place() {
        let error = |claim| checked(claim).unwrap_err();
        let short = Claim { counter: vec![1; 5], ..claim() };
        assert_eq!(error(short), "claims[0].counter: has 5 bytes; send the 16 bytes of a response");
        assert!(checked(Claim { counter: vec![1; 17], ..claim() }).is_err());
        assert_eq!(error(Claim { sequence: 0, ..claim() }), "claims[0].sequence: is 0; count from 1");
        let large = Claim { kept: u64::MAX, ..claim() };
        assert_eq!(error(large), format!("claims[0].kept: is {}; send less than 2^53", u64::MAX));
        let far = Claim { spent_ago_us: u64::MAX, demand: u64::MAX, holder: u64::MAX, ..claim() };
        assert!(checked(far).is_ok());
    }

    #[test]
    fn a_caller_cannot_name_the_nodes_of_another() {
        assert_eq!(node_of("token:a", 7), node_of("token:a", 7));
        assert_ne!(node_of("token:a", 7), node_of("token:b", 7));
        assert_ne!(node_of("token:a", 7), node_of("token:a", 8));
    }
}
