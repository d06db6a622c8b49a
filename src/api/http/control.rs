//! `POST /control/v1/METHOD`: the control API in the JSON mapping of protobuf.

use super::state::HttpState;
use crate::api::{
    client::Client,
    control::{self, Admitted, Error, Recheck, to_json},
};
use axum::{
    body::Body,
    extract::{Extension, Path, Request, State},
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use std::convert::Infallible;
use tokio_stream::StreamExt as _;

const JSON: &str = "application/json";

/// Checks the caller, before the body is received.
pub(super) async fn admit(
    State(state): State<HttpState>,
    Path(method): Path<String>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(api) = &state.control else { return StatusCode::NOT_FOUND.into_response() };
    let client = Client::of(request.extensions());
    match api.admit(request.headers(), client, &method) {
        Ok(admitted) => {
            if method == control::TAIL {
                let recheck = api.recheck(&admitted, request.headers(), client.1);
                request.extensions_mut().insert(recheck);
            }
            request.extensions_mut().insert(admitted);
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
    Extension(admitted): Extension<Admitted>,
    recheck: Option<Extension<Recheck>>,
    Path(method): Path<String>,
    body: Bytes,
) -> Response {
    let called = match recheck {
        Some(Extension(recheck)) => control::tail(&admitted, recheck, &body).map(|lines| {
            let body = Body::from_stream(lines.map(Ok::<_, Infallible>));
            (content("application/x-ndjson"), body).into_response()
        }),
        None => {
            control::call(&admitted, &method, &body).await.map(|text| (content(JSON), text).into_response())
        }
    };
    called.unwrap_or_else(|error| refusal(&error))
}

fn content(media_type: &'static str) -> [(HeaderName, &'static str); 2] {
    [(CONTENT_TYPE, media_type), (CACHE_CONTROL, "no-store")]
}

fn refusal(error: &Error) -> Response {
    let status = error.http_status();
    let mut response = (status, content(JSON), to_json(&error.to_message())).into_response();
    if status == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static(r#"Bearer realm="tidegate""#);
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}
