//! `POST /control/v1/METHOD`: the control API in the JSON mapping of protobuf.

use super::{ClientAddress, HttpState};
use crate::api::control::{self, Error, to_json};
use axum::{
    body::Body,
    extract::{Extension, Path, State},
    http::{
        HeaderMap, StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use std::convert::Infallible;
use tokio_stream::StreamExt as _;

pub(super) const PATH: &str = "/control/v1/{method}";

pub(super) async fn call(
    State(state): State<HttpState>,
    client: Option<Extension<ClientAddress>>,
    Path(method): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some(api) = &state.control else { return StatusCode::NOT_FOUND.into_response() };
    let client = client
        .as_ref()
        .map_or(("", &[][..]), |Extension(ClientAddress(address, names))| (&**address, &**names));
    if method == control::TAIL {
        return match control::tail(api, &headers, client, &body) {
            Ok(lines) => {
                let content = [(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")];
                let body = Body::from_stream(lines.map(Ok::<_, Infallible>));
                (content, body).into_response()
            }
            Err(error) => refusal(&error),
        };
    }
    let content = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    match control::call(api, &headers, client, &method, &body).await {
        Ok(text) => (content, text).into_response(),
        Err(error) => refusal(&error),
    }
}

fn refusal(error: &Error) -> Response {
    let status = error.http_status();
    let content = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    let text = to_json("Error", &error.to_message());
    let mut response = (status, content, text).into_response();
    if status == StatusCode::UNAUTHORIZED {
        let challenge = http::HeaderValue::from_static(r#"Bearer realm="tidegate""#);
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}
