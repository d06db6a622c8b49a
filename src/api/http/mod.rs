//! The HTTP port: figures, probes and rules for operators, and `POST /json` for clients without gRPC.

mod json;

use crate::{
    config::{Config, describe},
    service::RateLimitService,
    telemetry::{Metrics, MetricsFormat},
};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, CONTENT_TYPE, VARY},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Time that a queued request may wait.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// State of the admin port.
#[derive(Clone)]
pub struct Admin {
    service: RateLimitService,
    metrics: Arc<Metrics>,
    is_serving: Arc<AtomicBool>,
    /// The rules; none until the counters are restored.
    config: Arc<OnceLock<Arc<Config>>>,
}

impl Admin {
    /// The state of a server that starts: it is not serving.
    pub fn new(service: RateLimitService) -> Self {
        Self { service, metrics: Arc::default(), is_serving: Arc::default(), config: Arc::default() }
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
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

/// The routes of the admin port.
pub fn router(admin: Admin) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/json", post(should_rate_limit))
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/rules", get(rules))
        .route("/rules/status", get(rules_status))
        .fallback(|| async {
            (
                StatusCode::NOT_FOUND,
                "not found; there are /json, /metrics, /livez, /readyz, /rules and /rules/status\n",
            )
        })
        .with_state(admin)
}

async fn should_rate_limit(State(admin): State<Admin>, headers: HeaderMap, body: Bytes) -> Response {
    json::should_rate_limit(&admin.service, &headers, "", WAIT_MAX, &body).await
}

async fn metrics(State(admin): State<Admin>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = MetricsFormat::negotiate(accept);
    ([(CONTENT_TYPE, format.content_type()), (VARY, "accept")], admin.metrics.text(format))
}

/// The rules in force: JSON, or the YAML they were built from where `Accept` names it.
async fn rules(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let Some(config) = admin.config.get().cloned() else { return starting() };
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let is_yaml = accept.is_some_and(|accept| accept.contains("yaml"));
    let content_type = if is_yaml { "application/yaml" } else { "application/json" };
    // On a thread of its own: a hundred thousand rules take longer than connections should wait to be accepted.
    let text = tokio::task::spawn_blocking(move || match is_yaml {
        true => describe::sources_to_yaml(&config.sources()),
        false => describe::rules_to_json(&config.limiter().rules()).to_string(),
    });
    match text.await {
        Ok(text) => ([(CONTENT_TYPE, content_type), (VARY, "accept")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn rules_status(State(admin): State<Admin>) -> Response {
    let Some(config) = admin.config.get() else { return starting() };
    let status = describe::status_to_json(&config.status());
    ([(CONTENT_TYPE, "application/json")], status.to_string()).into_response()
}

fn starting() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "starting: the counters are being restored\n").into_response()
}

async fn ready(State(admin): State<Admin>) -> impl IntoResponse {
    if admin.is_serving.load(Ordering::Relaxed) {
        (StatusCode::OK, "serving\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not serving: starting, restoring the counters, or draining\n")
    }
}
