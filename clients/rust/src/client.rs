//! The client: sends requests, and makes decisions of responses and failures.

use crate::{
    breaker::Permit,
    builder::{Builder, Clock, MetadataSource, Observer},
    decision::{Decision, Reason, Status},
    denials::LocalDenials,
    failures::FailureLog,
    fake::{Call, Decide},
    local::LocalLimits,
    proto::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code},
    request::Request,
    response::decode,
    status::{code_of, is_callers_error, is_refused, is_timeout, name, was_not_processed, with_causes},
    transport::{Channels, Choice},
};
use http::uri::PathAndQuery;
use std::{
    fmt,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tonic::{Status as GrpcStatus, client::Grpc, metadata::MetadataValue};
use tonic_prost::ProstCodec;

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The longest timeout that gRPC can send: eight digits of hours. It is longer than 11,000 years.
const GRPC_TIMEOUT_MAX: Duration = Duration::from_secs(99_999_999 * 3_600);

/// The decision for a request without a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnFailure {
    /// It is allowed.
    #[default]
    Open,
    /// It is denied.
    Closed,
}

/// Why a request has no decision: a retry cannot help, and failing open would let an overlong key pass every limit.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The request is incomplete.
    #[error("{0}")]
    Request(&'static str),
    /// The server refused the request itself.
    #[error("{code}: {message}")]
    Refused {
        /// The name of the gRPC status code.
        code: &'static str,
        /// The server's message.
        message: String,
    },
}

/// A client of a Tidegate server. Clones share its connections.
#[derive(Clone)]
pub struct Tidegate(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) channels: Channels,
    /// Decides instead of a server, in tests of applications.
    pub(crate) fake: Option<Decide>,
    pub(crate) domain: String,
    pub(crate) timeout: Duration,
    pub(crate) first_timeout: Duration,
    /// Whether a call is over: the first call opens the connection.
    pub(crate) is_warm: AtomicBool,
    pub(crate) on_failure: OnFailure,
    /// Limits of requests without a response.
    pub(crate) fallback: Option<LocalLimits>,
    pub(crate) denials: LocalDenials,
    pub(crate) failures: FailureLog,
    /// Code and message of the last failure.
    pub(crate) last_failure: Mutex<Option<Arc<str>>>,
    pub(crate) observers: Vec<Observer>,
    pub(crate) metadata: Vec<MetadataSource>,
    pub(crate) clock: Clock,
}

impl fmt::Debug for Tidegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tidegate").field("domain", &self.0.domain).finish_non_exhaustive()
    }
}

impl Tidegate {
    /// Returns the settings of a client of the server at an address: `host:port`, `unix:/path/of/socket`, or a URI.
    pub fn builder(address: impl Into<String>) -> Builder {
        Builder::new(address.into())
    }

    /// Takes the hits of every limit that the request reaches, or none at all.
    pub async fn limit(&self, request: impl Into<Request>) -> Result<Decision, Error> {
        self.decide(&request.into()).await
    }

    /// Returns whether one more hit would be admitted, without taking it.
    pub async fn peek(&self, request: impl Into<Request>) -> Result<Decision, Error> {
        self.decide(&request.into().cost(0).without_local_denials()).await
    }

    /// Gives back hits that were taken. From then on this client keeps no denials for descriptors with the same keys.
    pub async fn give_back(&self, request: impl Into<Request>) -> Result<Decision, Error> {
        self.decide(&request.into().giving_back().without_local_denials()).await
    }

    /// Takes the hits as soon as they fit, waiting at most `wait_max`. Returns a denial at once if it does not end by then.
    pub async fn wait_until_ready(
        &self,
        request: impl Into<Request>,
        wait_max: Duration,
    ) -> Result<Decision, Error> {
        let request = request.into();
        let until = self.now().saturating_add(wait_max);
        loop {
            let decision = self.decide(&request).await?;
            match decision.retry_after {
                Some(wait) if !decision.allowed && self.now().saturating_add(wait) <= until => {
                    tokio::time::sleep(wait).await
                }
                _ => return Ok(decision),
            }
        }
    }

