//! Routes for operators: metrics, the rules in force, the version.

use super::{
    long_text::{SendPiece, long_text, long_text_in_pieces},
    state::HttpState,
};
use crate::api::{BUILD, client::Client};
use axum::{
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, CONTENT_TYPE, VARY},
    },
    response::{IntoResponse, Response},
};
use serde_json::json;
use tidegate_operations::{config::describe, telemetry::MetricsFormat};

pub(super) async fn metrics(State(state): State<HttpState>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = MetricsFormat::negotiate(accept);
    let metrics = state.metrics.clone();
    let write = move |send: SendPiece<'_>| metrics.write_text(format, send);
    let text = long_text_in_pieces(&state, "the metrics", write).await;
    text.map(|text| ([(CONTENT_TYPE, format.content_type()), (VARY, "accept")], text)).into_response()
}

/// The rules in force: JSON, or the YAML they were built from where `Accept` names it.
pub(super) async fn rules(State(state): State<HttpState>, client: Client, headers: HeaderMap) -> Response {
    let Some(config) = state.config.get().cloned() else { return starting() };
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let is_yaml = accept.is_some_and(|accept| accept.contains("yaml"));
    if is_yaml && !state.has_role(&headers, &client) {
        let reason = "the text of the rules, with its comments, needs a token with the role read; without `accept: application/yaml` \
            the rules are sent as JSON\n";
        return (StatusCode::FORBIDDEN, reason).into_response();
    }
    let content_type = if is_yaml { "application/yaml" } else { "application/json" };
    let text = long_text(&state, "the rules", move || match is_yaml {
        true => describe::sources_to_yaml(&config.sources()),
        false => describe::rules_to_json(&config.limiter.rules()).to_string(),
    });
    text.await.map(|text| ([(CONTENT_TYPE, content_type), (VARY, "accept")], text)).into_response()
}

pub(super) async fn rules_status(State(state): State<HttpState>) -> Response {
    let Some(config) = state.config.get() else { return starting() };
    let status = describe::status_to_json(&config.status());
    ([(CONTENT_TYPE, "application/json")], status.to_string()).into_response()
}

/// The settings in effect, without secrets.
pub(super) async fn config(State(state): State<HttpState>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], state.settings.effective.to_string())
}

pub(super) async fn version() -> impl IntoResponse {
    let version = json!({ "name": "tidegate", "version": BUILD.version, "commit": BUILD.commit });
    ([(CONTENT_TYPE, "application/json")], version.to_string())
}

pub(super) fn starting() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "starting: the counters are being restored\n").into_response()
}
