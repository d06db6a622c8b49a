//! While counters are restored, the server listens and reports that it is not ready.

use crate::support::{InProcess, limiter};
use std::sync::mpsc;
use tidegate::api::pb::health::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_client::HealthClient,
};
use tidegate::server::{ServeError, Start};
use tidegate_core::{limit::Timestamp, store::Seed};
use tidegate_snapshot::OnBadSnapshot;
use tonic::{Code, transport::Channel};

const RULES: &str = "
domain: demo
descriptors:
  - key: api_key
    rate_limit: { unit: minute, requests_per_unit: 5 }
";

async fn health(channel: Channel) -> tonic::Streaming<HealthCheckResponse> {
    let watched = HealthClient::new(channel).watch(HealthCheckRequest::default()).await;
    watched.expect("health is there").into_inner()
}

async fn status(health: &mut tonic::Streaming<HealthCheckResponse>) -> ServingStatus {
    health.message().await.expect("the stream stands").expect("a status").status()
}

#[tokio::test]
async fn a_server_is_not_ready_until_its_counters_are_restored() {
    let now = Timestamp::from_millis(1_700_000_000_000);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (go_on, may_go_on) = mpsc::channel();
    let data = folder.path().to_owned();
    let restore = move || {
        may_go_on.recv().expect("the test lets it go on");
        let seed = Seed::from_bytes([9; 16]);
        let started =
            tidegate_snapshot::start(&data, OnBadSnapshot::Refuse, seed, |_| limiter(RULES), now, |_| {});
        let started = started.expect("an empty directory");
        Ok::<_, ServeError>((started.limiter, started.writer))
    };
    let server = InProcess::start_with(Start::Restored(Box::new(restore)), now);
    let mut health = health(server.channel().await).await;
    assert_eq!(status(&mut health).await, ServingStatus::NotServing);
    let mut client = server.client().await;
    let refusal = client.hit("demo", &[("api_key", "a")]).await.expect_err("nothing is decided yet");
    assert_eq!(refusal.code(), Code::Unavailable);
    assert_eq!(refusal.message(), "the counters are being restored; retry shortly");

    go_on.send(()).expect("the restore waits");
    assert_eq!(status(&mut health).await, ServingStatus::Serving);
    let answer = client.hit("demo", &[("api_key", "a")]).await.expect("restored");
    assert_eq!(answer.statuses[0].limit_remaining, 4, "a refused request has charged nothing");
}

#[tokio::test]
async fn a_server_stopped_while_restoring_stops() {
    let (_never, may_go_on) = mpsc::channel::<()>();
    let restore = move || {
        _ = may_go_on.recv();
        Err(ServeError::Start { what: "an abandoned restore", source: std::io::ErrorKind::Other.into() })
    };
    let now = Timestamp::from_millis(1_700_000_000_000);
    // Dropping the server waits for its end, and asserts that it stopped without an error.
    drop(InProcess::start_with(Start::Restored(Box::new(restore)), now));
}
