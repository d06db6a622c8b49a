//! Probes of orchestrators and load balancers. They need no token.

use super::state::HttpState;
use axum::{extract::State, http::StatusCode, response::IntoResponse};
use std::sync::atomic::Ordering;
use tidegate_service::RateLimitService;
use tidegate_shared::store::{Health, SharedStore};

pub(super) async fn live() -> impl IntoResponse {
    "alive\n"
}

pub(super) async fn ready(State(state): State<HttpState>) -> impl IntoResponse {
    let shared_store = shared_store(&state.service);
    serving(&state, format!("serving\n{shared_store}"), StatusCode::SERVICE_UNAVAILABLE)
}

/// The state of the shared store as a line, if there is one. Without the store the server still serves.
fn shared_store(service: &RateLimitService) -> String {
    match service.shared_store().map(SharedStore::health) {
        None => String::new(),
        Some(Health { is_available: true, servers, .. }) => {
            format!("shared store: available, {servers} servers\n")
        }
        // The reason is in the log: probes need no token.
        Some(Health { is_available: false, .. }) => "shared store: unavailable\n".to_owned(),
    }
}

/// The reference server's probe, with its status codes.
pub(super) async fn healthcheck(State(state): State<HttpState>) -> impl IntoResponse {
    serving(&state, "OK".to_owned(), StatusCode::INTERNAL_SERVER_ERROR)
}

fn serving(state: &HttpState, yes: String, no: StatusCode) -> impl IntoResponse + use<> {
    match state.is_serving.load(Ordering::Relaxed) {
        true => (StatusCode::OK, yes),
        false => {
            (no, "not serving: starting, restoring the counters, without rules, or draining\n".to_owned())
        }
    }
}
