//! All gRPC services on one router: rate limiting, quotas, health, reflection.

use super::{
    control::{ControlApi, GrpcControl},
    health::Health,
    leases::LeasesApi,
    pb,
    pb::{
        control::control_server::ControlServer, health::health_server::HealthServer, kuadrant_v1,
        leases::leases_server::LeasesServer,
        quota::rate_limit_quota_service_server::RateLimitQuotaServiceServer,
        service::rate_limit_service_server::RateLimitServiceServer,
    },
    rlqs::{self, QuotaService},
    rls::{KuadrantService, TonicService},
};
use std::time::Duration;
use tidegate_service::RateLimitService;
use tonic::service::{Routes, RoutesBuilder};

/// Bounds of the router's services.
#[derive(Clone, Copy, Debug)]
pub struct RouteSettings {
    /// Bytes of one message; a longer one is refused with OUT_OF_RANGE before it is decoded.
    pub message_bytes_max: usize,
    /// Time from the start of a stream of quotas to its first message.
    pub first_message_within: Duration,
}

/// Builds the router and its health, with the control API and leases if enabled. Health is NOT_SERVING until it is set.
pub fn routes(
    service: RateLimitService,
    control: Option<&ControlApi>,
    leases: Option<&LeasesApi>,
    settings: RouteSettings,
) -> (Routes, Health) {
    let health = Health::default();
    let kuadrant = KuadrantService(service.clone());
    let kuadrant = kuadrant_v1::rate_limit_service_server::RateLimitServiceServer::new(kuadrant)
        .max_decoding_message_size(settings.message_bytes_max);
    let quotas =
        RateLimitQuotaServiceServer::new(QuotaService::new(service.clone(), settings.first_message_within))
            .max_decoding_message_size(settings.message_bytes_max.max(rlqs::REPORT_BYTES_MAX));
    let rate_limit = RateLimitServiceServer::new(TonicService(service))
        .max_decoding_message_size(settings.message_bytes_max);
    let mut routes = RoutesBuilder::default();
    routes
        .add_service(rate_limit)
        .add_service(kuadrant)
        .add_service(quotas)
        .add_service(HealthServer::new(health.clone()).max_decoding_message_size(settings.message_bytes_max));
    if let Some(control) = control {
        let control = ControlServer::new(GrpcControl(control.clone()));
        routes.add_service(control.max_decoding_message_size(settings.message_bytes_max));
    }
    if let Some(leases) = leases {
        routes.add_service(
            LeasesServer::new(leases.clone()).max_decoding_message_size(settings.message_bytes_max),
        );
    }
    let reflection = || reflection(control.is_some(), leases.is_some());
    let reflection_v1 = reflection().build_v1().expect("the descriptors were compiled with this crate");
    let reflection_v1alpha =
        reflection().build_v1alpha().expect("the descriptors were compiled with this crate");
    routes
        .add_service(reflection_v1.max_decoding_message_size(settings.message_bytes_max))
        .add_service(reflection_v1alpha.max_decoding_message_size(settings.message_bytes_max));
    (routes.routes().prepare(), health)
}

fn reflection(with_control: bool, with_leases: bool) -> tonic_reflection::server::Builder<'static> {
    let optional = [(with_control, pb::CONTROL_DESCRIPTORS), (with_leases, pb::LEASES_DESCRIPTORS)];
    let served = optional.into_iter().filter(|(is_served, _)| *is_served).map(|(_, descriptors)| descriptors);
    [pb::DESCRIPTORS].into_iter().chain(served).fold(
        tonic_reflection::server::Builder::configure(),
        tonic_reflection::server::Builder::register_encoded_file_descriptor_set,
    )
}
