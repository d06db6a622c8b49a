//! `envoy.service.ratelimit.v3.RateLimitService`: the call that Envoy makes.

use super::{
    decode,
    encode::{self, Precision},
    pb::service::{RateLimitRequest, RateLimitResponse, rate_limit_service_server::RateLimitService},
};
use crate::{clock::Clock, limit::RequestLimits, limiter::Limiter};
use std::sync::Arc;
use tonic::{Request, Response, Status, metadata::MetadataMap};

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

    /// Decides one message.
    pub(super) fn answer(
        &self,
        message: &RateLimitRequest,
        precision: Precision,
    ) -> Result<RateLimitResponse, Status> {
        let request = decode::request(message, &self.limits)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let rules = self.limiter.pin();
        Ok(encode::response(&rules.decide(&request, self.clock.now()), precision))
    }
}

#[tonic::async_trait]
impl RateLimitService for RateLimit {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let precision = precision(request.metadata())?;
        self.answer(request.get_ref(), precision).map(Response::new)
    }
}

fn precision(metadata: &MetadataMap) -> Result<Precision, Status> {
    match metadata.get(PRECISION_HEADER).map(|value| value.as_bytes()) {
        None | Some(b"seconds") => Ok(Precision::Seconds),
        Some(b"exact") => Ok(Precision::Exact),
        Some(_) => Err(Status::invalid_argument(format!(
            "metadata {PRECISION_HEADER} is neither `exact` nor `seconds`; send one of them, or leave it out"
        ))),
    }
}
