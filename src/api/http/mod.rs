//! HTTP for operators: `/metrics`, `/livez`, `/readyz`.

use crate::telemetry::{Metrics, MetricsFormat};
use axum::{
    Router,
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, CONTENT_TYPE, VARY},
    },
    response::IntoResponse,
    routing::get,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// State of the admin port.
#[derive(Clone, Default)]
pub struct Admin {
    metrics: Arc<Metrics>,
    is_serving: Arc<AtomicBool>,
}

impl Admin {
    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
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
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .fallback(|| async { (StatusCode::NOT_FOUND, "not found; there are /metrics, /livez and /readyz\n") })
        .with_state(admin)
}

async fn metrics(State(admin): State<Admin>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = MetricsFormat::negotiate(accept);
    ([(CONTENT_TYPE, format.content_type()), (VARY, "accept")], admin.metrics.text(format))
}

async fn ready(State(admin): State<Admin>) -> impl IntoResponse {
    if admin.is_serving.load(Ordering::Relaxed) {
        (StatusCode::OK, "serving\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not serving: starting, restoring the counters, or draining\n")
    }
}
