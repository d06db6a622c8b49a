//! Probes of orchestrators and load balancers. They need no token.

use super::state::HttpState;
use crate::api::time::{time_text, timestamp};
use axum::{extract::State, http::StatusCode, response::IntoResponse};
use std::sync::atomic::Ordering;
use tidegate_service::RateLimitService;
use tidegate_shared::store::Health;

pub(super) async fn live() -> impl IntoResponse {
    "alive\n"
}

pub(super) async fn ready(State(state): State<HttpState>) -> impl IntoResponse {
    let (shared_store, rules, quotas) = (shared_store(&state.service), rules(&state), quotas(&state.service));
    serving(&state, format!("serving\n{shared_store}{rules}{quotas}"), StatusCode::SERVICE_UNAVAILABLE)
}

/// A line if the rules in force are not those of their sources. The server still serves.
fn rules(state: &HttpState) -> String {
    let Some(status) = state.config.get().map(|config| config.status()) else { return String::new() };
    if status.is_last_load_successful() {
        return String::new();
    }
    let errors: usize = status.failing.values().map(|errors| errors.iter().count()).sum();
    let since = time_text(timestamp(status.loaded_at), 0);
    // The errors are in the log and in `GET /rules/status`: probes need no token.
    format!(
        "rules: those valid last are in force, of {since}; {errors} errors in the present ones, see /rules/status\n"
    )
}

/// A line while part of the limits counts as assigned by a former process, for which requests may be denied.
fn quotas(service: &RateLimitService) -> &'static str {
    match service.quotas().figures().is_learning {
        true => "quotas: learning: what a former process may have assigned counts for 16 s after the start\n",
        false => "",
    }
}

/// The state of the shared store as a line, if there is one. Without the store the server still serves.
fn shared_store(service: &RateLimitService) -> String {
    match service.shared_store().map(|store| store.health()) {
        None => String::new(),
        Some(Health { is_available: true, servers, .. }) => {
            let leases = match service.grants() {
                Some(_) => {
                    "leases: none of counters in the shared store; every request of a holder is a call\n"
                }
                None => "",
            };
            format!("shared store: available, {servers} servers\n{leases}")
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
