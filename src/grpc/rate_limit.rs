//! `envoy.service.ratelimit.v3.RateLimitService`: the call that Envoy makes.

use super::{
    decode,
    encode::{self, Precision},
    extras,
    pb::service::{RateLimitRequest, RateLimitResponse, rate_limit_service_server::RateLimitService},
};
use crate::{
    clock::Clock,
    limit::{self, Decision, RequestLimits},
    limiter::Limiter,
};
use http::HeaderMap;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// A caller that sends this metadata with the value `exact` gets resets to the nanosecond.
pub const PRECISION_HEADER: &str = "tidegate-precision";

/// The service: the limiter, a clock, and the size of requests it takes.
#[derive(Clone)]
pub struct RateLimit {
    limiter: Arc<Limiter>,
    clock: Arc<dyn Clock>,
    limits: RequestLimits,
}

impl RateLimit {
    /// The service over a limiter.
    pub fn new(limiter: Arc<Limiter>, clock: Arc<dyn Clock>, limits: RequestLimits) -> Self {
        Self { limiter, clock, limits }
    }

    /// The largest request that is answered.
    pub(super) fn limits(&self) -> &RequestLimits {
        &self.limits
    }

    /// Decides one request that is within the limits, and tells the decision.
    #[inline]
    pub(super) fn decide<T>(&self, request: &limit::Request<'_>, tell: impl FnOnce(&Decision<'_>) -> T) -> T {
        let rules = self.limiter.pin();
        tell(&rules.decide(request, self.clock.now()))
    }

    /// Decides one message.
    fn answer(&self, message: &RateLimitRequest, precision: Precision) -> Result<RateLimitResponse, Status> {
        let request = decode::request(message, &self.limits)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(self.decide(&request, |decision| response(decision, precision)))
    }
}

#[tonic::async_trait]
impl RateLimitService for RateLimit {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let precision = precision(request.metadata().as_ref())?;
        self.answer(request.get_ref(), precision).map(Response::new)
    }
}

/// The whole answer.
pub(super) fn response(decision: &Decision<'_>, precision: Precision) -> RateLimitResponse {
    let mut message = encode::response(decision, precision);
    if extras::are_due(decision) {
        extras::add(decision, &mut message);
    }
    message
}

/// How finely the caller wants resets to be told.
pub(super) fn precision(metadata: &HeaderMap) -> Result<Precision, Status> {
    let Some(value) = metadata.get(PRECISION_HEADER) else { return Ok(Precision::Seconds) };
    precision_of(value.as_bytes()).ok_or_else(|| {
        Status::invalid_argument(format!(
            "metadata {PRECISION_HEADER} is neither `exact` nor `seconds`; send one of them, or leave it out"
        ))
    })
}

/// The precision that the metadata names.
pub(super) fn precision_of(value: &[u8]) -> Option<Precision> {
    match value {
        b"seconds" => Some(Precision::Seconds),
        b"exact" => Some(Precision::Exact),
        _ => None,
    }
}
