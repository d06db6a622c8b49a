//! Conversions between messages of the control API and values of the server.

use super::error::Error;
use crate::api::pb::control as pb;
use tidegate_core::limit::{self, Decision, DenialCause, Hits, Request, RequestLimits, Reset};

pub(super) use crate::api::time::{duration, timestamp};

/// None for never, and for an unknown time.
pub(super) fn reset(reset: Option<Reset>) -> Option<prost_types::Duration> {
    match reset? {
        Reset::After(wait) => Some(duration(wait)),
        Reset::Never => None,
    }
}

pub(super) fn code(code: limit::Code) -> pb::Code {
    match code {
        limit::Code::Ok => pb::Code::Ok,
        limit::Code::OverLimit => pb::Code::OverLimit,
    }
}

/// A request with these descriptors, or which field of the message is wrong.
pub(super) fn request<'m>(
    domain: &'m str,
    descriptors: &'m [pb::Descriptor],
    hits: Hits,
    limits: &RequestLimits,
) -> Result<Request<'m>, Error> {
    let mut request = Request::new(domain);
    for descriptor in descriptors.iter().take(limits.descriptors_max + 1) {
        let entry = |entry: &'m pb::Entry| limit::Entry { key: &entry.key, value: &entry.value };
        let entries = descriptor.entries.iter().map(entry).collect();
        request.push(limit::Descriptor { entries, limit: None, hits });
    }
    request.checked(limits).map_err(|error| {
        // The messages begin with the path of the field.
        let text = error.to_string();
        let (field, message) = text.split_once(' ').unwrap_or(("", &text));
        Error::invalid(field, message)
    })
}

/// The statuses of a decision.
pub(super) fn statuses(decision: &Decision<'_>) -> Vec<pb::DescriptorStatus> {
    decision.statuses.iter().map(|of| status(of, decision.cause(of))).collect()
}

fn status(status: &limit::Status<'_>, cause: Option<DenialCause>) -> pb::DescriptorStatus {
    let limit = status.limit.as_ref();
    let is_in_flight =
        status.rule.is_some_and(|rule| rule.holds_slots) && limit.is_some_and(|limit| limit.unit.is_none());
    pb::DescriptorStatus {
        code: code(status.code).into(),
        rule: status.rule.map_or_else(String::new, |rule| rule.path.to_string()),
        name: limit.map_or_else(String::new, |limit| limit.name.to_owned()),
        requests: limit.map_or(0, |limit| limit.requests),
        window: limit.map(|limit| duration(limit.window.duration())),
        remaining: status.remaining,
        reset_after: reset(status.reset),
        never: status.reset == Some(Reset::Never),
        ban: status.ban.name().unwrap_or_default().to_owned(),
        cause: cause.map_or("", DenialCause::name).to_owned(),
        is_in_flight,
        ..pb::DescriptorStatus::default()
    }
}
