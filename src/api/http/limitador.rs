//! Limitador's HTTP API: its limits and counters, and decisions about one descriptor, which it calls `values`.

use super::{json_texts, operators::starting, state::HttpState};
use crate::api::{
    client::Client,
    pb::{
        common::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code},
    },
    refusals::refuse,
    rls::{CallError, Purpose, call},
};
use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tidegate_core::{
    limit::Timestamp,
    rules::{ConditionalLimit, RuleSet},
};
use tidegate_operations::config::LoadResult;
use tidegate_service::{RateLimitService, ResponseHeaders, ResponseOptions};

/// The value of `response_headers` that adds headers to a response.
const DRAFT_03: &str = "DraftVersion03";

/// The paths whose callers expect a decision.
pub(super) const DECISIONS: [&str; 3] = ["/check", "/report", "/check_and_report"];

/// The body of a request.
#[derive(Deserialize)]
struct Info {
    namespace: String,
    values: BTreeMap<String, String>,
    delta: u64,
    response_headers: Option<String>,
}

impl Info {
    fn asks_for_headers(&self) -> bool {
        self.response_headers.as_deref() == Some(DRAFT_03)
    }
}

/// The service whose responses have Limitador's headers.
fn with_headers(service: &RateLimitService) -> RateLimitService {
    let headers = ResponseHeaders { limitador: true, ..ResponseHeaders::default() };
    service.clone().with_response_options(ResponseOptions { headers, ..ResponseOptions::default() })
}

/// The route of probes, which need no token.
pub(super) fn open_router() -> Router<HttpState> {
    Router::new().route("/status", get(status))
}

/// All other routes.
pub(super) fn router() -> Router<HttpState> {
    let [of_check, of_report, of_both] = DECISIONS;
    Router::new()
        .route("/limits/{namespace}", get(limits))
        .route("/counters/{namespace}", get(counters))
        .route(of_check, decision(Purpose::Check))
        .route(of_report, decision(Purpose::Report))
        .route(of_both, decision(Purpose::Limit))
}

/// The route of decisions for this purpose.
fn decision(purpose: Purpose) -> MethodRouter<HttpState> {
    let handle =
        async move |State(state): State<HttpState>, client: Client, headers: HeaderMap, body: Bytes| {
            let (info, decided) = decide(&state, &client.peer, &headers, purpose, &body).await?;
            Ok::<_, Refusal>(match purpose {
                Purpose::Check => checked(&state, &info, &decided),
                Purpose::Report => json_response(StatusCode::OK, &Value::Null),
                Purpose::Limit => limited(&info, &decided),
            })
        };
    post(handle)
}

async fn status(State(state): State<HttpState>) -> Response {
    let Some(config) = state.config.get() else { return starting() };
    let status = config.status();
    let failed_since = match &status.last {
        Some(last) if matches!(last.result, LoadResult::Failed(_)) => status.failed,
        _ => 0,
    };
    json_response(
        StatusCode::OK,
        &json!({
            "started_at": time(state.started_at),
            "config_applied_at": time(status.loaded_at),
            "config_version": status.succeeded,
            "config_err_since": failed_since,
        }),
    )
}

/// A time as Limitador writes it: in UTC, without an offset.
fn time(at: Timestamp) -> String {
    let nanos = i128::from(at.as_nanos());
    let time = jiff::Timestamp::from_nanosecond(nanos).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S%.9f").to_string()
}

async fn limits(State(state): State<HttpState>, Path(namespace): Path<String>) -> Response {
    let Some(config) = state.config.get() else { return starting() };
    let rules = config.limiter.rules();
    let limits: Vec<Value> =
        conditional(&rules, &namespace).map(|limit| to_json(&namespace, limit)).collect();
    json_response(StatusCode::OK, &limits.into())
}

/// The counters of limits without variables. Other counters are known only by keyed fingerprints of their values.
async fn counters(State(state): State<HttpState>, Path(namespace): Path<String>) -> Response {
    let Some(config) = state.config.get() else { return starting() };
    let pinned = config.limiter.pin();
    let counters = pinned.unqualified_counters(&namespace, state.service.clock().now());
    let counters: Vec<Value> = counters
        .into_iter()
        .map(|(limit, counter)| {
            json!({
                "limit": to_json(&namespace, limit),
                "set_variables": {},
                "remaining": counter.remaining,
                "expires_in_seconds": counter.until_full.as_secs(),
            })
        })
        .collect();
    json_response(StatusCode::OK, &counters.into())
}

