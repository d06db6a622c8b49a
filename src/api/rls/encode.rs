//! Converts a decision to a protobuf message.

use crate::api::{
    pb::service::{
        RateLimitResponse,
        rate_limit_response::{
            Code as WireCode, DescriptorStatus, Mode, RateLimit, rate_limit::Unit as WireUnit,
        },
    },
    time,
};
use std::time::Duration;
use tidegate_core::limit::{Code, CurrentLimit, Decision, Reset, Status, Unit};

/// Precision of resets and windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Precision {
    /// Resets in whole seconds, rounded up: Envoy drops fractions, and a client that waits for the stated time must be admitted. Windows
    /// only as units, since Envoy's message has no others.
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
        current_limit: status.limit.map(|of_status| limit(of_status, precision)),
        limit_remaining: status.remaining,
        duration_until_reset: status.reset.and_then(|reset| duration(reset, precision)),
        quota: None,
        mode: mode(status, precision).into(),
        estimated: is_estimated(status, precision),
    }
}

/// A verdict on the wire.
pub(super) fn code(code: Code) -> WireCode {
    match code {
        Code::Ok => WireCode::Ok,
        Code::OverLimit => WireCode::OverLimit,
    }
}

fn limit(limit: CurrentLimit<'_>, precision: Precision) -> RateLimit {
    RateLimit {
        name: limit.name.into(),
        requests_per_unit: limit.requests,
        unit: unit(limit.unit).into(),
        window: window(&limit, precision),
    }
}

/// The window of a limit on the wire, where its unit does not state it.
pub(super) fn window(limit: &CurrentLimit<'_>, precision: Precision) -> Option<prost_types::Duration> {
    let is_sent = limit.unit.is_none() && precision == Precision::Exact;
    is_sent.then(|| time::duration(limit.window.duration()))
}

/// The effect of a descriptor on the verdict, for which Envoy's message has no field.
#[inline]
pub(super) fn mode(status: &Status<'_>, precision: Precision) -> Mode {
    match status.rule {
        Some(rule) if precision == Precision::Exact && rule.quota => Mode::Quota,
        Some(rule) if precision == Precision::Exact && (rule.queues || rule.holds_slots) => Mode::Queued,
        _ => Mode::Denies,
    }
}

/// Whether the reset is an estimate, which Envoy's message has no field for either.
#[inline]
pub(super) fn is_estimated(status: &Status<'_>, precision: Precision) -> bool {
    precision == Precision::Exact && status.rule.is_some_and(|rule| rule.holds_slots)
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
    Some(time::duration(wait))
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;
    use tidegate_core::limit::Window;

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

    #[test]
    fn a_client_with_exact_precision_is_sent_which_descriptors_are_quotas_and_which_queue() {
        let sent = |quota, queues, precision| {
            let (path, declared_at, metric_labels) = ("k".into(), "r".into(), Box::default());
            let rule = tidegate_core::limit::RuleInfo {
                path,
                declared_at,
                quota,
                queues,
                holds_slots: false,
                shown_values: 0,
                metric_labels,
                metadata: None,
                on_deny: None,
            };
            let status = Status { code: Code::OverLimit, rule: Some(&rule), ..Status::NO_LIMIT };
            response(&Decision::new(Code::OverLimit, smallvec![status]), precision).statuses[0].mode()
        };
        assert_eq!(sent(true, false, Precision::Exact), Mode::Quota);
        assert_eq!(sent(false, true, Precision::Exact), Mode::Queued);
        assert_eq!(sent(false, false, Precision::Exact), Mode::Denies);
        assert_eq!(sent(true, false, Precision::Seconds), Mode::Denies);
    }

    #[test]
    fn a_window_that_is_no_unit_is_sent_with_exact_precision_only() {
        let sent = |window, precision| {
            let limit =
                CurrentLimit { name: "", requests: 5, capacity: 5, window, unit: Unit::of_window(window) };
            let status = Status { limit: Some(limit), ..Status::NO_LIMIT };
            let message = response(&Decision::new(Code::Ok, smallvec![status]), precision);
            let limit = message.statuses[0].current_limit.clone().expect("a limit");
            limit.window.map(|window| (window.seconds, window.nanos))
        };
        let millis = |millis: u64| Window::from_nanos(millis * 1_000_000).expect("a window");
        assert_eq!(sent(millis(10_250), Precision::Exact), Some((10, 250_000_000)));
        assert_eq!(sent(millis(10_250), Precision::Seconds), None);
        assert_eq!(sent(millis(60_000), Precision::Exact), None);
    }

    #[test]
    fn resets_of_requests_in_flight_are_marked_as_estimates() {
        let rule = tidegate_core::limit::RuleInfo {
            path: "k".into(),
            declared_at: "r".into(),
            quota: false,
            queues: false,
            holds_slots: true,
            shown_values: 0,
            metric_labels: Box::default(),
            metadata: None,
            on_deny: None,
        };
        let status = Status { code: Code::OverLimit, rule: Some(&rule), ..Status::NO_LIMIT };
        let decision = Decision::new(Code::OverLimit, smallvec![status]);
        let sent = |precision| {
            let status = response(&decision, precision).statuses[0].clone();
            (status.estimated, status.mode())
        };
        assert_eq!(sent(Precision::Exact), (true, Mode::Queued), "no client keeps such a denial");
        assert_eq!(sent(Precision::Seconds), (false, Mode::Denies));
    }
}
