//! `envoy.service.ratelimit.v3.RateLimitService` for tonic's router: calls that the fast path does not take.

use super::{decode, encode::Precision, response::response};
use crate::{
    api::{
        grpc::timeout,
        pb::service::{RateLimitRequest, RateLimitResponse, rate_limit_service_server},
        port::RoutedPeer,
    },
    limit::{self, Decision},
    service::{CallOrigin, RateLimitService, TraceContext},
};
use http::HeaderMap;
use tonic::{Request, Response, Status};

/// A caller that sends this metadata with the value `exact` gets resets in nanoseconds.
pub const PRECISION_HEADER: &str = "tidegate-precision";

/// A caller that sends this metadata gets it back with the window of each status, separated by commas, and `-` where no limit
/// applies. Envoy's message has a unit only, which a window such as 10 s does not have.
pub const WINDOWS_HEADER: &str = "tidegate-windows";

/// Adapts the service to tonic's trait.
pub(in crate::api) struct TonicService(pub(in crate::api) RateLimitService);

#[tonic::async_trait]
impl rate_limit_service_server::RateLimitService for TonicService {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let Self(service) = self;
        let metadata = request.metadata().as_ref();
        let peer = request.extensions().get::<RoutedPeer>();
        let traceparent = metadata.get("traceparent").filter(|_| service.has_readers());
        let origin = CallOrigin {
            peer: peer.map_or("", |RoutedPeer(peer)| peer),
            trace: traceparent.and_then(|value| TraceContext::from_traceparent(value.as_bytes())),
        };
        let with_windows = metadata.contains_key(WINDOWS_HEADER);
        let (precision, wait_max) = (precision(metadata)?, timeout::timeout(metadata));
        let wait_max = wait_max.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let call = decode::request(request.get_ref(), service.request_limits())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let respond = |decision: &Decision<'_>| {
            let mut response = Response::new(response(service, &call, decision, precision));
            if with_windows && let Ok(windows) = windows(decision).parse() {
                response.metadata_mut().insert(WINDOWS_HEADER, windows);
            }
            response
        };
        let decided = service.decide(&call, origin, wait_max, respond).await;
        decided.map_err(|not_ready| Status::unavailable(not_ready.to_string()))
    }
}

fn windows(decision: &Decision<'_>) -> String {
    let window = |status: &limit::Status<'_>| {
        status.limit.map_or_else(|| "-".to_owned(), |limit| limit.window.to_string())
    };
    decision.statuses.iter().map(window).collect::<Vec<_>>().join(",")
}

/// The precision of resets that the caller requests.
fn precision(metadata: &HeaderMap) -> Result<Precision, Status> {
    let Some(value) = metadata.get(PRECISION_HEADER) else { return Ok(Precision::Seconds) };
    precision_of(value.as_bytes()).ok_or_else(|| {
        Status::invalid_argument(format!(
            "metadata {PRECISION_HEADER} is neither `exact` nor `seconds`; send one of them, or leave it out"
        ))
    })
}

/// The precision that a metadata value names.
pub(in crate::api) fn precision_of(value: &[u8]) -> Option<Precision> {
    match value {
        b"seconds" => Some(Precision::Seconds),
        b"exact" => Some(Precision::Exact),
        _ => None,
    }
}