fn conditional<'r>(rules: &'r RuleSet, namespace: &str) -> impl Iterator<Item = &'r ConditionalLimit> {
    rules
        .domain(namespace)
        .and_then(|domain| domain.conditional())
        .into_iter()
        .flat_map(|limits| limits.iter())
}

fn to_json(namespace: &str, limit: &ConditionalLimit) -> Value {
    let declared = limit.limit();
    let name = Some(&*declared.name).filter(|name| !name.is_empty());
    let sources = |expressions: &[tidegate_core::rules::Expression]| -> Vec<String> {
        expressions.iter().map(|expression| expression.source().to_owned()).collect()
    };
    json!({
        "id": limit.id,
        "namespace": namespace,
        "max_value": declared.requests,
        "seconds": declared.window.duration().as_secs(),
        "name": name,
        "conditions": sources(&limit.conditions),
        "variables": sources(&limit.variables),
    })
}

fn checked(state: &HttpState, info: &Info, decided: &RateLimitResponse) -> Response {
    let fits = decided.overall_code() != Code::OverLimit && fits(state, info);
    if fits || info.delta == 0 {
        return json_response(StatusCode::OK, &Value::Null);
    }
    (StatusCode::TOO_MANY_REQUESTS, "Too many requests").into_response()
}

/// Whether several hits would be admitted now, by the counters of this process.
fn fits(state: &HttpState, info: &Info) -> bool {
    let Some(config) = state.config.get().filter(|_| info.delta > 1) else { return true };
    let entries = info.values.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let limits = config.limiter.pin();
    let available = limits.available(&info.namespace, entries, state.service.clock().now());
    available.is_none_or(|available| u64::from(available) >= info.delta)
}

fn limited(info: &Info, decided: &RateLimitResponse) -> Response {
    let status = match decided.overall_code() {
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        Code::Ok | Code::Unknown => StatusCode::OK,
    };
    let mut response = json_response(status, &Value::Null);
    if info.asks_for_headers() {
        for header in &decided.response_headers_to_add {
            let name = header.key.parse::<HeaderName>();
            if let (Ok(name), Ok(value)) = (name, header.value.parse::<HeaderValue>()) {
                response.headers_mut().append(name, value);
            }
        }
    }
    response
}

/// The response to a request that is not decided.
type Refusal = (StatusCode, String);

/// Reads the body of a request, and decides it.
async fn decide(
    state: &HttpState,
    peer: &str,
    headers: &HeaderMap,
    purpose: Purpose,
    body: &[u8],
) -> Result<(Info, RateLimitResponse), Refusal> {
    let (info, strings) =
        json_texts::read(body, |body| serde_json::from_slice::<Info>(body)).map_err(|error| {
            let reason =
                format!("the body is not {{namespace, values, delta, response_headers}} in JSON: {error}");
            refuse(&state.service, tidegate_service::Refusal::UndecodableMessage, peer, &reason);
            (StatusCode::BAD_REQUEST, format!("{reason}\n"))
        })?;
    let entry =
        |(key, value): (&String, &String)| Entry { key: strings.bytes(key), value: strings.bytes(value) };
    let descriptor = RateLimitDescriptor {
        entries: info.values.iter().map(entry).collect(),
        hits_addend: Some(info.delta),
        ..RateLimitDescriptor::default()
    };
    let message = RateLimitRequest {
        domain: info.namespace.clone(),
        descriptors: vec![descriptor],
        hits_addend: u32::try_from(info.delta).unwrap_or(u32::MAX),
    };
    // The headers of this response are those that its request names, whatever the server adds to others.
    let service = if info.asks_for_headers() { &with_headers(&state.service) } else { &state.service };
    let called = call(service, headers, peer, purpose, state.settings.bounds.timeout, &message).await;
    let response = called.map_err(|error| {
        let status = match error {
            CallError::NotReady(_) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        };
        (status, format!("{error}\n"))
    })?;
    Ok((info, response.message))
}

fn json_response(status: StatusCode, value: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
