//! The HTTP port: metrics, rules and probes for operators, and `POST /json` for clients without gRPC.
//!
//! Invariants: every route but the probes requires a bearer token if tokens are set, and is refused before its body is read; no client
//! takes more than the bounds, or longer than the timeouts, each of which measures complete work.

mod authorization;
mod connection;
mod console;
mod control;
#[cfg(feature = "fuzzing")]
pub(in crate::api) mod fuzz_bridge;
mod index;
mod json;
mod json_texts;
mod limitador;
mod long_text;
mod metrics_path;
mod operators;
mod origin;
mod paths;
mod probes;
mod reference;
mod refused;
mod state;
mod timed_stream;
mod whole_body;

pub(crate) use connection::serve_connection;
pub use metrics_path::MetricsPath;
pub use state::{HttpBounds, HttpSettings, HttpState};
pub(crate) use timed_stream::Progress;

use crate::api::client::Client;
use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode},
    middleware,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use bytes::Bytes;

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
const ROUTES: [Route; paths::ALL.len()] = [
    Route { path: paths::INDEX, access: Access::Token, handler: || get(index::index) },
    Route { path: paths::CONFIG, access: Access::Token, handler: || get(operators::config) },
    Route { path: paths::JSON, access: Access::Token, handler: || post(should_rate_limit) },
    Route { path: paths::METRICS, access: Access::Token, handler: || get(operators::metrics) },
    Route { path: paths::RULES, access: Access::Token, handler: || get(operators::rules) },
    Route { path: paths::RULES_STATUS, access: Access::Token, handler: || get(operators::rules_status) },
    Route { path: paths::VERSION, access: Access::Token, handler: || get(operators::version) },
    Route { path: paths::RLCONFIG, access: Access::Token, handler: || get(reference::rlconfig) },
    Route { path: paths::STATS, access: Access::Token, handler: || get(reference::stats) },
    Route { path: paths::LIVEZ, access: Access::Open, handler: || get(probes::live) },
    Route { path: paths::READYZ, access: Access::Open, handler: || get(probes::ready) },
    Route { path: paths::HEALTHCHECK, access: Access::Open, handler: || get(probes::healthcheck) },
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
            Router::new().route(paths::CONTROL, post(control::call).layer(whole_body.clone()).layer(caller))
        }
        false => Router::new(),
    };
    let further = state.settings.metrics_path.iter();
    let metrics =
        further.fold(Router::new(), |router, path| router.route(path.as_str(), get(operators::metrics)));
    let (limitador, limitador_open) = match state.settings.has_limitador_api {
        true => (limitador::router(), limitador::open_router()),
        false => (Router::new(), Router::new()),
    };
    let has_console = is_controlled && state.settings.has_console;
    let console = if has_console { console::router() } else { Router::new() };
    let router = routes(Access::Token)
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
        .with_state(state);
    if has_console { router.layer(middleware::from_fn(console::from_index)) } else { router }
}

async fn not_found() -> impl IntoResponse {
    (StatusCode::NOT_FOUND, format!("not found; there are {}\n", paths::ALL.join(", ")))
}

async fn should_rate_limit(
    State(state): State<HttpState>,
    client: Client,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let wait_max = state.settings.bounds.timeout;
    json::should_rate_limit(&state.service, &headers, &client.peer, wait_max, &body).await
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
    fn every_path_has_a_route() {
        assert_eq!(ROUTES.map(|route| route.path), paths::ALL);
    }

    #[test]
    fn the_openapi_file_describes_every_route_and_no_other() {
        let routes = ROUTES.iter().map(|route| (route.path.to_owned(), route.access == Access::Token));
        let console = paths::CONSOLE.map(|path| (path.to_owned(), false));
        assert_eq!(described(), routes.chain(console).collect());
    }
}
