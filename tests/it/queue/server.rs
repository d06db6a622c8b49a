//! A real server with queues: clients that wait, cancel or disconnect, and a drain.

use crate::support::{Client, PATIENCE, Server, descriptor, eventually, rules_file};
use std::time::{Duration, Instant};
use tidegate::api::pb::{common::RateLimitDescriptor, service::rate_limit_response::Code};
use tonic::Request;

/// Ten requests a second, one by one.
const TEN_A_SECOND: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 10, algorithm: leaky_bucket, burst: 1, max_wait: 10s}
";

/// One hit in five minutes: no test waits for a release.
const RARELY: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: {per: 5m, requests_per_unit: 1, algorithm: leaky_bucket, burst: 1, max_wait: 1h}
";

/// The time until one more hit fits, in seconds, by a peek.
async fn seconds_until_room(client: &mut Client) -> i64 {
    let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("user", "x")]) };
    let answer = client.should_rate_limit("d", vec![peek]).await.expect("an answer");
    answer.statuses[0].duration_until_reset.as_ref().map_or(0, |wait| wait.seconds)
}

/// Peeks until that time is within five minutes of `minutes`.
async fn wait_for_minutes_until_room(client: &mut Client, minutes: i64) {
    eventually(&format!("room in {minutes} minutes or little less"), async || {
        let seconds = seconds_until_room(client).await;
        if (minutes * 60 - 300..=minutes * 60).contains(&seconds) { Ok(()) } else { Err(seconds) }
    })
    .await;
}

/// A call that is queued.
fn queued_call(client: &Client) -> tokio::task::JoinHandle<Code> {
    let mut client = Client(client.0.clone());
    tokio::spawn(async move { client.hit("d", &[("user", "x")]).await.expect("an answer").overall_code() })
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "times how long calls are held")]
async fn concurrent_calls_are_answered_one_by_one() {
    let rules = rules_file(TEN_A_SECOND);
    let server = Server::with_rules(rules.path(), &[]);
    let client = server.client().await;
    let started = Instant::now();
    let mut calls: Vec<_> = (0..4).map(|_| queued_call(&client)).collect();
    for call in &mut calls {
        assert_eq!(call.await.unwrap(), Code::Ok);
    }
    assert!(started.elapsed() >= Duration::from_millis(300), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_call_with_a_deadline_before_its_release_is_answered_in_time() {
    let rules = rules_file(RARELY);
    let server = Server::with_rules(rules.path(), &[]);
    let mut client = server.client().await;
    client.hit("d", &[("user", "x")]).await.unwrap();
    let message = tidegate::api::pb::service::RateLimitRequest {
        domain: "d".into(),
        descriptors: vec![descriptor(&[("user", "x")])],
        hits_addend: 0,
    };
    let mut message = Request::new(message);
    message.set_timeout(PATIENCE);
    let answer = client.0.should_rate_limit(message).await.expect("an answer, and no missed deadline");
    assert_eq!(answer.get_ref().overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn a_call_that_is_cancelled_or_disconnected_gives_its_hits_back() {
    let rules = rules_file(RARELY);
    let server = Server::with_rules(rules.path(), &[]);
    let mut client = server.client().await;
    client.hit("d", &[("user", "x")]).await.unwrap();
    wait_for_minutes_until_room(&mut client, 5).await;

    let cancelled = queued_call(&client);
    wait_for_minutes_until_room(&mut client, 10).await;
    let goes_away = server.client().await;
    let gone = queued_call(&goes_away);
    wait_for_minutes_until_room(&mut client, 15).await;

    cancelled.abort();
    wait_for_minutes_until_room(&mut client, 10).await;
    gone.abort();
    drop(goes_away);
    wait_for_minutes_until_room(&mut client, 5).await;
}

#[tokio::test]
async fn calls_beyond_the_bound_on_queued_requests_are_denied() {
    let rules = rules_file(RARELY);
    let server = Server::with_rules(rules.path(), &["--max-queued", "1"]);
    let mut client = server.client().await;
    client.hit("d", &[("user", "x")]).await.unwrap();
    let waits = queued_call(&client);
    wait_for_minutes_until_room(&mut client, 10).await;
    let answer = client.hit("d", &[("user", "x")]).await.unwrap();
    assert_eq!(answer.overall_code(), Code::OverLimit);
    waits.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_answers_requests_released_in_time_and_denies_the_others_at_once() {
    let rules = rules_file(
        &(TEN_A_SECOND.to_owned() + &RARELY[RARELY.find("  - key").unwrap()..].replace("user", "rare")),
    );
    let mut server = Server::with_rules(rules.path(), &["--drain-timeout", "20s"]);
    let client = server.client().await;
    let call = |key: &'static str| {
        let mut client = Client(client.0.clone());
        tokio::spawn(async move { client.hit("d", &[(key, "x")]).await.unwrap().overall_code() })
    };
    assert_eq!(call("rare").await.unwrap(), Code::Ok);
    let soon: Vec<_> = (0..8).map(|_| call("user")).collect();
    let late = call("rare");
    // Requests of one connection are read in order: when this one is answered, the others are queued.
    assert_eq!(call("other").await.unwrap(), Code::Ok);
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(late.await.unwrap(), Code::OverLimit);
    for call in soon {
        assert_eq!(call.await.unwrap(), Code::Ok);
    }
    drop(client);
    assert!(server.wait().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_stop_keeps_no_hits_of_queued_requests() {
    let folder = tempfile::tempdir().unwrap();
    let rules = rules_file(RARELY);
    let data = ["--data", folder.path().to_str().unwrap()];
    let server = Server::with_rules(rules.path(), &data);
    let mut client = server.client().await;
    client.hit("d", &[("user", "x")]).await.unwrap();
    let waits = queued_call(&client);
    wait_for_minutes_until_room(&mut client, 10).await;
    drop(client);
    assert!(server.terminate().success());
    assert_eq!(waits.await.unwrap(), Code::OverLimit);

    let server = Server::with_rules(rules.path(), &data);
    wait_for_minutes_until_room(&mut server.client().await, 5).await;
}