    async fn decide(&self, request: &Request) -> Result<Decision, Error> {
        let inner = &*self.0;
        if let Some(problem) = request.problem() {
            return Err(Error::Request(problem));
        }
        let domain = request.domain.as_deref().unwrap_or(&inner.domain);
        if domain.is_empty() {
            return Err(Error::Request("no domain; name it in the client or in the request"));
        }
        let sent = self.now();
        if let Some(fake) = &inner.fake {
            return Ok(self.observed(fake(Call::new(request, domain)), sent));
        }
        let uses_local = request.uses_local && inner.denials.is_on();
        if uses_local
            && !inner.denials.is_empty()
            && let Some(denial) = inner.denials.find(request, &request.identity(domain), sent)
        {
            return Ok(self.observed(denial, sent));
        }
        if request.gives_back() {
            inner.denials.end_for(request, domain);
        }
        let policy = request.on_failure.unwrap_or(inner.on_failure);
        let Some(choice) = self.choose(request, domain, sent) else {
            let last = inner.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
            return Ok(self.without_answer(request, policy, "BREAKER_OPEN", last, sent));
        };
        let (mut address, mut permit) = (choice.address, Some(choice.permit));
        let answer = self.call(request, domain, &mut address, &mut permit, sent).await;
        let answer = answer.and_then(|answer| match answer.overall_code() {
            Code::Unknown => Err(GrpcStatus::internal("an answer without a verdict")),
            Code::Ok => Ok(decode(true, answer)),
            Code::OverLimit => Ok(decode(false, answer)),
        });
        match answer {
            Ok(decision) => {
                if uses_local && !decision.allowed {
                    inner.denials.keep(request, domain, &decision, sent);
                }
                permit.into_iter().for_each(|permit| permit.succeeded(sent));
                inner.channels.answered(address);
                inner.failures.ended();
                Ok(self.observed(decision, sent))
            }
            Err(status) => {
                if status.code() == tonic::Code::DeadlineExceeded {
                    inner.channels.late(address, sent, self.now());
                }
                self.failed(request, &status, policy, (address, permit), sent)
            }
        }
    }

    /// Chooses an address, and begins the probe of another address that is due.
    fn choose(&self, request: &Request, domain: &str, now: Duration) -> Option<Choice> {
        let mut choice = self.0.channels.choose(now)?;
        if let Some((address, permit)) = choice.due.take() {
            self.probe(address, permit, request.peek_message(domain.to_owned()));
        }
        Some(choice)
    }

    /// Sends a peek to an address whose breaker is open, while calls use others: no user's call is lost to test whether the server answers
    /// again.
    fn probe(&self, address: usize, permit: Permit, message: RateLimitRequest) {
        let client = self.clone();
        tokio::spawn(async move {
            let (sent, timeout) = (client.now(), client.0.timeout);
            match tokio::time::timeout(timeout, client.send(address, message, timeout)).await {
                Ok(Ok(_)) => permit.succeeded(sent),
                Ok(Err(status)) if is_callers_error(status.code()) => permit.succeeded(sent),
                _ => permit.failed(sent, client.now(), false),
            }
        });
    }

    async fn call(
        &self,
        request: &Request,
        domain: &str,
        address: &mut usize,
        permit: &mut Option<Permit>,
        sent: Duration,
    ) -> Result<RateLimitResponse, GrpcStatus> {
        let inner = &*self.0;
        let is_warm = inner.is_warm.load(Ordering::Relaxed);
        let timeout = request.timeout.unwrap_or(if is_warm { inner.timeout } else { inner.first_timeout });
        let call = self.attempts(request, domain, timeout, address, permit, sent);
        let answer = tokio::time::timeout(timeout, call).await;
        if !is_warm {
            inner.is_warm.store(true, Ordering::Relaxed);
        }
        let late = || GrpcStatus::deadline_exceeded("no answer within the timeout");
        match answer {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            // The channel has its own timer, whose status is CANCELLED.
            Ok(Err(status)) if is_timeout(&status) => Err(late()),
            Ok(Err(status)) => Err(status),
            Err(_) => Err(late()),
        }
    }

    /// Sends a request until it is answered, or may have been processed and failed. `address` and `permit` are those of the last attempt,
    /// even if this future is dropped.
    async fn attempts(
        &self,
        request: &Request,
        domain: &str,
        timeout: Duration,
        address: &mut usize,
        permit: &mut Option<Permit>,
        sent: Duration,
    ) -> Result<tonic::Response<RateLimitResponse>, GrpcStatus> {
        let channels = &self.0.channels;
        let mut refusals = 0;
        loop {
            match self.send(*address, request.message(domain.to_owned()), timeout).await {
                // Sent to a connection that was ending: the next attempt opens another connection.
                Err(status) if was_not_processed(&status) => {}
                Err(status) if is_refused(&status) => {
                    let refused = || {
                        GrpcStatus::unavailable(format!(
                            "{}: {}",
                            channels.name(*address),
                            with_causes(&status)
                        ))
                    };
                    channels.refused(*address, self.now());
                    refusals += 1;
                    if refusals >= channels.len() {
                        return Err(refused());
                    }
                    let Some(next) = self.choose(request, domain, self.now()) else { return Err(refused()) };
                    if let Some(refused) = permit.replace(next.permit) {
                        refused.failed(sent, self.now(), true);
                    }
                    *address = next.address;
                }
                answer => return answer,
            }
        }
    }

