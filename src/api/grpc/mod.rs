//! gRPC over HTTP/2 apart from any service: message framing, content types, `grpc-timeout`.

mod long_lived;
pub(super) mod timeout;
mod whole_messages;

pub use long_lived::LongLivedBounds;
pub(super) use long_lived::{LongLivedCalls, Places, QUOTA_STREAM};
pub(super) use whole_messages::{OfCall, WholeMessages};

use bytes::Bytes;
use http::{
    HeaderValue, Method, StatusCode,
    header::{ALLOW, CONTENT_TYPE},
};
use std::pin::Pin;
use tidegate_http2::grpc::PREFIX_BYTES;
use tonic::{Response, Status, body::Body, metadata::MetadataValue};

/// A response to come, as methods of generated services return it.
///
/// Methods with larger futures are not `#[async_trait]` but take the future from a method of their type. With the trait's bounds on
/// lifetimes, the compiler proves `Send` anew for every part, which took a tenth of the time to check this crate.
pub(super) type BoxedResponse<'f, M> = Pin<Box<dyn Future<Output = Result<Response<M>, Status>> + Send + 'f>>;

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

/// The refusal of a request that is no call: 415 for another content type, 405 for another method. Without a body if the method is HEAD
/// (RFC 9110, section 9.3.2).
pub(super) fn not_a_call<B>(request: &http::Request<B>) -> Option<http::Response<Bytes>> {
    let refusal = refusal_by_headers(request)?;
    let has_body = request.method() != Method::HEAD;
    Some(if has_body { refusal } else { refusal.map(|_| Bytes::new()) })
}

fn refusal_by_headers<B>(request: &http::Request<B>) -> Option<http::Response<Bytes>> {
    let content_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !is_grpc(content_type) {
        let sentence = "this port speaks gRPC: send content-type application/grpc over HTTP/2\n";
        return Some(plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, sentence));
    }
    if request.method() != Method::POST {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "a gRPC call is a POST\n");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Some(refusal);
    }
    None
}

/// The refusal of a call with a malformed timeout.
pub(super) fn malformed_timeout<B>(request: &http::Request<B>) -> Option<http::Response<Body>> {
    let malformed = timeout::timeout(request.headers()).err()?;
    Some(Status::invalid_argument(malformed.to_string()).into_http())
}

/// The refusal of a call whose messages may be compressed.
///
/// A kilobyte can decompress to a mebibyte, which costs hundreds of times an honest call per byte received. A bound on the ratio instead
/// would depend on end users: a header that repeats one letter would be refused. This refusal depends on the client's configuration alone.
pub(super) fn compressed_call<B>(request: &http::Request<B>) -> Option<Status> {
    let encoding = request.headers().get("grpc-encoding").filter(|encoding| *encoding != "identity")?;
    let encoding = encoding.to_str().unwrap_or_default();
    let mut refusal = Status::unimplemented(format!(
        "grpc-encoding: {encoding:.32}: compressed messages are not accepted; send them uncompressed"
    ));
    refusal.metadata_mut().insert("grpc-accept-encoding", MetadataValue::from_static("identity"));
    Some(refusal)
}

fn plain(status: StatusCode, sentence: &'static str) -> http::Response<Bytes> {
    let mut refusal = http::Response::new(Bytes::from_static(sentence.as_bytes()));
    *refusal.status_mut() = status;
    refusal.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    refusal
}

/// Whether a content type is that of gRPC with protobuf.
pub(super) fn is_grpc(content_type: &[u8]) -> bool {
    content_type
        .strip_prefix(b"application/grpc")
        .map(|rest| rest.strip_prefix(b"+proto").unwrap_or(rest))
        .is_some_and(|rest| matches!(rest.first(), None | Some(b';')))
}

/// Adds a message to the router's response for an unknown service or method; returns whether the response is that.
pub(super) fn explain_unknown_method(response: &mut http::Response<Body>, is_lease: bool) -> bool {
    const UNIMPLEMENTED: HeaderValue = HeaderValue::from_static("12");
    const LEASES: HeaderValue =
        HeaderValue::from_static("this server grants no leases; start it with --leases");
    const MESSAGE: HeaderValue = HeaderValue::from_static(
        "unknown method; reflection lists the services, the rate limit method is \
         envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    );
    let headers = response.headers_mut();
    let is_unknown = headers.get(Status::GRPC_STATUS) == Some(&UNIMPLEMENTED)
        && !headers.contains_key(Status::GRPC_MESSAGE);
    if is_unknown {
        headers.insert(Status::GRPC_MESSAGE, if is_lease { LEASES } else { MESSAGE });
    }
    is_unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// curl reports DATA in response to HEAD as a PROTOCOL_ERROR, and not the status.
    #[test]
    fn a_refusal_has_a_body_unless_the_method_is_head() {
        for (method, content_type, status) in [
            (Method::GET, "", StatusCode::UNSUPPORTED_MEDIA_TYPE),
            (Method::HEAD, "", StatusCode::UNSUPPORTED_MEDIA_TYPE),
            (Method::GET, "application/grpc", StatusCode::METHOD_NOT_ALLOWED),
            (Method::HEAD, "application/grpc", StatusCode::METHOD_NOT_ALLOWED),
        ] {
            let request = http::Request::builder().method(&method).header(CONTENT_TYPE, content_type);
            let refusal = not_a_call(&request.body(()).expect("valid")).expect("a refusal");
            assert_eq!((refusal.status(), refusal.body().is_empty()), (status, method == Method::HEAD));
        }
    }
}
