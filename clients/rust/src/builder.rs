//! Settings of a client, and the client made from them.

use crate::{
    breaker::Breaker,
    client::{Inner, OnFailure, Tidegate},
    decision::Decision,
    denials::LocalDenials,
    failures::FailureLog,
    fake::Decide,
    local::{LocalLimit, LocalLimits},
    transport::{self, Channels, Connections},
};
#[cfg(feature = "tls")]
use http::uri::Scheme;
use std::{
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::{Duration, Instant},
};
use tonic::metadata::MetadataMap;

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// An address is malformed.
    #[error("{address}: {source}")]
    Address {
        /// The address.
        address: String,
        /// The problem.
        source: tonic::transport::Error,
    },
    /// An address has no port.
    #[error("{address}: the address has no port; write host:port, such as 127.0.0.1:8081")]
    Port {
        /// The address.
        address: String,
    },
    /// The client has TLS, and the URI of an address is of plain HTTP.
    #[error(
        "{address}: connections to this address would not be encrypted; write https://, or do not set TLS"
    )]
    Plaintext {
        /// The address.
        address: String,
    },
    /// The timeout is 0.
    #[error("the timeout is 0; use more")]
    Timeout,
}
pub(crate) type Observer = Arc<dyn Fn(&Decision, Duration) + Send + Sync>;
pub(crate) type MetadataSource = Arc<dyn Fn(&mut MetadataMap) + Send + Sync>;
pub(crate) type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Settings of a client.
#[must_use]
pub struct Builder {
    addresses: Vec<String>,
    domain: String,
    timeout: Duration,
    connect_timeout: Duration,
    on_failure: OnFailure,
    fallback: Vec<LocalLimit>,
    local_denials: usize,
    local_denials_for: Duration,
    breaker_failures: u32,
    breaker_open: Duration,
    observers: Vec<Observer>,
    metadata: Vec<MetadataSource>,
    clock: Clock,
    #[cfg(feature = "tls")]
    tls: Option<tonic::transport::ClientTlsConfig>,
}

impl Builder {
    /// Settings of a client of the server at an address, with all defaults.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the clock; `Builder::clock` replaces it"
    )]
    pub(crate) fn new(address: String) -> Self {
        let started = Instant::now();
        Self {
            addresses: vec![address],
            domain: String::new(),
            timeout: Duration::from_millis(50),
            connect_timeout: Duration::from_secs(1),
            on_failure: OnFailure::Open,
            fallback: Vec::new(),
            local_denials: 10_000,
            local_denials_for: Duration::from_secs(1),
            breaker_failures: 5,
            breaker_open: Duration::from_secs(1),
            observers: Vec::new(),
            metadata: Vec::new(),
            clock: Arc::new(move || started.elapsed()),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

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

    /// Adds a limit that counts requests without a response in this process; the policy decides requests that none of these limits. With a
    /// fallback, a service of ten processes admits up to ten times as much.
    pub fn fallback(mut self, limit: LocalLimit) -> Self {
        self.fallback.push(limit);
        self
    }

    /// Sets how many denials are kept; 10,000 if not set, 0 keeps none.
    pub fn local_denials(self, local_denials: usize) -> Self {
        Self { local_denials, ..self }
    }

    /// Sets for how long a denial is kept at most; 1 s if not set, and never beyond its reset. 0 keeps none.
    pub fn local_denials_for(self, local_denials_for: Duration) -> Self {
        Self { local_denials_for, ..self }
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

    /// Passes on the current OpenTelemetry context with each call, in the format of the global propagator.
    #[cfg(feature = "opentelemetry")]
    pub fn trace_context(self) -> Self {
        self.metadata(crate::telemetry::inject)
    }

    /// Sets the clock: the time since a fixed moment. For tests.
    pub fn clock(self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// Encrypts connections, with a client certificate if the configuration has one. An address with the scheme `http` is an error then.
    #[cfg(feature = "tls")]
    pub fn tls(self, tls: tonic::transport::ClientTlsConfig) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Creates the client. It must be called within a tokio runtime; the connection is opened by the first call.
    pub fn build(self) -> Result<Tidegate, BuildError> {
        if self.timeout.is_zero() {
            return Err(BuildError::Timeout);
        }
        let addresses = self.addresses.iter();
        let addresses = addresses.map(|address| Ok((address.clone(), self.connections(address)?)));
        let addresses = addresses.collect::<Result<_, _>>()?;
        Ok(self.client(addresses, None))
    }

    /// Creates the client from the channels of its addresses, or from a fake.
    pub(crate) fn client(self, addresses: Vec<(String, Connections)>, fake: Option<Decide>) -> Tidegate {
        let breaker = || Breaker::new(self.breaker_failures, self.breaker_open);
        Tidegate(Arc::new(Inner {
            channels: Channels::new(addresses, breaker),
            fake,
            domain: self.domain,
            timeout: self.timeout,
            first_timeout: self.timeout.max(self.connect_timeout),
            is_warm: AtomicBool::new(false),
            on_failure: self.on_failure,
            fallback: (!self.fallback.is_empty()).then(|| LocalLimits::new(self.fallback)),
            denials: LocalDenials::new(self.local_denials, self.local_denials_for),
            failures: FailureLog::default(),
            last_failure: Mutex::default(),
            observers: self.observers,
            metadata: self.metadata,
            clock: self.clock,
        }))
    }

    fn connections(&self, address: &str) -> Result<Connections, BuildError> {
        let (endpoint, connector) = transport::endpoint(address, self.scheme())?;
        #[cfg(feature = "tls")]
        let endpoint = match &self.tls {
            Some(_) if endpoint.uri().scheme() != Some(&Scheme::HTTPS) => {
                return Err(BuildError::Plaintext { address: address.to_owned() });
            }
            Some(tls) => endpoint
                .tls_config(tls.clone())
                .map_err(|source| BuildError::Address { address: address.to_owned(), source })?,
            None => endpoint,
        };
        let endpoint = endpoint
            .connect_timeout(self.connect_timeout.max(self.timeout))
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(5))
            .keep_alive_while_idle(true);
        Ok(Connections { endpoint, connector })
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
