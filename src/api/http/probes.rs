//! Probes of orchestrators and load balancers. They need no token.

use super::HttpState;
use axum::{extract::State, http::StatusCode, response::IntoResponse};
use std::sync::atomic::Ordering;

pub(super) async fn live() -> impl IntoResponse {
    "alive\n"
}

pub(super) async fn ready(State(state): State<HttpState>) -> impl IntoResponse {
    serving(&state, "serving\n", StatusCode::SERVICE_UNAVAILABLE)
}

/// The reference server's probe, with its status codes.
pub(super) async fn healthcheck(State(state): State<HttpState>) -> impl IntoResponse {
    serving(&state, "OK", StatusCode::INTERNAL_SERVER_ERROR)
}

fn serving(state: &HttpState, yes: &'static str, no: StatusCode) -> impl IntoResponse + use<> {
    match state.is_serving.load(Ordering::Relaxed) {
        true => (StatusCode::OK, yes),
        false => (no, "not serving: starting, restoring the counters, or draining\n"),
    }
}