    /// Sends a message to an address.
    async fn send(
        &self,
        address: usize,
        message: RateLimitRequest,
        timeout: Duration,
    ) -> Result<tonic::Response<RateLimitResponse>, GrpcStatus> {
        let mut message = tonic::Request::new(message);
        message.metadata_mut().insert("tidegate-precision", MetadataValue::from_static("exact"));
        for source in &self.0.metadata {
            let before = message.metadata().clone();
            if guarded("a source of metadata", || source(message.metadata_mut())).is_none() {
                *message.metadata_mut() = before;
            }
        }
        message.set_timeout(timeout.min(GRPC_TIMEOUT_MAX));
        let mut grpc = Grpc::new(self.0.channels.channel(address));
        grpc.ready().await.map_err(|error| GrpcStatus::unavailable(error.to_string()))?;
        let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
        grpc.unary(message, PathAndQuery::from_static(METHOD), codec).await
    }

    fn failed(
        &self,
        request: &Request,
        status: &GrpcStatus,
        policy: OnFailure,
        (address, permit): (usize, Option<Permit>),
        sent: Duration,
    ) -> Result<Decision, Error> {
        if is_callers_error(status.code()) {
            permit.into_iter().for_each(|permit| permit.succeeded(sent));
            self.0.failures.refused(name(status.code()), status.message(), self.now());
            return Err(Error::Refused { code: name(status.code()), message: status.message().to_owned() });
        }
        let (code, message) = (name(code_of(status)), with_causes(status));
        let last = Some(format!("{code}: {message}").into());
        *self.0.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = last;
        let now = self.now();
        let has_other = self.0.channels.has_other(address, now);
        permit.into_iter().for_each(|permit| permit.failed(sent, now, has_other));
        Ok(self.without_answer(request, policy, code, Some(message.into()), sent))
    }

    fn without_answer(
        &self,
        request: &Request,
        policy: OnFailure,
        error: &'static str,
        error_message: Option<Arc<str>>,
        sent: Duration,
    ) -> Decision {
        let statuses = self.fall_back(request);
        let allowed = if statuses.is_empty() {
            policy == OnFailure::Open
        } else {
            statuses.iter().all(|status| !status.over_limit)
        };
        let reason = if allowed { Reason::FailedOpen } else { Reason::FailedClosed };
        let decision = Decision::new(allowed, reason, statuses);
        let decision = Decision { error: Some(error), error_message, ..decision };
        self.0.failures.failed(&decision, self.now());
        self.observed(decision, sent)
    }

    /// Counts a request in this process. Returns no status if no limit of the fallback applies to it.
    fn fall_back(&self, request: &Request) -> Vec<Status> {
        let Some(fallback) = &self.0.fallback else { return Vec::new() };
        let statuses = fallback.decide(request.parts(), self.now()).statuses;
        if statuses.iter().any(|status| status.limit.is_some()) { statuses } else { Vec::new() }
    }

    fn observed(&self, decision: Decision, since: Duration) -> Decision {
        if !self.0.observers.is_empty() {
            let taken = self.now().saturating_sub(since);
            for observer in &self.0.observers {
                guarded("an observer", || observer(&decision, taken));
            }
        }
        decision
    }

    fn now(&self) -> Duration {
        (self.0.clock)()
    }
}

/// Calls a function of the caller, whose panic must not cost the decision; None if it panicked.
fn guarded(what: &str, function: impl FnOnce()) -> Option<()> {
    let called = panic::catch_unwind(AssertUnwindSafe(function));
    called.inspect_err(|_| tracing::error!("{what} of rate limit decisions panicked")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[tokio::test]
    async fn waiting_as_long_as_it_takes_ends_with_an_admission() {
        let was_denied = AtomicBool::new(false);
        let client = Tidegate::fake(move |_| match was_denied.swap(true, Ordering::Relaxed) {
            false => Decision::denied(Some(Duration::ZERO)),
            true => Decision::admitted(),
        });
        let decision = client.wait_until_ready([("user", "a")], Duration::MAX).await;
        assert!(decision.expect("a decision").allowed);
    }

    #[tokio::test]
    async fn a_timeout_may_be_longer_than_grpc_can_send() {
        // Nothing listens on port 0, and nothing connects to it.
        let client = Tidegate::builder("127.0.0.1:0").domain("d").timeout(Duration::MAX);
        let decision = client.build().expect("a client").limit([("user", "a")]).await;
        assert_eq!(decision.expect("a decision").error, Some("UNAVAILABLE"));
    }
}
