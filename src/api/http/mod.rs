//! The HTTP port: metrics, rules and probes for operators, and `POST /json` for clients without gRPC.
//!
//! Invariants: every route but the probes requires a bearer token if tokens are set, and is refused before its body is read; no
//! client holds more than the bounds allow, and none longer than the times, each of which measures complete work.

mod authorization;
mod connection;
mod console;
mod control;
#[cfg(feature = "fuzzing")]
pub(in crate::api) mod fuzz_bridge;
mod index;
mod json;
mod limitador;
mod long_text;
mod metrics_path;
mod operators;
mod origin;
mod probes;
mod reference;
mod timed_stream;
mod tokens;
mod whole_body;

pub(in crate::api) use authorization::bearer_token;
pub(crate) use connection::serve_connection;
pub use metrics_path::MetricsPath;
pub use origin::Hosts;
pub(crate) use timed_stream::Progress;
pub use tokens::{NewToken, TokenName, Tokens, TokensError};

use crate::{
    api::ControlApi,
    config::Config,
    service::{HttpRefusal, RateLimitService},
    telemetry::Metrics,
};
use arc_swap::ArcSwap;
use axum::{
    Router,
    extract::{DefaultBodyLimit, Extension, State},
    http::{HeaderMap, StatusCode},
    middleware,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use bytes::Bytes;
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
    service: RateLimitService,
    bounds: HttpBounds,
    /// None if requests need no token.
    tokens: Option<Arc<ArcSwap<Tokens>>>,
    metrics: Arc<Metrics>,
    is_serving: Arc<AtomicBool>,
    /// The rules; none until the counters are restored.
    config: Arc<OnceLock<Arc<Config>>>,
    /// None if the control API is off.
    control: Option<ControlApi>,
    has_console: bool,
    has_limitador_api: bool,
    started_at: Timestamp,
    /// A further path of the metrics.
    metrics_path: Option<MetricsPath>,
    /// The settings in effect, without secrets, as JSON.
    settings: Arc<str>,
    /// Memory for incomplete requests.
    body_memory: Arc<BodyMemory>,
    /// Names under which the port is reached, besides local ones.
    hosts: Hosts,
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
            metrics: Arc::default(),
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

    /// The same state with the control API.
    pub fn with_control(self, control: Option<ControlApi>) -> Self {
        Self { control, ..self }
    }

    /// The same state with the console, if the control API is served too.
    pub fn with_console(self, has_console: bool) -> Self {
        Self { has_console, ..self }
    }

    /// The same state with Limitador's HTTP API.
    pub fn with_limitador_api(self, has_limitador_api: bool) -> Self {
        Self { has_limitador_api, ..self }
    }

    /// The same state with a further path of the metrics.
    pub fn with_metrics_path(self, metrics_path: Option<MetricsPath>) -> Self {
        Self { metrics_path, ..self }
    }

    /// The same state with settings to show, which have no secrets.
    pub fn with_settings(self, settings: &serde_json::Value) -> Self {
        Self { settings: settings.to_string().into(), ..self }
    }

    /// The same state, with this memory for incomplete requests.
    pub fn with_body_memory(self, body_memory: Arc<BodyMemory>) -> Self {
        Self { body_memory, ..self }
    }

    /// The same state, with these names of the port.
    pub fn with_hosts(self, hosts: Hosts) -> Self {
        Self { hosts, ..self }
    }

    /// The metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
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

/// Access to a route where tokens are set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Probes of orchestrators and load balancers send no token.
    Open,
    Token,
}

struct Route {
    path: &'static str,
    access: Access,
    handler: fn() -> MethodRouter<HttpState>,
}

