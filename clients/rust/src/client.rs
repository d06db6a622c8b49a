//! The client: sends requests, and makes decisions of responses and failures.

use crate::{
    breaker::{Breaker, Permit},
    decision::{Decision, Limit, Reason, Status},
    denials::LocalDenials,
    proto::{
        RateLimitRequest, RateLimitResponse,
        rate_limit_response::{Code, HeaderValue, rate_limit::Unit as WireUnit},
    },
    request::{Request, Unit},
    transport::{self, Channels},
};
use http::uri::PathAndQuery;
use std::{
    error::Error as StdError,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tonic::{
    Code as GrpcCode, ConnectError, Status as GrpcStatus, TimeoutExpired,
    client::Grpc,
    metadata::{MetadataMap, MetadataValue},
    transport::Channel,
};
use tonic_prost::ProstCodec;

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The decision for a request without a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnFailure {
    /// It is allowed.
    #[default]
    Open,
    /// It is denied.
    Closed,
}

/// Why a request has no decision: retrying it cannot help, and failing open would let an overlong key pass every limit.
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

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// An address is malformed.
    #[error("{address}: {source}")]
    Address {
        /// The address.
        address: String,
        /// Its fault.
        source: tonic::transport::Error,
    },
    /// An address has no port.
    #[error("{address}: the address has no port; write host:port, such as 127.0.0.1:8081")]
    Port {
        /// The address.
        address: String,
    },
    /// The timeout is 0.
    #[error("the timeout is 0; use more")]
    Timeout,
}

type Observer = Arc<dyn Fn(&Decision, Duration) + Send + Sync>;
type MetadataSource = Arc<dyn Fn(&mut MetadataMap) + Send + Sync>;
type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Settings of a client.
#[must_use]
pub struct Builder {
    addresses: Vec<String>,
    domain: String,
    timeout: Duration,
    connect_timeout: Duration,
    on_failure: OnFailure,
    local_denials: usize,
    breaker_failures: u32,
    breaker_open: Duration,
    observers: Vec<Observer>,
    metadata: Vec<MetadataSource>,
    clock: Clock,
    #[cfg(feature = "tls")]
    tls: Option<tonic::transport::ClientTlsConfig>,
}

impl Builder {
    /// Adds an address; calls use all of them, round-robin.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Sets the domain of requests that name none.
    pub fn domain(self, domain: impl Into<String>) -> Self {
        Self { domain: domain.into(), ..self }
    }

    /// Sets the time until an answer counts as missing; 50 ms if not set.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets the timeout of the first call, which opens the connection; 1 s if not set.
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// Sets the decision for requests without a response; [`OnFailure::Open`] if not set.
    pub fn on_failure(self, on_failure: OnFailure) -> Self {
        Self { on_failure, ..self }
    }

    /// Sets how many denials are kept until their reset; 10,000 if not set, 0 keeps none.
    pub fn local_denials(self, local_denials: usize) -> Self {
        Self { local_denials, ..self }
    }

    /// Sets after how many failures in a row calls fail at once, and for how long; 5 and 1 s if not set. 0 failures
    /// switch it off.
    pub fn breaker(self, failures: u32, open: Duration) -> Self {
        Self { breaker_failures: failures, breaker_open: open, ..self }
    }

