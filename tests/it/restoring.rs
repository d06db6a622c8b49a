//! While counters are restored, the server listens and reports that it is not ready.

use crate::support::{InProcess, eventually, limiter};
use std::{fs, path::Path, sync::mpsc};
use tidegate::api::pb::{
    health::{
        HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
        health_client::HealthClient,
    },
    service::rate_limit_response::Code as Overall,
};
use tidegate::server::{ServeError, Start};
use tidegate_core::{
    clock::ManualClock,
    limit::{self, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    store::Seed,
};
use tidegate_snapshot::{OnBadSnapshot, Writer};
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

const BANNED: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { unit: second, requests_per_unit: 1, ban: { after: 1, within: 1m, for: 1h } } }
";

fn started(data: &Path, rules: &str, now: Timestamp) -> (Limiter, Writer) {
    let (on_bad, seed) = (OnBadSnapshot::Refuse, Seed::from_bytes([4; 16]));
    let started = tidegate_snapshot::start(data, on_bad, seed, |_| limiter(rules), now, |_| {});
    let started = started.expect("a snapshot or an empty directory");
    (started.limiter, started.writer)
}

fn decide(limiter: &Limiter, now: Timestamp) -> limit::Code {
    let mut request = Request::new("d");
    let entries = [Entry { key: "user", value: "ann" }].into_iter().collect();
    request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
    limiter.pin().decide(&request, now).code
}

/// The start has no rules yet: all bans were over.
#[tokio::test]
async fn bans_outlive_a_start_that_awaits_its_rules_until_rules_do_not_have_them() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (data, rules) = (folder.path().join("data"), folder.path().join("rules.yaml"));
    let second = |after: u64| Timestamp::from_millis(1_700_000_000_000 + after * 1_000);
    let (before, mut writer) = started(&data, BANNED, second(0));
    assert_eq!([0, 0].map(|after| decide(&before, second(after))), [limit::Code::Ok, limit::Code::OverLimit]);
    let (table, clock) = (before.rules(), ManualClock::new(second(0)));
    writer.pass(before.store(), table.limits(), &clock).expect("it is written");
    drop(writer);

    let without = BANNED.replace(", ban: { after: 1, within: 1m, for: 1h }", "");
    for (after, text, expected) in [(10, BANNED, Overall::OverLimit), (20, &without, Overall::Ok)] {
        fs::write(&rules, text).expect("it is written");
        let (now, directory) = (second(after), data.clone());
        let restore = move || Ok(started(&directory, "domain: other", now));
        let server = InProcess::awaiting_rules(Start::Restored(Box::new(restore)), rules.clone(), now);
        let mut client = server.client().await;
        let decided =
            eventually("the rules are in force", async || client.hit("d", &[("user", "ann")]).await);
        assert_eq!(decided.await.overall_code(), expected, "{text}");
    }
    let (again, _) = started(&data, BANNED, second(30));
    assert_eq!(decide(&again, second(30)), limit::Code::Ok, "the ban is over");
}
