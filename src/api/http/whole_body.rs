//! Receives the whole body of a request before its handler runs, within the bounds on bytes and time.

use super::HttpState;
use crate::service::HttpRefusal;
use axum::{
    body::Body,
    extract::{Request, State},
    http::{
        HeaderValue, StatusCode,
        header::{CONNECTION, HeaderMap},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

pub(super) async fn receive(State(state): State<HttpState>, request: Request, next: Next) -> Response {
    let bounds = &state.bounds;
    let (head, body) = request.into_parts();
    let too_long = || {
        let reason =
            format!("the body is longer than the {} bytes of --http-max-body-bytes\n", bounds.body_bytes_max);
        closing(StatusCode::PAYLOAD_TOO_LARGE, reason)
    };
    if body.size_hint().lower() > bounds.body_bytes_max as u64 {
        return too_long();
    }
    match timeout(bounds.timeout, Limited::new(body, bounds.body_bytes_max).collect()).await {
        Ok(Ok(whole)) => next.run(Request::from_parts(head, Body::from(whole.to_bytes()))).await,
        Ok(Err(error)) if error.is::<LengthLimitError>() => too_long(),
        Ok(Err(error)) => {
            state.refusals().count(HttpRefusal::MalformedBody);
            closing(StatusCode::BAD_REQUEST, format!("the body is malformed: {error}\n"))
        }
        Err(_) => closing(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body was not complete within the {:?} of --http-timeout\n", bounds.timeout),
        ),
    }
}

/// A refusal after which the connection ends, since the rest of the body is not read.
fn closing(status: StatusCode, reason: String) -> Response {
    let headers = HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static("close"))]);
    (status, headers, reason).into_response()
}
