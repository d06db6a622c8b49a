//! Decisions from the server's responses.

use crate::{
    decision::{Decision, Limit, Mode, Reason, Status},
    proto::{
        RateLimitResponse,
        rate_limit_response::{Code, HeaderValue, Mode as WireMode, rate_limit::Unit as WireUnit},
    },
    request::Unit,
};
use prost_types::value::Kind;
use std::time::Duration;

/// The decision of a response with this verdict.
pub(crate) fn decode(allowed: bool, answer: RateLimitResponse) -> Decision {
    let statuses = answer.statuses.into_iter().map(|status| {
        let over_limit = status.code() == Code::OverLimit;
        let mode = match status.mode() {
            WireMode::Denies => None,
            WireMode::Quota => Some(Mode::Quota),
            WireMode::Queued => Some(Mode::Queued),
        };
        let limit = status.current_limit.map(|limit| {
            let unit = unit(limit.unit());
            let of_unit = unit.map(|unit| Duration::from_secs(unit.seconds().into()));
            let window = of_unit.or_else(|| Duration::try_from(limit.window?).ok());
            Limit { requests: limit.requests_per_unit, unit, name: limit.name, window }
        });
        // This API has no negative durations.
        let reset_after = status.duration_until_reset.and_then(|reset| Duration::try_from(reset).ok());
        Status { over_limit, limit, remaining: status.limit_remaining, reset_after, mode }
    });
    let mut decision = Decision::new(allowed, Reason::Decided, statuses.collect());
    let headers = |headers: Vec<HeaderValue>| headers.into_iter().map(header).collect();
    decision.request_headers = headers(answer.request_headers_to_add);
    decision.response_headers = headers(answer.response_headers_to_add);
    decision.body = answer.raw_body.into();
    if let Some((ticket, cost)) = answer.dynamic_metadata.and_then(ticket) {
        (decision.ticket, decision.ticket_cost) = (Some(ticket), cost);
    }
    decision
}

/// The ticket of the slots and estimates that a request holds, and hits of the largest of them.
fn ticket(mut metadata: prost_types::Struct) -> Option<(String, u64)> {
    let mut field = |name| metadata.fields.remove(name)?.kind;
    let Kind::StringValue(ticket) = field("slot")? else { return None };
    let cost = match field("cost") {
        Some(Kind::NumberValue(cost)) => (cost as u64).max(1),
        _ => 1,
    };
    Some((ticket, cost))
}

fn header(header: HeaderValue) -> (String, String) {
    let value = if header.value.is_empty() {
        header.raw_value.iter().copied().map(char::from).collect()
    } else {
        header.value
    };
    (header.key, value)
}

fn unit(unit: WireUnit) -> Option<Unit> {
    Some(match unit {
        WireUnit::Unknown => return None,
        WireUnit::Second => Unit::Second,
        WireUnit::Minute => Unit::Minute,
        WireUnit::Hour => Unit::Hour,
        WireUnit::Day => Unit::Day,
        WireUnit::Week => Unit::Week,
        WireUnit::Month => Unit::Month,
        WireUnit::Year => Unit::Year,
    })
}
