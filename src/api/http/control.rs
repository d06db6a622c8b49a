//! `POST /control/v1/METHOD`: the control API in the JSON mapping of protobuf.

use super::state::{ClientAddress, HttpState};
use crate::api::control::{self, Error, Recheck, to_json};
use axum::{
    body::Body,
    extract::{Extension, Path, Request, State},
    http::{
        HeaderValue, StatusCode,
        header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use std::convert::Infallible;
use tidegate_operations::control::Caller;
use tokio_stream::StreamExt as _;

/// Checks the caller, before the body is received.
pub(super) async fn admit(
    State(state): State<HttpState>,
    Path(method): Path<String>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(api) = &state.control else { return StatusCode::NOT_FOUND.into_response() };
    let client = request.extensions().get::<ClientAddress>();
    let client = client.map_or(("", &[][..]), |ClientAddress(address, names)| (&**address, &**names));
    match api.admit(request.headers(), client, &method) {
        Ok(caller) => {
            if method == control::TAIL {
                let recheck = api.recheck(&caller, request.headers(), client.1);
                request.extensions_mut().insert(recheck);
            }
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => {
            let mut response = refusal(&error);
            // The body is not read.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            response
        }
    }
}

pub(super) async fn call(
    State(state): State<HttpState>,
    Extension(caller): Extension<Caller>,
    recheck: Option<Extension<Recheck>>,
    Path(method): Path<String>,
    body: Bytes,
) -> Response {
    let Some(api) = &state.control else { return StatusCode::NOT_FOUND.into_response() };
    if let Some(Extension(recheck)) = recheck {
        return match control::tail(api, recheck, &body) {
            Ok(lines) => {
                let content = [(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")];
                let body = Body::from_stream(lines.map(Ok::<_, Infallible>));
                (content, body).into_response()
            }
            Err(error) => refusal(&error),
        };
    }
    let content = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    match control::call(api, &caller, &method, &body).await {
        Ok(text) => (content, text).into_response(),
        Err(error) => refusal(&error),
    }
}

fn refusal(error: &Error) -> Response {
    let status = error.http_status();
    let content = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    let text = to_json(&error.to_message());
    let mut response = (status, content, text).into_response();
    if status == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static(r#"Bearer realm="tidegate""#);
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}
