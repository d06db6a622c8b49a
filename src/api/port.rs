//! The front of the gRPC port: answers `ShouldRateLimit` the lean way when it can, and hands every other request to
//! tonic's router.
//!
//! The lean way takes the common form alone: one uncompressed message that is whole and within the limits, read from
//! where the connection put it and answered where the connection sends it from. Whatever else a request turns out to be,
//! nothing has been decided or charged by then, and the router gets the request as it came; so it does if its answer may
//! have to be held. So there is one place that refuses, and a caller cannot tell by which way it was answered.

use super::{
    grpc::{
        LongLivedBounds, LongLivedCalls, WholeMessages, explain_unknown_method, is_grpc, one_message,
        refuse_other_protocols,
    },
    rls::{PRECISION_HEADER, Precision, WINDOWS_HEADER, fast_path, precision_of, response},
};
use crate::{
    http2::{Fields, RequestBody, Responses, Service},
    limit,
    service::RateLimitService,
};
use http::{Request, Response};
use std::sync::Arc;
use tonic::{codegen::Service as _, service::Routes};

const SHOULD_RATE_LIMIT: &[u8] = b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What a call of the common form asks.
#[derive(Default)]
pub struct Call<'b> {
    request: limit::Request<'b>,
    precision: Precision,
}

/// Answers every request of the port.
pub struct GrpcPort {
    service: RateLimitService,
    routes: Routes,
    message_bytes_max: usize,
    long_lived: LongLivedCalls,
}

impl GrpcPort {
    /// The lean way to a service that `routes` has too, and all else that `routes` has.
    pub fn new(
        service: RateLimitService,
        routes: Routes,
        message_bytes_max: usize,
        long_lived: LongLivedBounds,
    ) -> Self {
        Self { service, routes, message_bytes_max, long_lived: LongLivedCalls::new(long_lived) }
    }
}

impl Service for GrpcPort {
    type FastPath = Precision;
    type Call<'b> = Call<'b>;
    type Body = tonic::body::Body;

    fn fast_path(&self, head: &Fields) -> Option<Precision> {
        let (mut precision, mut is_grpc_body) = (Precision::Seconds, false);
        for (name, value) in head.iter() {
            let is_common = match name {
                b":method" => value == b"POST",
                b":path" => value == SHOULD_RATE_LIMIT,
                b"content-type" => {
                    is_grpc_body = is_grpc(value);
                    is_grpc_body
                }
                // One that names an encoding is the router's to understand, or to refuse.
                b"grpc-encoding" => value == b"identity",
                _ if name == WINDOWS_HEADER.as_bytes() => false,
                _ if name == PRECISION_HEADER.as_bytes() => {
                    precision = precision_of(value)?;
                    true
                }
                _ => true,
            };
            if !is_common {
                return None;
            }
        }
        is_grpc_body.then_some(precision)
    }

    #[inline]
    fn decode<'b>(&self, precision: Precision, body: &'b [u8], asked: &mut Call<'b>) -> bool {
        let Some(message) = one_message(body, self.message_bytes_max) else { return false };
        asked.precision = precision;
        fast_path::read(message, self.service.request_limits(), &mut asked.request).is_ok()
            && self.service.decides_inline(&asked.request)
    }

    #[inline]
    fn respond(&self, calls: &[Call<'_>], responses: &mut impl Responses) {
        let requests = calls.iter().map(|call| &call.request);
        self.service.decide_batch(requests, |call, decision| {
            let Call { request, precision } = &calls[call];
            responses.push(|out| {
                if self.service.has_additions(decision) {
                    fast_path::framed_message(&response(&self.service, request, decision, *precision), out);
                } else {
                    fast_path::framed(decision, *precision, out);
                }
            });
        });
    }

    async fn route(self: Arc<Self>, request: Request<RequestBody>) -> Response<tonic::body::Body> {
        if let Some(refusal) = refuse_other_protocols(&request) {
            return refusal;
        }
        let places = match self.long_lived.start(&request) {
            Ok(places) => places,
            Err(refusal) => return refusal.into_http(),
        };
        let whole_messages = |body| tonic::body::Body::new(WholeMessages::new(body, self.message_bytes_max));
        let mut routes = self.routes.clone();
        let mut response = match routes.call(request.map(whole_messages)).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        explain_unknown_method(&mut response);
        match places {
            Some(places) => places.keep(response),
            None => response,
        }
    }
}
