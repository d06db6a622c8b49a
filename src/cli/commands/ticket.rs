//! The calls that renew and end tickets.

use crate::api::pb::{
    common::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::RateLimitRequest,
};
use tidegate_bench::ReceivedTicket;

/// Makes the request that renews a ticket: the request that took it, with the ticket in every descriptor.
pub(super) fn renewal(ticket: &ReceivedTicket, mut taken: RateLimitRequest) -> RateLimitRequest {
    for descriptor in &mut taken.descriptors {
        descriptor.entries.push(Entry { key: "renew".into(), value: ticket.slot.clone().into() });
    }
    taken
}

/// The request that ends it, with its actual cost if that is given.
pub(super) fn end(ticket: ReceivedTicket, domain: &str, cost: Option<u64>) -> RateLimitRequest {
    let (hits, is_negative_hits) = ticket.hits_of_end(cost);
    let descriptor = RateLimitDescriptor {
        entries: vec![Entry { key: ReceivedTicket::END_KEY.into(), value: ticket.slot.into() }],
        limit: None,
        hits_addend: Some(hits),
        is_negative_hits,
    };
    RateLimitRequest { domain: domain.to_owned(), descriptors: vec![descriptor], hits_addend: 0 }
}
