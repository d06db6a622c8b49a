//! Tickets of admitted requests, and the calls that renew and end them.

use crate::api::pb::{
    common::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::RateLimitRequest,
};
use prost_types::{Struct, value::Kind};

/// A ticket in the metadata of a response: of slots of requests in flight, of estimates, or of both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ticket {
    pub(super) slot: String,
    /// The most hits of one of its slots or estimates.
    pub(super) cost: u64,
}

impl Ticket {
    /// The ticket in the metadata of a response, if it has one.
    pub(super) fn of(metadata: &Struct) -> Option<Self> {
        let field = |name| metadata.fields.get(name)?.kind.as_ref();
        let Kind::StringValue(slot) = field("slot")? else { return None };
        let cost = if let Some(Kind::NumberValue(cost)) = field("cost") { *cost as u64 } else { 1 };
        Some(Self { slot: slot.clone(), cost })
    }

    /// The request that renews it: the one by which it was taken, with the ticket in every descriptor.
    pub(super) fn renewal(&self, mut taken: RateLimitRequest) -> RateLimitRequest {
        for descriptor in &mut taken.descriptors {
            descriptor.entries.push(Entry { key: "renew".to_owned(), value: self.slot.clone() });
        }
        taken
    }

    /// The request that ends it: its slots are released, and its estimates replaced by the actual cost. Without one they stay.
    pub(super) fn end(self, domain: &str, cost: Option<u64>) -> RateLimitRequest {
        // Zero hits are a peek, which releases no slot: as many negative hits as each of them has at most release all.
        let (hits, is_negative_hits) = match cost {
            Some(0) => (self.cost, true),
            _ => (cost.unwrap_or(self.cost), false),
        };
        let descriptor = RateLimitDescriptor {
            entries: vec![Entry { key: "slot".to_owned(), value: self.slot }],
            limit: None,
            hits_addend: Some(hits),
            is_negative_hits,
        };
        RateLimitRequest { domain: domain.to_owned(), descriptors: vec![descriptor], hits_addend: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_types::Value;

    #[test]
    fn an_end_has_the_actual_cost_or_else_the_estimate_and_zero_gives_all_back() {
        let field = |name: &str, kind| (name.to_owned(), Value { kind: Some(kind) });
        let slot = || field("slot", Kind::StringValue("slot-1".to_owned()));
        let ticket = |fields| Ticket::of(&Struct { fields });
        assert_eq!(ticket([field("cost", Kind::NumberValue(3.0))].into()), None);
        assert_eq!(ticket([slot()].into()).expect("a ticket").cost, 1);
        let held = ticket([slot(), field("cost", Kind::NumberValue(40.0))].into()).expect("a ticket");
        for (cost, hits, is_negative) in [(None, 40, false), (Some(7), 7, false), (Some(0), 40, true)] {
            let end = held.clone().end("edge", cost);
            let [descriptor] = &end.descriptors[..] else { panic!("{end:?}") };
            assert_eq!((descriptor.hits_addend, descriptor.is_negative_hits), (Some(hits), is_negative));
            assert_eq!((&*end.domain, &*descriptor.entries[0].value), ("edge", "slot-1"));
        }
    }
}