    /// Adds a function that is called with each decision and the time it took, for metrics.
    pub fn observer(mut self, observer: impl Fn(&Decision, Duration) + Send + Sync + 'static) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Adds a function that completes the metadata of each call.
    pub fn metadata(mut self, source: impl Fn(&mut MetadataMap) + Send + Sync + 'static) -> Self {
        self.metadata.push(Arc::new(source));
        self
    }

    /// Counts decisions with the crate `metrics`: `tidegate_client_decisions_total`, with the labels `allowed`, `reason` and
    /// `error`, and the histogram `tidegate_client_seconds`.
    #[cfg(feature = "metrics")]
    pub fn metrics(self) -> Self {
        self.observer(crate::telemetry::record)
    }

    /// Passes the current OpenTelemetry context on with each call, as the global propagator writes it.
    #[cfg(feature = "opentelemetry")]
    pub fn trace_context(self) -> Self {
        self.metadata(crate::telemetry::inject)
    }

    /// Sets the clock: the time since some moment. Of use in tests.
    pub fn clock(self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// Encrypts connections, with a client certificate if the configuration has one.
    #[cfg(feature = "tls")]
    pub fn tls(self, tls: tonic::transport::ClientTlsConfig) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Creates the client. It must be called within a tokio runtime; the connection is opened by the first call.
    pub fn build(self) -> Result<Tidegate, BuildError> {
        if self.timeout.is_zero() {
            return Err(BuildError::Timeout);
        }
        let channels = self.addresses.iter();
        let channels = channels.map(|address| Ok((address.clone(), self.channel(address)?)));
        Ok(Tidegate(Arc::new(Inner {
            channels: Channels::new(channels.collect::<Result<_, _>>()?),
            domain: self.domain,
            timeout: self.timeout,
            first_timeout: self.timeout.max(self.connect_timeout),
            is_warm: AtomicBool::new(false),
            on_failure: self.on_failure,
            denials: LocalDenials::new(self.local_denials),
            breaker: Breaker::new(self.breaker_failures, self.breaker_open),
            last_failure: Mutex::default(),
            observers: self.observers,
            metadata: self.metadata,
            clock: self.clock,
        })))
    }

    fn channel(&self, address: &str) -> Result<Channel, BuildError> {
        let (endpoint, connector) = transport::endpoint(address, self.scheme())?;
        #[cfg(feature = "tls")]
        let endpoint = match &self.tls {
            Some(tls) => endpoint
                .tls_config(tls.clone())
                .map_err(|source| BuildError::Address { address: address.to_owned(), source })?,
            None => endpoint,
        };
        Ok(endpoint
            .connect_timeout(self.connect_timeout.max(self.timeout))
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(5))
            .keep_alive_while_idle(true)
            .connect_with_connector_lazy(connector))
    }

    #[cfg(feature = "tls")]
    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    #[cfg(not(feature = "tls"))]
    fn scheme(&self) -> &'static str {
        "http"
    }
}

/// A client of a Tidegate server. Clones share its connections.
#[derive(Clone)]
pub struct Tidegate(Arc<Inner>);

struct Inner {
    channels: Channels,
    domain: String,
    timeout: Duration,
    first_timeout: Duration,
    /// Whether a call is over: the first one opens the connection.
    is_warm: AtomicBool,
    on_failure: OnFailure,
    denials: LocalDenials,
    breaker: Breaker,
    /// Code and message of the last failure.
    last_failure: Mutex<Option<Arc<str>>>,
    observers: Vec<Observer>,
    metadata: Vec<MetadataSource>,
    clock: Clock,
}

impl fmt::Debug for Tidegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tidegate").field("domain", &self.0.domain).finish_non_exhaustive()
    }
}

