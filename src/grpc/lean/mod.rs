//! The front of the gRPC port: answers `ShouldRateLimit` the lean way when it can, and hands every other request to
//! tonic's router.
//!
//! The lean way takes the common form alone: one uncompressed message that is whole and within the limits, read from
//! where the connection put it and answered in one buffer. Whatever else a request turns out to be, nothing has been
//! decided or charged by then, and the router gets the request as it came, with what has been read of its body put
//! back. So there is one place that refuses, and a caller cannot tell by which way it was answered.

mod body;
mod message;
mod read;
mod write;

pub use body::AnswerBody;

use super::{
    RateLimit,
    encode::Precision,
    rate_limit::precision,
    routes::{explain_unknown_method, refuse_other_protocols},
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header::CONTENT_TYPE};
use hyper::body::{Body, Bytes};
use read::{Read, Reread};
use std::error::Error;
use tonic::{codegen::Service, service::Routes};

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Answers every request of the port.
pub struct Front {
    rate_limit: RateLimit,
    routes: Routes,
    message_bytes_max: usize,
}

impl Front {
    /// The lean way to a service that `routes` has too, and all else that `routes` has.
    pub fn new(rate_limit: RateLimit, routes: Routes, message_bytes_max: usize) -> Self {
        Self { rate_limit, routes, message_bytes_max }
    }

    /// Answers one request.
    pub async fn answer<B>(&self, mut request: Request<B>) -> Response<AnswerBody>
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>> + Send + Unpin>
            + Send
            + Unpin
            + 'static,
    {
        if let Some(refusal) = refuse_other_protocols(&request) {
            return refusal.map(AnswerBody::routed);
        }
        let Some(precision) = asked_leanly(&request) else {
            return self.route(request.map(tonic::body::Body::new)).await;
        };
        let reread = match read::one_message(request.body_mut(), self.message_bytes_max).await {
            Read::Whole(framed) => match self.decide(read::message(&framed), precision) {
                Some(answer) => return respond(answer),
                None => Reread::whole(framed),
            },
            Read::Other(reread) => reread,
        };
        self.route(request.map(|rest| tonic::body::Body::new(reread.before(rest)))).await
    }

    /// The framed answer; none, and nothing decided, if the router has to say why not.
    fn decide(&self, message: &[u8], precision: Precision) -> Option<Bytes> {
        let request = message::request(message, self.rate_limit.limits()).ok()?;
        Some(self.rate_limit.decide(&request, |decision| write::framed(decision, precision)))
    }

    /// Boxed: what the rare way needs is not to make every request's task larger.
    fn route(
        &self,
        request: Request<tonic::body::Body>,
    ) -> impl Future<Output = Response<AnswerBody>> + Send + 'static {
        let mut routes = self.routes.clone();
        Box::pin(async move {
            let mut response = match routes.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            explain_unknown_method(&mut response);
            response.map(AnswerBody::routed)
        })
    }
}

/// How finely resets are to be told, if the request's head is one that the lean way takes.
fn asked_leanly<B>(request: &Request<B>) -> Option<Precision> {
    let headers = request.headers();
    // One that names an encoding is the router's to understand, or to refuse.
    let is_plain = headers.get("grpc-encoding").is_none_or(|encoding| encoding == "identity");
    let is_common = is_plain && request.method() == Method::POST && request.uri().path() == SHOULD_RATE_LIMIT;
    if is_common { precision(headers).ok() } else { None }
}

fn respond(answer: Bytes) -> Response<AnswerBody> {
    // The date, which hyper adds, has room too.
    let mut headers = HeaderMap::with_capacity(2);
    headers.insert(CONTENT_TYPE, const { HeaderValue::from_static("application/grpc") });
    let mut response = Response::new(AnswerBody::lean(answer));
    *response.headers_mut() = headers;
    response
}
