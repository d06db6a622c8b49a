//! Requests that are refused: each is counted, and seen in the log.

use std::{fmt::Display, time::Duration};
use tidegate_counts::Label as _;
use tidegate_service::{HttpRefusal, RateLimitService, Refusal};
use tonic::Code;

/// Counts a refused request of this peer, and logs the cause of one a second and reason.
pub(super) fn refuse(service: &RateLimitService, refusal: Refusal, peer: &str, cause: &dyn Display) {
    service.meters().count_refusal(refusal);
    if let Some(count) = service.meters().refusals_logged.event(refusal, now(service)) {
        log(refusal.name(), peer, count, cause);
    }
}

/// The reason that a status of tonic stands for, if it refused a message.
pub(super) fn undecodable(code: Code) -> Option<Refusal> {
    match code {
        Code::OutOfRange => Some(Refusal::LongMessage),
        Code::Internal | Code::Unimplemented => Some(Refusal::UndecodableMessage),
        _ => None,
    }
}

/// Counts and logs a request for a decision that the HTTP port refused before its route.
pub(super) fn refuse_at_http_port(
    service: &RateLimitService,
    refusal: HttpRefusal,
    peer: &str,
    cause: &dyn Display,
) {
    service.meters().count_refusal(Refusal::HttpPort);
    if let Some(count) = service.meters().http_refusals_logged.event(refusal, now(service)) {
        log(refusal.name(), peer, count, cause);
    }
}

fn now(service: &RateLimitService) -> Duration {
    Duration::from_nanos(service.clock().now().as_nanos())
}

/// Logs refused requests: `count` since the last line of this reason.
pub(super) fn log(reason: &str, peer: &str, count: u64, cause: &dyn Display) {
    tracing::warn!(reason, peer, count, %cause, "request refused without a decision; a caller that admits on failure does not limit it");
}
