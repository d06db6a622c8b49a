//! All gRPC services on one router: rate limiting, health, reflection.

use super::{
    RateLimit, pb,
    pb::service::rate_limit_service_server::{RateLimitServiceServer, SERVICE_NAME},
};
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use tonic::{
    Status,
    body::Body,
    codec::CompressionEncoding,
    service::{Routes, RoutesBuilder},
};
use tonic_health::{ServingStatus, server::HealthReporter};

/// What the router's services take.
#[derive(Clone, Copy, Debug)]
pub struct RouteSettings {
    /// Bytes of one message; a longer one is refused with OUT_OF_RANGE before it is decoded.
    pub message_bytes_max: usize,
}

/// The server's own health, overall (the empty name) and of the rate limit service.
#[derive(Clone)]
pub struct Health(HealthReporter);

impl Health {
    const NAMES: [&'static str; 2] = ["", SERVICE_NAME];

    /// Tells who asks or watches whether requests are answered.
    pub async fn set_serving(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in Self::NAMES {
            self.0.set_service_status(name, status).await;
        }
    }

    /// Ends the streams of all who watch, so that their connections can close.
    pub async fn end_watches(&mut self) {
        for name in Self::NAMES {
            self.0.clear_service_status(name).await;
        }
    }
}

/// The router, and the health that it tells: NOT_SERVING until said otherwise.
pub async fn routes(service: RateLimit, settings: RouteSettings) -> (Routes, Health) {
    let (reporter, health_service) = tonic_health::server::health_reporter();
    let health = Health(reporter);
    health.set_serving(false).await;

    let rate_limit = RateLimitServiceServer::new(service)
        .max_decoding_message_size(settings.message_bytes_max)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let mut routes = RoutesBuilder::default();
    routes
        .add_service(rate_limit)
        .add_service(health_service.max_decoding_message_size(settings.message_bytes_max));
    routes.add_service(reflection().build_v1().expect("the descriptors were compiled with this crate"));
    routes.add_service(reflection().build_v1alpha().expect("the descriptors were compiled with this crate"));
    (routes.routes().prepare(), health)
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(pb::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
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
