//! The settings and the state of the HTTP port.

use super::{MetricsPath, timed_stream::Progress};
use crate::api::{BUILD, ControlApi, Tokens};
use arc_swap::ArcSwap;
use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tidegate_core::limit::Timestamp;
use tidegate_counts::Counts;
use tidegate_http2::BodyMemory;
use tidegate_operations::{config::Config, telemetry::Metrics};
use tidegate_service::{HttpRefusal, RateLimitService};
use tidegate_shared::store::SharedStore;

/// Bounds on the clients of the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HttpBounds {
    /// Connections at once. Beyond it, the connection whose last request is longest ago is closed.
    pub connections_max: usize,
    /// Bytes of the line and the headers of a request.
    pub header_bytes_max: usize,
    /// Bytes of the body of a request.
    pub body_bytes_max: usize,
    /// Time for each of four steps: the headers, the body, the queueing of a request by its rule, the writing of a response.
    pub timeout: Duration,
    /// Time that a connection may stay open between two requests.
    pub idle_timeout: Duration,
}

impl Default for HttpBounds {
    fn default() -> Self {
        Self {
            connections_max: 256,
            header_bytes_max: 16 << 10,
            body_bytes_max: 512 << 10,
            timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
        }
    }
}

/// The HTTP port.
#[derive(Clone, Debug, Default)]
pub struct HttpSettings {
    /// Bounds on its clients.
    pub bounds: HttpBounds,
    /// The file of bearer tokens; none if requests need no token.
    pub token_file: Option<PathBuf>,
    /// Whether it serves the console. The control API, which that calls, has to be enabled too.
    pub has_console: bool,
    /// Whether it serves Limitador's HTTP API.
    pub has_limitador_api: bool,
    /// A further path of the metrics.
    pub metrics_path: Option<MetricsPath>,
    /// The response to `GET /config`: settings in effect, without secrets.
    pub effective: serde_json::Value,
    /// Names under which it is reached, besides addresses and those that only local name servers have.
    pub allowed_hosts: Vec<String>,
    /// Whether requests under other names are refused: no credential protects the responses.
    pub are_hosts_checked: bool,
}

/// State of the HTTP port.
#[derive(Clone)]
pub struct HttpState {
    pub(super) service: RateLimitService,
    pub(super) settings: Arc<HttpSettings>,
    /// None if requests need no token.
    pub(super) tokens: Option<Arc<ArcSwap<Tokens>>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) is_serving: Arc<AtomicBool>,
    /// The rules; none until the counters are restored.
    pub(super) config: Arc<OnceLock<Arc<Config>>>,
    /// None if the control API is off.
    pub(crate) control: Option<ControlApi>,
    pub(super) started_at: Timestamp,
    /// Memory for incomplete requests.
    pub(crate) body_memory: Arc<BodyMemory>,
}

impl HttpState {
    /// The state of a server that starts: it is not serving.
    pub fn new(
        service: RateLimitService,
        settings: HttpSettings,
        tokens: Option<Arc<ArcSwap<Tokens>>>,
    ) -> Self {
        Self {
            started_at: service.clock().now(),
            service,
            settings: Arc::new(settings),
            tokens,
            metrics: Arc::new(Metrics::new(BUILD)),
            is_serving: Arc::default(),
            config: Arc::default(),
            control: None,
            body_memory: BodyMemory::new(usize::MAX / 2),
        }
    }

    /// The metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The store of shared counters, if there is one.
    pub fn shared_store(&self) -> Option<&Arc<SharedStore>> {
        self.service.shared_store()
    }

    /// The bounds on clients.
    pub fn bounds(&self) -> &HttpBounds {
        &self.settings.bounds
    }

    /// Counts of refused requests.
    pub fn refusals(&self) -> &Counts<HttpRefusal> {
        &self.service.meters().http_refusals
    }

    /// Sets the owner of the rules. Only the first call has an effect.
    pub fn set_config(&self, config: Arc<Config>) {
        let _ = self.config.set(config);
    }

    /// Sets whether requests are decided, which gRPC health reports too.
    pub fn set_serving(&self, serving: bool) {
        self.is_serving.store(serving, Ordering::Relaxed);
    }
}

/// The progress of a connection, in the extensions of its requests.
#[derive(Clone)]
pub(super) struct RequestProgress(pub(super) Arc<Progress>);
