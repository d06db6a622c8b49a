//! All gRPC services on one router: rate limiting, health, reflection.

use super::{
    pb,
    pb::service::rate_limit_service_server::{RateLimitServiceServer, SERVICE_NAME},
    rls::TonicService,
};
use crate::service::RateLimitService;
use tonic::{
    codec::CompressionEncoding,
    service::{Routes, RoutesBuilder},
};
use tonic_health::{ServingStatus, server::HealthReporter};

/// Bounds of the router's services.
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

    /// Reports whether requests are decided, to checks and watches.
    pub async fn set_serving(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in Self::NAMES {
            self.0.set_service_status(name, status).await;
        }
    }

    /// Ends the streams of all watches, so that their connections can close.
    pub async fn end_watches(&mut self) {
        for name in Self::NAMES {
            self.0.clear_service_status(name).await;
        }
    }
}

/// The router, and the health that it reports: NOT_SERVING until it is set.
pub async fn routes(service: RateLimitService, settings: RouteSettings) -> (Routes, Health) {
    let (reporter, health_service) = tonic_health::server::health_reporter();
    let health = Health(reporter);
    health.set_serving(false).await;

    let rate_limit = RateLimitServiceServer::new(TonicService(service))
        .max_decoding_message_size(settings.message_bytes_max)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let mut routes = RoutesBuilder::default();
    routes
        .add_service(rate_limit)
        .add_service(health_service.max_decoding_message_size(settings.message_bytes_max));
    let reflection_v1 = reflection().build_v1().expect("the descriptors were compiled with this crate");
    let reflection_v1alpha =
        reflection().build_v1alpha().expect("the descriptors were compiled with this crate");
    routes
        .add_service(reflection_v1.max_decoding_message_size(settings.message_bytes_max))
        .add_service(reflection_v1alpha.max_decoding_message_size(settings.message_bytes_max));
    (routes.routes().prepare(), health)
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(pb::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}
