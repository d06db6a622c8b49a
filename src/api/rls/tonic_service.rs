//! `envoy.service.ratelimit.v3.RateLimitService`: the call that Envoy makes.

use super::{
    decode,
    encode::{self, Precision},
    queued,
    response::{self, Extras},
};
use crate::{
    api::{
        grpc::timeout,
        pb::service::{RateLimitRequest, RateLimitResponse, rate_limit_service_server::RateLimitService},
    },
    clock::Clock,
    limit::{self, Decision, RequestLimits},
    limiter::{Limiter, Verdict},
};
use http::HeaderMap;
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tonic::{Request, Response, Status};

/// A caller that sends this metadata with the value `exact` gets resets to the nanosecond.
pub const PRECISION_HEADER: &str = "tidegate-precision";

/// The service: the limiter, a clock, and the size of requests it takes.
#[derive(Clone)]
pub struct RateLimit {
    /// Empty until the counters are restored.
    limiter: Arc<OnceLock<Arc<Limiter>>>,
    clock: Arc<dyn Clock>,
    limits: RequestLimits,
    /// None if nothing is set, which most servers are spared to look into.
    extras: Option<Arc<Extras>>,
}

impl RateLimit {
    /// The service over a limiter. Its answers are a verdict and statuses, and what rules want said of their denials.
    pub fn new(limiter: Arc<Limiter>, clock: Arc<dyn Clock>, limits: RequestLimits) -> Self {
        let service = Self::restoring(clock, limits);
        service.restored(limiter);
        service
    }

    /// The service while its counters are being restored: it refuses with UNAVAILABLE until it is [`Self::restored`].
    pub fn restoring(clock: Arc<dyn Clock>, limits: RequestLimits) -> Self {
        Self { limiter: Arc::default(), clock, limits, extras: None }
    }

    /// From now on requests are decided by this limiter. Only the first counts.
    pub fn restored(&self, limiter: Arc<Limiter>) {
        let _ = self.limiter.set(limiter);
    }

    /// The same, with answers that say more.
    pub fn with_extras(self, extras: Extras) -> Self {
        let extras = (extras != Extras::default()).then(|| Arc::new(extras));
        Self { extras, ..self }
    }

    /// The largest request that is answered.
    pub(in crate::api) fn limits(&self) -> &RequestLimits {
        &self.limits
    }

    /// Whether the request can be decided now: not if the answer may have to be held, or the counters are not restored.
    #[inline]
    pub(in crate::api) fn decides_at_once(&self, request: &limit::Request<'_>) -> bool {
        self.limiter.get().is_some_and(|limiter| !limiter.pin().may_queue(request.domain()))
    }

    /// Decides requests that can be decided now and are within the limits, one after the other at one moment, and tells
    /// each decision with the index of its request.
    #[inline]
    pub(in crate::api) fn decide_all<'q, 't: 'q>(
        &self,
        requests: impl Iterator<Item = &'q limit::Request<'t>> + Clone,
        mut tell: impl FnMut(usize, &Decision<'_>),
    ) {
        let limiter = self.limiter.get().expect("it was there when they could be decided");
        limiter.pin().decide_all(requests, self.clock.now(), |index, decision| {
            limiter.tally().count(decision);
            tell(index, decision);
        });
    }

    /// Whether the answer says more than its verdict and statuses.
    #[inline]
    pub(in crate::api) fn says_more(&self, decision: &Decision<'_>) -> bool {
        self.extras.is_some() || decision.has_on_deny()
    }

    /// The whole answer.
    pub(in crate::api) fn response(
        &self,
        request: &limit::Request<'_>,
        decision: &Decision<'_>,
        precision: Precision,
    ) -> RateLimitResponse {
        let mut message = encode::response(decision, precision);
        if self.says_more(decision) {
            response::add(self.extras.as_deref(), request, decision, &mut message);
        }
        message
    }

    /// Decides one request, and answers it when its turn has come.
    async fn answer(
        &self,
        request: &limit::Request<'_>,
        patience: Duration,
        precision: Precision,
    ) -> Result<RateLimitResponse, Status> {
        let Some(limiter) = self.limiter.get() else {
            return Err(Status::unavailable("the counters are being restored; ask again shortly"));
        };
        let respond = |decision: &Decision<'_>| {
            limiter.tally().count(decision);
            Ok(self.response(request, decision, precision))
        };
        let ticket = match limiter.pin().decide_or_queue(request, patience, self.clock.now()) {
            Verdict::Decided(decision) => return respond(&decision),
            Verdict::Queued(ticket) => ticket,
        };
        let turn = queued::its_turn(limiter, &*self.clock, ticket).await;
        let (rules, now) = (limiter.pin(), self.clock.now());
        match turn {
            Some(ticket) => {
                let response = respond(&rules.queued_decision(request, &ticket, now));
                limiter.release(ticket);
                response
            }
            // The server ends before its turn. Whatever may have become free meanwhile, nobody waits any more.
            None => respond(&rules.decide(request, now)),
        }
    }
}

#[tonic::async_trait]
impl RateLimitService for RateLimit {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let metadata = request.metadata().as_ref();
        let (precision, patience) = (precision(metadata)?, timeout::patience(metadata));
        let asked = decode::request(request.get_ref(), &self.limits)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.answer(&asked, patience, precision).await.map(Response::new)
    }
}

/// How finely the caller wants resets to be told.
pub(in crate::api) fn precision(metadata: &HeaderMap) -> Result<Precision, Status> {
    let Some(value) = metadata.get(PRECISION_HEADER) else { return Ok(Precision::Seconds) };
    precision_of(value.as_bytes()).ok_or_else(|| {
        Status::invalid_argument(format!(
            "metadata {PRECISION_HEADER} is neither `exact` nor `seconds`; send one of them, or leave it out"
        ))
    })
}

/// The precision that the metadata names.
pub(in crate::api) fn precision_of(value: &[u8]) -> Option<Precision> {
    match value {
        b"seconds" => Some(Precision::Seconds),
        b"exact" => Some(Precision::Exact),
        _ => None,
    }
}
