//! The state of the HTTP port, and what its routes know of the client of a request.

use super::{Hosts, MetricsPath, timed_stream::Progress};
use crate::api::{BUILD, ControlApi, Tokens};
use arc_swap::ArcSwap;
use std::{
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
    /// Connections at once. Beyond it, the one that has been without a request for longest is closed.
    pub connections_max: usize,
    /// Bytes of the line and the headers of a request.
    pub header_bytes_max: usize,
    /// Bytes of the body of a request.
    pub body_bytes_max: usize,
    /// Time for each of: the headers, the body, the queueing of a request by its rule, the writing of a response.
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

/// State of the HTTP port.
#[derive(Clone)]
pub struct HttpState {
    pub(super) service: RateLimitService,
    pub(super) bounds: HttpBounds,
    /// None if requests need no token.
    pub(super) tokens: Option<Arc<ArcSwap<Tokens>>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) is_serving: Arc<AtomicBool>,
    /// The rules; none until the counters are restored.
    pub(super) config: Arc<OnceLock<Arc<Config>>>,
    /// None if the control API is off.
    pub(super) control: Option<ControlApi>,
    pub(super) has_console: bool,
    pub(super) has_limitador_api: bool,
    pub(super) started_at: Timestamp,
    /// A further path of the metrics.
    pub(super) metrics_path: Option<MetricsPath>,
    /// The settings in effect, without secrets, as JSON.
    pub(super) settings: Arc<str>,
    /// Memory for incomplete requests.
    pub(super) body_memory: Arc<BodyMemory>,
    /// Names under which the port is reached, besides local ones.
    pub(super) hosts: Hosts,
}

impl HttpState {
    /// The state of a server that starts: it is not serving.
    pub fn new(service: RateLimitService, bounds: HttpBounds, tokens: Option<Arc<ArcSwap<Tokens>>>) -> Self {
        Self {
            started_at: service.clock().now(),
            has_limitador_api: false,
            service,
            bounds,
            tokens,
            metrics: Arc::new(Metrics::new(BUILD)),
            is_serving: Arc::default(),
            config: Arc::default(),
            control: None,
            has_console: false,
            metrics_path: None,
            settings: "{}".into(),
            body_memory: BodyMemory::new(usize::MAX / 2),
            hosts: Hosts::default(),
        }
    }

    /// Adds the control API.
    pub fn with_control(self, control: Option<ControlApi>) -> Self {
        Self { control, ..self }
    }

    /// Adds the console, if the control API is served too.
    pub fn with_console(self, has_console: bool) -> Self {
        Self { has_console, ..self }
    }

    /// Adds Limitador's HTTP API.
    pub fn with_limitador_api(self, has_limitador_api: bool) -> Self {
        Self { has_limitador_api, ..self }
    }

    /// Adds a path of the metrics.
    pub fn with_metrics_path(self, metrics_path: Option<MetricsPath>) -> Self {
        Self { metrics_path, ..self }
    }

    /// Sets the settings to show, which have no secrets.
    pub fn with_settings(self, settings: &serde_json::Value) -> Self {
        Self { settings: settings.to_string().into(), ..self }
    }

    /// Sets the memory for incomplete requests.
    pub fn with_body_memory(self, body_memory: Arc<BodyMemory>) -> Self {
        Self { body_memory, ..self }
    }

    /// Sets the names of the port.
    pub fn with_hosts(self, hosts: Hosts) -> Self {
        Self { hosts, ..self }
    }

    /// The metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The store of shared counters, if there is one.
    pub fn shared_store(&self) -> Option<&SharedStore> {
        self.service.shared_store()
    }

    /// The bounds on clients.
    pub fn bounds(&self) -> &HttpBounds {
        &self.bounds
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

/// The client of a connection, in the extensions of its requests: see [`CallOrigin::peer`](tidegate_service::CallOrigin), and the verified
/// names in its certificate.
#[derive(Clone)]
pub(super) struct ClientAddress(pub(super) Arc<str>, pub(super) Arc<[String]>);

/// The progress of a connection, in the extensions of its requests.
#[derive(Clone)]
pub(super) struct RequestProgress(pub(super) Arc<Progress>);
