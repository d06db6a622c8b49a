//! `grpc.health.v1`: Check and Watch, overall and by service.

use crate::support::Server;
use tidegate::api::pb::health::{
    HealthCheckRequest, HealthCheckResponse, HealthListRequest, health_check_response::ServingStatus,
    health_client::HealthClient,
};
use tokio_stream::StreamExt;
use tonic::Code;

const OVERALL: &str = "";
/// The name that the reference server has.
const REFERENCE: &str = "ratelimit";
const RATE_LIMIT_SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

fn of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.into() }
}

#[tokio::test]
async fn check_reports_serving_overall_and_by_service_and_not_found_otherwise() {
    let server = Server::start(&[]);
    let mut health = HealthClient::new(server.channel().await);
    for service in [OVERALL, RATE_LIMIT_SERVICE, REFERENCE] {
        let answer = health.check(of(service)).await.unwrap();
        assert_eq!(answer.get_ref().status(), ServingStatus::Serving, "`{service}`");
    }
    let refusal = health.check(of("no.such.Service")).await.unwrap_err();
    assert_eq!(refusal.code(), Code::NotFound);
}

#[tokio::test]
async fn list_has_every_name_that_check_knows() {
    let server = Server::start(&[]);
    let mut health = HealthClient::new(server.channel().await);
    let statuses = health.list(HealthListRequest {}).await.unwrap().into_inner().statuses;
    let mut names: Vec<_> = statuses.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, [OVERALL, RATE_LIMIT_SERVICE, REFERENCE]);
    for (name, listed) in &statuses {
        assert_eq!(health.check(of(name)).await.unwrap().get_ref(), listed, "`{name}`");
    }
}

#[tokio::test]
async fn watching_an_unknown_service_reports_it_as_unknown_once() {
    let server = Server::start(&["--drain-delay", "200ms"]);
    let mut health = HealthClient::new(server.channel().await);
    let mut watch = health.watch(of("no.such.Service")).await.unwrap().into_inner();
    assert_eq!(next(&mut watch).await, Some(ServingStatus::ServiceUnknown));
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(next(&mut watch).await, None);
}

#[tokio::test]
async fn watch_sends_each_change_and_ends_with_the_server() {
    let server = Server::start(&["--drain-delay", "200ms"]);
    let mut health = HealthClient::new(server.channel().await);
    let mut watches = Vec::new();
    for service in [OVERALL, RATE_LIMIT_SERVICE] {
        let mut watch = health.watch(of(service)).await.unwrap().into_inner();
        assert_eq!(next(&mut watch).await, Some(ServingStatus::Serving), "`{service}`");
        watches.push(watch);
    }
    server.signal(rustix::process::Signal::TERM);
    for watch in &mut watches {
        assert_eq!(next(watch).await, Some(ServingStatus::NotServing));
        let mut last = Some(ServingStatus::NotServing);
        while let Some(status) = next(watch).await {
            last = Some(status);
        }
        assert_ne!(last, Some(ServingStatus::Serving));
    }
}

async fn next(watch: &mut tonic::Streaming<HealthCheckResponse>) -> Option<ServingStatus> {
    let message = watch.next().await?;
    message.ok().map(|answer| answer.status())
}