impl Tidegate {
    /// Returns the settings of a client of the server at an address: `host:port`, `unix:/path/of/socket`, or a URI.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the clock; `Builder::clock` replaces it"
    )]
    pub fn builder(address: impl Into<String>) -> Builder {
        let started = Instant::now();
        Builder {
            addresses: vec![address.into()],
            domain: String::new(),
            timeout: Duration::from_millis(50),
            connect_timeout: Duration::from_secs(1),
            on_failure: OnFailure::Open,
            local_denials: 10_000,
            breaker_failures: 5,
            breaker_open: Duration::from_secs(1),
            observers: Vec::new(),
            metadata: Vec::new(),
            clock: Arc::new(move || started.elapsed()),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Takes the hits of every limit that the request reaches, or none at all.
    pub async fn limit(&self, request: impl Into<Request>) -> Result<Decision, Error> {
        self.decide(&request.into()).await
    }

    /// Returns whether one more hit would be admitted, without taking it.
    pub async fn peek(&self, request: impl Into<Request>) -> Result<Decision, Error> {
        self.decide(&request.into().cost(0).without_local_denials()).await
    }

    /// Gives hits back that were taken. From then on this client keeps no denials for descriptors with the same keys.
    pub async fn give_back(&self, request: impl Into<Request>) -> Result<Decision, Error> {
        self.decide(&request.into().giving_back().without_local_denials()).await
    }

    /// Takes the hits as soon as they fit, waiting at most so long. Returns a denial at once if it cannot be over by then.
    pub async fn wait_until_ready(
        &self,
        request: impl Into<Request>,
        wait_max: Duration,
    ) -> Result<Decision, Error> {
        let request = request.into();
        let until = self.now() + wait_max;
        loop {
            let decision = self.decide(&request).await?;
            match decision.retry_after {
                Some(wait) if !decision.allowed && self.now() + wait <= until => {
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
        let Some(permit) = inner.breaker.enter(sent) else {
            let last = inner.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
            return Ok(self.without_answer(policy, "BREAKER_OPEN", last, sent));
        };
        let answer = self.call(request, domain).await;
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
                permit.succeeded();
                Ok(self.observed(decision, sent))
            }
            Err(status) => self.failed(&status, policy, permit, sent),
        }
    }

    async fn call(&self, request: &Request, domain: &str) -> Result<RateLimitResponse, GrpcStatus> {
        let inner = &*self.0;
        let is_warm = inner.is_warm.load(Ordering::Relaxed);
        let timeout = request.timeout.unwrap_or(if is_warm { inner.timeout } else { inner.first_timeout });
        let call = self.attempts(request, domain, timeout);
        let answer = tokio::time::timeout(timeout, call).await;
        if !is_warm {
            inner.is_warm.store(true, Ordering::Relaxed);
        }
        let late = || GrpcStatus::deadline_exceeded("no answer within the timeout");
        match answer {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            // The channel has a timer of its own, whose status is CANCELLED.
            Ok(Err(status)) if is_timeout(&status) => Err(late()),
            Ok(Err(status)) => Err(status),
            Err(_) => Err(late()),
        }
    }

    /// Sends a request until it is answered, or failed where it may have been processed.
    async fn attempts(
        &self,
        request: &Request,
        domain: &str,
        timeout: Duration,
    ) -> Result<tonic::Response<RateLimitResponse>, GrpcStatus> {
        let channels = &self.0.channels;
        let mut refusals = 0;
        loop {
            let address = channels.next(self.now());
            let mut message = tonic::Request::new(request.message(domain.to_owned()));
            message.metadata_mut().insert("tidegate-precision", MetadataValue::from_static("exact"));
            self.0.metadata.iter().for_each(|source| source(message.metadata_mut()));
            message.set_timeout(timeout);
            let mut grpc = Grpc::new(channels.channel(address));
            grpc.ready().await.map_err(|error| GrpcStatus::unavailable(error.to_string()))?;
            let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
            match grpc.unary(message, PathAndQuery::from_static(METHOD), codec).await {
                // Sent to a connection that was ending: the next attempt opens another one.
                Err(status) if was_not_processed(&status) => {}
                Err(status) if is_refused(&status) => {
                    channels.refused(address, self.now());
                    refusals += 1;
                    if refusals >= channels.len() {
                        let message = format!("{}: {}", channels.name(address), with_causes(&status));
                        return Err(GrpcStatus::unavailable(message));
                    }
                }
                answer => return answer,
            }
        }
    }

    fn failed(
        &self,
        status: &GrpcStatus,
        policy: OnFailure,
        permit: Permit<'_>,
        sent: Duration,
    ) -> Result<Decision, Error> {
        use GrpcCode as C;
        if let C::InvalidArgument
        | C::OutOfRange
        | C::Unimplemented
        | C::Unauthenticated
        | C::PermissionDenied = status.code()
        {
            permit.succeeded();
            return Err(Error::Refused { code: name(status.code()), message: status.message().to_owned() });
        }
        let (code, message) = (name(status.code()), with_causes(status));
        let last = Some(format!("{code}: {message}").into());
        *self.0.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = last;
        permit.failed(self.now());
        Ok(self.without_answer(policy, code, Some(message.into()), sent))
    }

    fn without_answer(
        &self,
        policy: OnFailure,
        error: &'static str,
        error_message: Option<Arc<str>>,
        sent: Duration,
    ) -> Decision {
        let (allowed, reason) = match policy {
            OnFailure::Open => (true, Reason::FailedOpen),
            OnFailure::Closed => (false, Reason::FailedClosed),
        };
        let decision = Decision::new(allowed, reason, Vec::new());
        self.observed(Decision { error: Some(error), error_message, ..decision }, sent)
    }

    fn observed(&self, decision: Decision, since: Duration) -> Decision {
        if !self.0.observers.is_empty() {
            let taken = self.now().saturating_sub(since);
            self.0.observers.iter().for_each(|observer| observer(&decision, taken));
        }
        decision
    }

    fn now(&self) -> Duration {
        (self.0.clock)()
    }
}

/// The message of a status and those of its causes, which name what the transport met.
fn with_causes(status: &GrpcStatus) -> String {
    let mut message = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message += if message.is_empty() { "" } else { ": " };
            message += &text;
        }
        cause = error.source();
    }
    message
}

