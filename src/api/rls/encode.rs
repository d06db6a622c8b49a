//! Converts a decision to a protobuf message.

use crate::api::pb::service::{
    RateLimitResponse,
    rate_limit_response::{Code as WireCode, DescriptorStatus, RateLimit, rate_limit::Unit as WireUnit},
};
use crate::limit::{Code, CurrentLimit, Decision, Reset, Status, Unit};
use std::time::Duration;

/// Precision of resets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Precision {
    /// In whole seconds, rounded up. Envoy drops fractions of a second: a client that waits as long as a status states must be
    /// admitted.
    #[default]
    Seconds,
    /// To the nanosecond.
    Exact,
}

pub(super) fn response(decision: &Decision<'_>, precision: Precision) -> RateLimitResponse {
    RateLimitResponse {
        overall_code: code(decision.code).into(),
        statuses: decision.statuses.iter().map(|of_descriptor| status(of_descriptor, precision)).collect(),
        ..RateLimitResponse::default()
    }
}

fn status(status: &Status<'_>, precision: Precision) -> DescriptorStatus {
    DescriptorStatus {
        code: code(status.code).into(),
        current_limit: status.limit.map(limit),
        limit_remaining: status.remaining,
        duration_until_reset: status.reset.and_then(|reset| duration(reset, precision)),
        quota: None,
    }
}

/// A verdict on the wire.
pub(super) fn code(code: Code) -> WireCode {
    match code {
        Code::Ok => WireCode::Ok,
        Code::OverLimit => WireCode::OverLimit,
    }
}

fn limit(limit: CurrentLimit<'_>) -> RateLimit {
    RateLimit { name: limit.name.into(), requests_per_unit: limit.requests, unit: unit(limit.unit).into() }
}

/// A limit's unit on the wire.
pub(super) fn unit(unit: Option<Unit>) -> WireUnit {
    match unit {
        None => WireUnit::Unknown,
        Some(Unit::Second) => WireUnit::Second,
        Some(Unit::Minute) => WireUnit::Minute,
        Some(Unit::Hour) => WireUnit::Hour,
        Some(Unit::Day) => WireUnit::Day,
        Some(Unit::Week) => WireUnit::Week,
        Some(Unit::Month) => WireUnit::Month,
        Some(Unit::Year) => WireUnit::Year,
    }
}

/// A reset on the wire, which is never negative. Never has no duration.
pub(super) fn duration(reset: Reset, precision: Precision) -> Option<prost_types::Duration> {
    let Reset::After(wait) = reset else { return None };
    let wait = match precision {
        Precision::Exact => wait,
        Precision::Seconds => Duration::from_secs(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)),
    };
    // At most the 585 years that fit 64 bits of nanoseconds.
    Some(prost_types::Duration { seconds: wait.as_secs() as i64, nanos: wait.subsec_nanos() as i32 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    fn reset_on_wire(reset: Option<Reset>, precision: Precision) -> Option<(i64, i32)> {
        let status = Status { code: Code::OverLimit, reset, ..Status::NO_LIMIT };
        let decision = Decision::new(Code::OverLimit, smallvec![status]);
        let message = response(&decision, precision);
        message.statuses[0].duration_until_reset.as_ref().map(|duration| (duration.seconds, duration.nanos))
    }

    #[test]
    fn a_reset_is_rounded_up_to_whole_seconds_or_exact() {
        let reset = Some(Reset::After(Duration::new(2, 1)));
        assert_eq!(reset_on_wire(reset, Precision::Seconds), Some((3, 0)));
        assert_eq!(reset_on_wire(reset, Precision::Exact), Some((2, 1)));
        assert_eq!(reset_on_wire(Some(Reset::NOW), Precision::Seconds), Some((0, 0)));
        assert_eq!(reset_on_wire(Some(Reset::Never), Precision::Exact), None);
        assert_eq!(reset_on_wire(None, Precision::Seconds), None);
    }
}
