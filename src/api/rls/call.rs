//! A call outside the fast path: metadata and a request message to a response message. tonic and `POST /json` share it.

use super::{decode, encode::Precision, response::response};
use crate::api::{
    client::Client,
    grpc::timeout::{self, MalformedTimeout},
    pb::service::{RateLimitRequest, RateLimitResponse},
    refusals::refuse,
};
use http::{HeaderMap, HeaderValue};
use std::time::Duration;
use tidegate_core::limit::{self, Decision, RequestError};
use tidegate_http2::OnReset;
use tidegate_service::{CallOrigin, NotReady, RateLimitService, Refusal};

/// A caller that sends this metadata with the value `exact` gets resets in nanoseconds, and windows that are not units.
pub const PRECISION_HEADER: &str = "tidegate-precision";

/// A caller that sends this metadata gets it back with the window of each status, separated by commas, and `-` where no limit
/// applies. Envoy's message has a unit only, which a window such as 10 s does not have. Unlike [`PRECISION_HEADER`], it excludes
/// the call from the fast path.
pub const WINDOWS_HEADER: &str = "tidegate-windows";

/// The value of [`WINDOWS_HEADER`] by which a caller requests the detailed form.
pub const DETAILED: &str = "detailed";

/// The response to a call.
pub(in crate::api) struct CallResponse {
    pub(in crate::api) message: RateLimitResponse,
    /// The value of [`WINDOWS_HEADER`], if the caller requests it.
    pub(in crate::api) windows: Option<HeaderValue>,
    /// Releases the slots of the request on a reset, if it has any.
    pub(in crate::api) on_reset: Option<OnReset>,
    /// Time for which the slots or estimates of the ticket are held, if the response has a ticket.
    pub(in crate::api) hold: Option<Duration>,
}

/// Purpose of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::api) enum Purpose {
    /// To decide, and to count what is admitted.
    Limit,
    /// To decide on one more hit, and to count nothing.
    Check,
    /// To count hits that were used.
    Report,
}

impl Purpose {
    fn of<'m>(self, request: limit::Request<'m>) -> limit::Request<'m> {
        match self {
            Self::Limit => request,
            Self::Check => request.checking(),
            Self::Report => request.reporting(),
        }
    }
}

/// Reason why a call gets a status instead of a response. Nothing was decided.
#[derive(Debug, thiserror::Error)]
pub(in crate::api) enum CallError {
    #[error(
        "metadata {PRECISION_HEADER} is neither `exact` nor `seconds`; send one of them, or leave it out"
    )]
    Precision,
    #[error(transparent)]
    Timeout(#[from] MalformedTimeout),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    NotReady(#[from] NotReady),
}

impl From<&CallError> for Refusal {
    fn from(error: &CallError) -> Self {
        match error {
            CallError::Precision => Self::UnknownPrecision,
            CallError::Timeout(_) => Self::MalformedTimeout,
            CallError::Request(error) => error.into(),
            CallError::NotReady(error) => error.into(),
        }
    }
}

/// Decides the request of `message`, or counts and logs its refusal. A queued request waits until its release, for at most `wait_max` and
/// `grpc-timeout`.
pub(in crate::api) async fn call(
    service: &RateLimitService,
    metadata: &HeaderMap,
    peer: &str,
    purpose: Purpose,
    wait_max: Duration,
    message: &RateLimitRequest,
) -> Result<CallResponse, CallError> {
    let called = checked_call(service, metadata, peer, purpose, wait_max, message).await;
    called.inspect_err(|error| refuse(service, error.into(), peer, error))
}

/// Decides the request of `message` for a call that tonic has routed.
pub(in crate::api) async fn routed_call<M>(
    service: &RateLimitService,
    purpose: Purpose,
    of: &tonic::Request<M>,
    message: &RateLimitRequest,
) -> Result<CallResponse, CallError> {
    let (peer, _) = Client::of(of.extensions());
    call(service, of.metadata().as_ref(), peer, purpose, Duration::MAX, message).await
}

async fn checked_call(
    service: &RateLimitService,
    metadata: &HeaderMap,
    peer: &str,
    purpose: Purpose,
    wait_max: Duration,
    message: &RateLimitRequest,
) -> Result<CallResponse, CallError> {
    let header = |name: &str| metadata.get(name).map(|value| value.as_bytes());
    let trace = service.propagators().and_then(|propagators| propagators.context(header));
    let with_windows = metadata.get(WINDOWS_HEADER).map(|form| form.as_bytes() == DETAILED.as_bytes());
    let (precision, wait_max) = (precision(metadata)?, timeout::timeout(metadata)?.min(wait_max));
    let limits = service.request_limits();
    let texts = decode::EntryTexts::of(message, limits);
    let request = purpose.of(decode::request(message, &texts, limits)?);
    let respond = |decision: &Decision<'_>| CallResponse {
        message: response(service, &request, decision, precision),
        windows: with_windows.and_then(|is_detailed| windows(decision, is_detailed).parse().ok()),
        on_reset: service.release_of(&request, decision, peer).map(OnReset::new),
        hold: decision.slot.as_ref().map(|slot| slot.hold),
    };
    Ok(service.decide(&request, CallOrigin { peer, trace }, wait_max, respond).await?)
}

/// The windows of the statuses. The detailed form adds two facts that a status cannot carry: that the limit is of requests in flight, and
/// why it denies, if not by its count.
fn windows(decision: &Decision<'_>, is_detailed: bool) -> String {
    let window = |status: &limit::Status<'_>| {
        let Some(limit) = status.limit else { return "-".to_owned() };
        if !is_detailed {
            return limit.window.to_string();
        }
        let is_in_flight = limit.unit.is_none() && status.rule.is_some_and(|rule| rule.holds_slots);
        let in_flight = if is_in_flight { ";in-flight" } else { "" };
        let cause =
            decision.cause(status).map_or_else(String::new, |cause| format!(";cause={}", cause.name()));
        format!("{}{in_flight}{cause}", limit.window)
    };
    decision.statuses.iter().map(window).collect::<Vec<_>>().join(",")
}

/// The precision of resets that the caller requests.
fn precision(metadata: &HeaderMap) -> Result<Precision, CallError> {
    let Some(value) = metadata.get(PRECISION_HEADER) else { return Ok(Precision::Seconds) };
    precision_of(value.as_bytes()).ok_or(CallError::Precision)
}

/// The precision that a metadata value names.
pub(in crate::api) fn precision_of(value: &[u8]) -> Option<Precision> {
    match value {
        b"seconds" => Some(Precision::Seconds),
        b"exact" => Some(Precision::Exact),
        _ => None,
    }
}