/// Whether the channel's own timer ended the call.
fn is_timeout(status: &GrpcStatus) -> bool {
    any_cause(status, |error| error.is::<TimeoutExpired>())
}

/// Whether no connection could be opened.
fn is_refused(status: &GrpcStatus) -> bool {
    any_cause(status, |error| error.is::<ConnectError>())
}

/// Whether the server cannot have seen the call: the connection closed before it was sent, or its stream is one that a
/// graceful GOAWAY excludes (RFC 9113, 6.8). Anything else is never repeated, since it may have been charged.
fn was_not_processed(status: &GrpcStatus) -> bool {
    any_cause(status, |error| {
        let is_excluded = |error: &h2::Error| {
            error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
        };
        error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled)
            || error.downcast_ref().is_some_and(is_excluded)
    })
}

/// Whether any of the causes of a status has a property.
fn any_cause(status: &GrpcStatus, has: impl Fn(&(dyn StdError + 'static)) -> bool) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if has(error) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn decode(allowed: bool, answer: RateLimitResponse) -> Decision {
    let statuses = answer.statuses.into_iter().map(|status| {
        let over_limit = status.code() == Code::OverLimit;
        let limit = status.current_limit.map(|limit| {
            let unit = unit(limit.unit());
            let of_unit = unit.map(|unit| Duration::from_secs(unit.seconds().into()));
            let window = of_unit.or_else(|| Duration::try_from(limit.window?).ok());
            Limit { requests: limit.requests_per_unit, unit, name: limit.name, window }
        });
        // A negative duration is none of this API's.
        let reset_after = status.duration_until_reset.and_then(|reset| Duration::try_from(reset).ok());
        Status { over_limit, limit, remaining: status.limit_remaining, reset_after }
    });
    let mut decision = Decision::new(allowed, Reason::Decided, statuses.collect());
    let headers = |headers: Vec<HeaderValue>| headers.into_iter().map(header).collect();
    decision.request_headers = headers(answer.request_headers_to_add);
    decision.response_headers = headers(answer.response_headers_to_add);
    decision.body = answer.raw_body.into();
    decision
}

fn header(header: HeaderValue) -> (String, String) {
    let value = if header.value.is_empty() {
        header.raw_value.iter().copied().map(char::from).collect()
    } else {
        header.value
    };
    (header.key, value)
}

fn unit(unit: WireUnit) -> Option<Unit> {
    Some(match unit {
        WireUnit::Unknown => return None,
        WireUnit::Second => Unit::Second,
        WireUnit::Minute => Unit::Minute,
        WireUnit::Hour => Unit::Hour,
        WireUnit::Day => Unit::Day,
        WireUnit::Week => Unit::Week,
        WireUnit::Month => Unit::Month,
        WireUnit::Year => Unit::Year,
    })
}

/// The name of a code as the gRPC specification has it.
fn name(code: GrpcCode) -> &'static str {
    match code {
        GrpcCode::Ok => "OK",
        GrpcCode::Cancelled => "CANCELLED",
        GrpcCode::Unknown => "UNKNOWN",
        GrpcCode::InvalidArgument => "INVALID_ARGUMENT",
        GrpcCode::DeadlineExceeded => "DEADLINE_EXCEEDED",
        GrpcCode::NotFound => "NOT_FOUND",
        GrpcCode::AlreadyExists => "ALREADY_EXISTS",
        GrpcCode::PermissionDenied => "PERMISSION_DENIED",
        GrpcCode::ResourceExhausted => "RESOURCE_EXHAUSTED",
        GrpcCode::FailedPrecondition => "FAILED_PRECONDITION",
        GrpcCode::Aborted => "ABORTED",
        GrpcCode::OutOfRange => "OUT_OF_RANGE",
        GrpcCode::Unimplemented => "UNIMPLEMENTED",
        GrpcCode::Internal => "INTERNAL",
        GrpcCode::Unavailable => "UNAVAILABLE",
        GrpcCode::DataLoss => "DATA_LOSS",
        GrpcCode::Unauthenticated => "UNAUTHENTICATED",
    }
}
