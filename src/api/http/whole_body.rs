//! Receives the whole body of a request before its handler runs, within the bounds on bytes and time.

use super::{
    refused::{RefusalText, refused},
    state::{HttpState, RequestProgress},
    timed_stream::Phase,
};
use axum::{
    Extension,
    body::Body,
    extract::{Request, State},
    http::{
        HeaderValue, StatusCode,
        header::{CONNECTION, HeaderMap},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tidegate_http2::{BodyShare, NoRoom};
use tidegate_service::HttpRefusal;
use tokio::time::timeout;

/// Reason why a body was not received.
enum BodyError {
    TooLong,
    NoRoom,
    Malformed(axum::BoxError),
}

pub(super) async fn receive(State(state): State<HttpState>, request: Request, next: Next) -> Response {
    let bounds = &state.settings.bounds;
    let (head, body) = request.into_parts();
    let progress = head.extensions.get::<RequestProgress>().cloned();
    let enter = |phase| progress.iter().for_each(|RequestProgress(progress)| progress.enter(phase));
    let too_long = || {
        let reason =
            format!("the body is longer than the {} bytes of --http-max-body-bytes\n", bounds.body_bytes_max);
        closing(StatusCode::PAYLOAD_TOO_LARGE, reason)
    };
    if body.size_hint().lower() > bounds.body_bytes_max as u64 {
        return too_long();
    }
    enter(Phase::Body);
    let received =
        timeout(bounds.timeout, whole(body, bounds.body_bytes_max, &state.body_memory.share())).await;
    enter(Phase::Handling);
    match received {
        Ok(Ok(whole)) => next.run(Request::from_parts(head, Body::from(whole))).await,
        Ok(Err(BodyError::TooLong)) => too_long(),
        Ok(Err(BodyError::NoRoom)) => {
            let reason = format!("{NoRoom}; retry shortly\n");
            refused(HttpRefusal::BodyMemory, closing(StatusCode::SERVICE_UNAVAILABLE, reason))
        }
        Ok(Err(BodyError::Malformed(error))) => {
            let reason = format!("the body is malformed: {error}\n");
            refused(HttpRefusal::MalformedBody, closing(StatusCode::BAD_REQUEST, reason))
        }
        Err(_) => closing(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body was not complete within the {:?} of --http-timeout\n", bounds.timeout),
        ),
    }
}

/// The whole body. While it is not complete, its bytes are a part of the memory for incomplete requests.
async fn whole(body: Body, bytes_max: usize, share: &BodyShare) -> Result<Bytes, BodyError> {
    let mut body = Limited::new(body, bytes_max);
    let mut held = share.hold(0).map_err(|NoRoom| BodyError::NoRoom)?;
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
            true => BodyError::TooLong,
            false => BodyError::Malformed(error),
        })?;
        if let Some(data) = frame.data_ref() {
            bytes.extend_from_slice(data);
            held.set(bytes.capacity()).map_err(|NoRoom| BodyError::NoRoom)?;
        }
    }
    Ok(bytes.freeze())
}

/// A refusal after which the connection ends, since the rest of the body is not read.
pub(super) fn closing(status: StatusCode, reason: impl Into<String>) -> Response {
    let headers = HeaderMap::from_iter([(CONNECTION, HeaderValue::from_static("close"))]);
    let reason = reason.into();
    let text = RefusalText(reason.as_str().into());
    (status, headers, Extension(text), reason).into_response()
}
