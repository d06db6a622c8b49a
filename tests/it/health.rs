//! `grpc.health.v1`: Check and Watch, overall and by service.

use crate::support::Server;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_client::HealthClient,
};

const OVERALL: &str = "";
const RATE_LIMIT_SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

fn of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.into() }
}

#[tokio::test]
async fn check_reports_serving_overall_and_by_service_and_not_found_otherwise() {
    let server = Server::start(&[]);
    let mut health = HealthClient::new(server.channel().await);
    for service in [OVERALL, RATE_LIMIT_SERVICE] {
        let answer = health.check(of(service)).await.unwrap();
        assert_eq!(answer.get_ref().status(), ServingStatus::Serving, "`{service}`");
    }
    let refusal = health.check(of("no.such.Service")).await.unwrap_err();
    assert_eq!(refusal.code(), Code::NotFound);
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
