//! The HTTP port for those who watch: `/metrics`, `/livez`, `/readyz`. It decides nothing.

use crate::telemetry::{METRICS_CONTENT_TYPE, Metrics};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// What the port tells.
#[derive(Clone, Default)]
pub struct Watched {
    metrics: Arc<Metrics>,
    is_serving: Arc<AtomicBool>,
}

impl Watched {
    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether requests are answered, as gRPC's health says too.
    pub fn set_serving(&self, serving: bool) {
        self.is_serving.store(serving, Ordering::Relaxed);
    }
}

/// The pages.
pub fn router(watched: Watched) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is /metrics, /livez and /readyz\n") })
        .with_state(watched)
}

async fn metrics(State(watched): State<Watched>) -> impl IntoResponse {
    ([(CONTENT_TYPE, METRICS_CONTENT_TYPE)], watched.metrics.text())
}

async fn ready(State(watched): State<Watched>) -> impl IntoResponse {
    if watched.is_serving.load(Ordering::Relaxed) {
        (StatusCode::OK, "serving\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not serving: starting, restoring the counters, or draining\n")
    }
}