/// Every route. `docs/openapi.yaml` describes them.
const ROUTES: [Route; 12] = [
    Route { path: "/", access: Access::Token, handler: || get(index::index) },
    Route { path: "/config", access: Access::Token, handler: || get(operators::config) },
    Route { path: "/json", access: Access::Token, handler: || post(should_rate_limit) },
    Route { path: operators::METRICS_PATH, access: Access::Token, handler: || get(operators::metrics) },
    Route { path: "/rules", access: Access::Token, handler: || get(operators::rules) },
    Route { path: "/rules/status", access: Access::Token, handler: || get(operators::rules_status) },
    Route { path: "/version", access: Access::Token, handler: || get(operators::version) },
    Route { path: "/rlconfig", access: Access::Token, handler: || get(reference::rlconfig) },
    Route { path: "/stats", access: Access::Token, handler: || get(reference::stats) },
    Route { path: "/livez", access: Access::Open, handler: || get(probes::live) },
    Route { path: "/readyz", access: Access::Open, handler: || get(probes::ready) },
    Route { path: "/healthcheck", access: Access::Open, handler: || get(probes::healthcheck) },
];

/// The routes of the port.
pub fn router(state: HttpState) -> Router {
    let routes = |access| {
        let of_access = ROUTES.iter().filter(|route| route.access == access);
        of_access.fold(Router::new(), |router, route| router.route(route.path, (route.handler)()))
    };
    // A layer added later is passed earlier: origin and token are checked before the body is received.
    let whole_body = middleware::from_fn_with_state(state.clone(), whole_body::receive);
    let token = middleware::from_fn_with_state(state.clone(), authorization::require_token);
    let origin = middleware::from_fn_with_state(state.clone(), origin::check);
    let caller = middleware::from_fn_with_state(state.clone(), control::admit);
    let is_controlled = state.control.is_some();
    // Its callers need a role.
    let control = match is_controlled {
        true => {
            Router::new().route(control::PATH, post(control::call).layer(whole_body.clone()).layer(caller))
        }
        false => Router::new(),
    };
    let metrics = state
        .metrics_path
        .iter()
        .fold(Router::new(), |router, path| router.route(path.as_str(), get(operators::metrics)));
    let (limitador, limitador_open) = match state.has_limitador_api {
        true => (limitador::router(), limitador::open_router()),
        false => (Router::new(), Router::new()),
    };
    let console = if is_controlled && state.has_console { console::router() } else { Router::new() };
    routes(Access::Token)
        .merge(metrics)
        .merge(limitador)
        .route_layer(whole_body)
        .route_layer(token)
        .merge(control)
        .route_layer(origin)
        // Probes wait for no body.
        .merge(routes(Access::Open))
        .merge(limitador_open)
        .merge(console)
        .layer(DefaultBodyLimit::disable())
        .fallback(not_found)
        .with_state(state)
}

async fn not_found() -> impl IntoResponse {
    let paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
    (StatusCode::NOT_FOUND, format!("not found; there are {}\n", paths.join(", ")))
}

/// The client of a connection, in the extensions of its requests: see [`CallOrigin::peer`](crate::service::CallOrigin), and the verified
/// names in its certificate.
#[derive(Clone)]
struct ClientAddress(Arc<str>, Arc<[String]>);

/// The progress of a connection, in the extensions of its requests.
#[derive(Clone)]
struct RequestProgress(Arc<Progress>);

async fn should_rate_limit(
    State(state): State<HttpState>,
    client: Option<Extension<ClientAddress>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let client = client.as_ref().map_or("", |Extension(ClientAddress(address, _))| address);
    json::should_rate_limit(&state.service, &headers, client, state.bounds.timeout, &body).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Routes that `docs/openapi.yaml` describes, and whether they need a token.
    fn described() -> BTreeMap<String, bool> {
        let text = include_str!("../../../docs/openapi.yaml");
        let document: serde_json::Value = serde_saphyr::from_str(text).expect("YAML");
        let operations = document["paths"].as_object().expect("paths").iter();
        let needs_token = |methods: &serde_json::Value| {
            let mut methods = methods.as_object().expect("methods").values();
            methods.any(|operation| operation["security"] != serde_json::json!([]))
        };
        operations.map(|(path, methods)| (path.clone(), needs_token(methods))).collect()
    }

    #[test]
    fn the_openapi_file_describes_every_route_and_no_other() {
        let routes = ROUTES.iter().map(|route| (route.path.to_owned(), route.access == Access::Token));
        let console = console::PATHS.map(|path| (path.to_owned(), false));
        assert_eq!(described(), routes.chain(console).collect());
    }
}
