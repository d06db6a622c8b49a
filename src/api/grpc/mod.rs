//! gRPC over HTTP/2 apart from any service: message framing, content types, `grpc-timeout`.

mod long_lived;
pub(super) mod timeout;
mod whole_messages;

pub use long_lived::LongLivedBounds;
pub(super) use long_lived::LongLivedCalls;
pub(super) use whole_messages::WholeMessages;

use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use tonic::{Status, body::Body};

/// Length of the prefix of a message: a compression flag and the message length in four bytes.
pub(crate) const PREFIX_BYTES: usize = 5;

/// The only message of a body, if it is complete and not compressed.
#[inline]
pub(super) fn one_message(body: &[u8], bytes_max: usize) -> Option<&[u8]> {
    match body.split_first_chunk::<PREFIX_BYTES>() {
        Some(([0, length @ ..], message))
            if message.len() <= bytes_max && u32::from_be_bytes(*length) as usize == message.len() =>
        {
            Some(message)
        }
        _ => None,
    }
}

/// What the protocol asks for a request that is not gRPC: 415, before anything is decoded. None for one that is.
pub(super) fn refuse_other_protocols<B>(request: &http::Request<B>) -> Option<http::Response<Body>> {
    let content_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if is_grpc(content_type) {
        return None;
    }
    let mut refusal = http::Response::new(Body::new(String::from(
        "this port speaks gRPC: send content-type application/grpc over HTTP/2\n",
    )));
    *refusal.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    refusal.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Some(refusal)
}

/// Whether a content type is that of gRPC with protobuf.
pub(super) fn is_grpc(content_type: &[u8]) -> bool {
    content_type
        .strip_prefix(b"application/grpc")
        .map(|rest| rest.strip_prefix(b"+proto").unwrap_or(rest))
        .is_some_and(|rest| matches!(rest.first(), None | Some(b';')))
}

/// Adds a sentence to the bare refusal that the router has for a service or a method that is not there.
pub(super) fn explain_unknown_method(response: &mut http::Response<Body>) {
    const UNIMPLEMENTED: HeaderValue = HeaderValue::from_static("12");
    const SENTENCE: HeaderValue = HeaderValue::from_static(
        "there is no such method here; reflection lists the services, \
         envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit decides",
    );
    let headers = response.headers_mut();
    if headers.get(Status::GRPC_STATUS) == Some(&UNIMPLEMENTED) && !headers.contains_key(Status::GRPC_MESSAGE)
    {
        headers.insert(Status::GRPC_MESSAGE, SENTENCE);
    }
}
