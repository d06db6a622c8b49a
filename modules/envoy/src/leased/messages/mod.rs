//! The messages of `tidegate.v1.Leases`: requests written, responses read.

mod response;

pub(crate) use response::{Additions, Response};
pub(super) use response::{Decided, ExchangeResponse, LearntCounter, Renewal};

use crate::protobuf::{Wire, Writer, fields};
use tidegate_core::{
    limit::{Descriptor, Entry, Hits, Request, Unit, client_bytes},
    limiter::{RENEWAL_KEY, TICKET_KEY},
};
use tidegate_shared::lease::LeaseRequest;

/// The path of `Exchange`.
pub(super) const PATH: &str = "/tidegate.v1.Leases/Exchange";
/// The most decisions and claims of one call.
pub(super) const DECISIONS_MAX: usize = 64;
/// Each has 90 bytes.
pub(super) const CLAIMS_MAX: usize = 300;
/// Bytes of a request besides its decisions or claims, at most.
pub(super) const OTHER_BYTES: usize = 64;

/// The number of a counter at the server.
pub(super) type CounterId = [u8; 16];

/// The process of a server and its rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct RulesId {
    pub(super) epoch: u64,
    pub(super) generation: u64,
}

/// A request of `Exchange`.
pub(super) struct ExchangeRequest<'r> {
    pub(super) node: u64,
    /// The rules under which the counters of the claims were learnt.
    pub(super) rules: RulesId,
    pub(super) claims: &'r [(CounterId, LeaseRequest)],
}

impl ExchangeRequest<'_> {
    /// Encodes it, with decisions that [`rate_limit_request`] has encoded.
    pub(super) fn encode<'d>(self, decisions: impl Iterator<Item = &'d [u8]>) -> Vec<u8> {
        let mut message = Writer::default();
        message.fixed64(1, self.node);
        message.fixed64(2, self.rules.epoch);
        message.number(3, self.rules.generation);
        decisions.for_each(|decision| message.bytes(4, decision));
        for (counter, claim) in self.claims {
            message.message(5, |writer| {
                writer.bytes(1, counter);
                writer.number(2, claim.holder);
                writer.number(3, claim.sequence);
                writer.number(4, claim.spent);
                writer.number(5, claim.acknowledged);
                writer.number(6, claim.spent_ago / 1_000);
                writer.number(7, claim.kept);
                writer.number(8, claim.demand);
            });
        }
        message.into_bytes()
    }
}

/// A request for a decision, as Envoy encodes it.
pub(super) fn rate_limit_request(request: &Request<'_>) -> Vec<u8> {
    let mut message = Writer::default();
    message.text(1, request.domain());
    for descriptor in request.descriptors() {
        message.message(2, |writer| write_descriptor(descriptor, writer));
    }
    message.into_bytes()
}

/// A request that releases the slots of a ticket.
pub(super) fn release_request(domain: &str, ticket: &str) -> Vec<u8> {
    rate_limit_request(&of_ticket(domain, ticket, [Hits::ONE]))
}

/// A request that releases the slots of a ticket and returns its estimates: the ticket's request has not reached the upstream. A descriptor
/// without hits ends a ticket with estimates, a descriptor with one hit ends a ticket without; the server ignores whichever does not apply.
pub(super) fn cancel_request(domain: &str, ticket: &str) -> Vec<u8> {
    rate_limit_request(&of_ticket(domain, ticket, [Hits::Peek, Hits::ONE]))
}

/// A request that renews a ticket: the encoded request that got it, with the ticket as one more entry of each descriptor.
pub(super) fn renewal_request(request: &[u8], ticket: &str) -> Vec<u8> {
    let mut message = Writer::default();
    // No error: this module has encoded the request.
    for field in fields(request).map_while(Result::ok) {
        match field {
            (1, Wire::Bytes(domain)) => message.bytes(1, domain),
            (2, Wire::Bytes(descriptor)) => message.message(2, |writer| {
                writer.encoded(descriptor);
                writer.message(1, |entry| {
                    entry.text(1, RENEWAL_KEY);
                    entry.text(2, ticket);
                });
            }),
            _ => {}
        }
    }
    message.into_bytes()
}

/// A request about a ticket, with a descriptor for each of these hits.
fn of_ticket<'r>(domain: &'r str, ticket: &'r str, hits: impl IntoIterator<Item = Hits>) -> Request<'r> {
    let mut request = Request::new(domain);
    for hits in hits {
        let entries = [Entry { key: TICKET_KEY, value: ticket }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits });
    }
    request
}

/// Whether a request only ends the request of a ticket, so that a second request changes nothing.
pub(super) fn is_end(request: &Request<'_>, ticket: &str) -> bool {
    let ticket_of = |descriptor: &Descriptor<'_>| {
        descriptor
            .entries
            .iter()
            .rfind(|entry| entry.key == TICKET_KEY)
            .is_some_and(|entry| entry.value == ticket)
    };
    request.descriptors().iter().all(ticket_of)
}

fn write_descriptor(descriptor: &Descriptor<'_>, writer: &mut Writer) {
    for entry in &descriptor.entries {
        writer.message(1, |writer| {
            writer.text(1, entry.key);
            // As the client sent it: the server makes the text of these bytes itself.
            let value = client_bytes(entry.value);
            if !value.is_empty() {
                writer.bytes(2, &value);
            }
        });
    }
    if let Some(limit) = descriptor.limit {
        writer.message(2, |writer| {
            writer.number(1, limit.requests.into());
            let index = UNITS.iter().position(|unit| *unit == limit.unit);
            writer.number(2, index.map_or(0, |index| index as u64 + 1));
        });
    }
    let (hits, gives_back) = match descriptor.hits {
        Hits::Take(hits) => (hits.get(), false),
        Hits::Peek => (0, false),
        Hits::GiveBack(hits) => (hits.get(), true),
    };
    if hits != 1 {
        writer.message(3, |wrapper| wrapper.number(1, hits));
    }
    writer.number(4, gives_back.into());
}

/// The units of `envoy.type.v3.RateLimitUnit` and of `RateLimitResponse.RateLimit.Unit`, by their number from 1.
const UNITS: [Unit; 7] =
    [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Month, Unit::Year, Unit::Week];
