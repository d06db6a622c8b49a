//! The server as a process: decisions over TCP and Unix sockets, signals, drains, and errors at the start.

use crate::support::{PATIENCE, Server, descriptor, eventually, rules_file};
use std::{
    process::Command,
    time::{Duration, Instant},
};
use tidegate::api::pb::health::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tidegate::api::pb::service::rate_limit_response::{Code, rate_limit::Unit};
use tokio_stream::StreamExt;

const RULES: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 3, algorithm: fixed_window }
";

#[tokio::test]
async fn the_demo_admits_five_and_denies_the_sixth() {
    let server = Server::start(&[]);
    let mut client = server.client().await;
    let expected = [Some(4), Some(3), Some(2), Some(1), Some(0), None];
    // Tries another user again if the window moved between two calls.
    let mut users = 0;
    let reset = eventually("five are admitted, and the sixth is denied", async || {
        users += 1;
        let (user, mut left, mut reset) = (users.to_string(), Vec::new(), None);
        for _ in expected {
            let answer = client.hit("demo", &[("api_key", &user)]).await.unwrap();
            left.push((answer.overall_code() == Code::Ok).then_some(answer.statuses[0].limit_remaining));
            reset = answer.statuses[0].duration_until_reset;
        }
        if left == expected { Ok(reset.expect("a reset")) } else { Err(left) }
    })
    .await;
    assert!((1..=10).contains(&reset.seconds) && reset.nanos == 0, "{reset:?}");
}

#[tokio::test]
async fn a_status_reports_the_limit_and_the_remaining_hits() {
    let rules = rules_file(RULES);
    let server = Server::with_rules(rules.path(), &["--threads", "1"]);
    let mut client = server.client().await;
    let answer = client
        .should_rate_limit("edge", vec![descriptor(&[("user", "a")]), descriptor(&[("stranger", "a")])])
        .await
        .unwrap();
    let limit = answer.statuses[0].current_limit.as_ref().unwrap();
    assert_eq!((limit.name.as_str(), limit.requests_per_unit, limit.unit()), ("per-user", 3, Unit::Hour));
    assert_eq!(answer.statuses[0].limit_remaining, 2);
    assert_eq!(answer.statuses[1].current_limit, None);
}

#[tokio::test]
async fn connections_to_different_workers_share_the_counters() {
    let rules = rules_file(RULES);
    let server = Server::with_rules(rules.path(), &["--threads", "4"]);
    let mut admitted = 0;
    for _ in 0..8 {
        let answer = server.client().await.hit("edge", &[("user", "a")]).await.unwrap();
        admitted += usize::from(answer.overall_code() == Code::Ok);
    }
    assert_eq!(admitted, 3);
}

#[tokio::test]
async fn concurrent_calls_of_one_connection_are_decided_in_order() {
    let rules = rules_file(&RULES.replace("requests_per_unit: 3", "requests_per_unit: 20"));
    let server = Server::with_rules(rules.path(), &["--threads", "1"]);
    let client = server.client().await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let mut client = client.clone();
        // Every other request has an additional descriptor that nothing limits.
        let mut descriptors = vec![descriptor(&[("user", "a")])];
        descriptors.extend((calls.len() % 2 == 0).then(|| descriptor(&[("stranger", "a")])));
        calls.spawn(async move { client.should_rate_limit("edge", descriptors).await.unwrap() });
    }
    let answers = calls.join_all().await;
    let admitted = answers.iter().filter(|answer| answer.overall_code() == Code::Ok);
    let mut left: Vec<_> = admitted.map(|answer| answer.statuses[0].limit_remaining).collect();
    left.sort_unstable();
    assert_eq!(left, (0..20).collect::<Vec<_>>(), "each admission leaves one less than that before");
}

#[test]
fn a_unix_socket_is_served_and_removed_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("tidegate.sock");
    let address = format!("unix:{}", socket.display());
    let server = Server::start_on(&address, &[]);
    let called = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["call", "demo", "api_key=alice", "--json", "--addr", &address])
        .output()
        .unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&called.stdout).unwrap();
    assert_eq!(answer["statuses"][0]["remaining"], 4, "{answer}");
    assert!(server.terminate().success());
    assert!(!socket.exists());
}

#[test]
fn a_socket_left_by_a_killed_server_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("tidegate.sock");
    let address = format!("unix:{}", socket.display());
    drop(Server::start_on(&address, &[]));
    assert!(socket.exists(), "a killed server cannot remove its socket");
    assert!(Server::start_on(&address, &[]).terminate().success());
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "times a drain, not a decision")]
async fn a_drain_updates_health_finishes_requests_and_exits_with_zero() {
    let server = Server::start(&["--drain-delay", "2s", "--drain-timeout", "60s"]);
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", server.address()))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut health = HealthClient::new(channel);
    let mut watch = health.watch(HealthCheckRequest { service: String::new() }).await.unwrap().into_inner();
    assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::Serving);

    server.signal(rustix::process::Signal::TERM);
    assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    // The server still answers requests, on old connections and on new ones.
    let answer = server.client().await.hit("demo", &[("api_key", "late")]).await.unwrap();
    assert_eq!(answer.overall_code(), Code::Ok);
    // The watch ends by itself: it does not keep the connection open.
    let end = tokio::time::timeout(Duration::from_secs(10), async { while watch.next().await.is_some() {} });
    end.await.expect("the watch ends");
    // The client's runtime must keep running: it acknowledges the last PING of the connection.
    let mut server = server;
    let started = Instant::now();
    let status = tokio::task::spawn_blocking(move || server.wait()).await.unwrap();
    assert!(status.success());
    assert!(started.elapsed() < PATIENCE, "an idle connection delayed the drain");
}

#[test]
fn an_interrupt_drains_too() {
    let mut server = Server::start(&[]);
    server.signal(rustix::process::Signal::INT);
    assert!(server.wait().success());
}

/// SIGHUP used to end the process without a last snapshot.
#[tokio::test]
async fn sighup_without_rule_files_is_ignored_with_a_log_line() {
    let server = Server::start(&[]);
    server.signal(rustix::process::Signal::HUP);
    server.logged("SIGHUP ignored");
    let answer = server.client().await.hit("demo", &[("api_key", "a")]).await.unwrap();
    assert_eq!(answer.overall_code(), Code::Ok);
    let status = tokio::task::spawn_blocking(move || server.terminate()).await.unwrap();
    assert!(status.success());
}

#[test]
fn a_second_signal_ends_a_drain_at_once() {
    for (second, code) in [(rustix::process::Signal::INT, 130), (rustix::process::Signal::TERM, 143)] {
        let mut server = Server::start(&["--drain-delay", "10m"]);
        server.signal(rustix::process::Signal::INT);
        server.logged("draining");
        assert_eq!(server.signal_until_it_ends(second).code(), Some(code));
    }
}

/// A supervisor may signal the process and then its group: the last snapshot used to be skipped.
#[tokio::test]
async fn two_signals_at_once_are_one_stop_with_a_last_snapshot() {
    let data = tempfile::tempdir().expect("a folder");
    // The hit must not expire before the second start.
    let rules = rules_file(&RULES.replace("unit: hour", "unit: year"));
    let args = ["--data", data.path().to_str().expect("UTF-8"), "--snapshot-interval", "1h"];
    let server = Server::with_rules(rules.path(), &args);
    server.client().await.hit("edge", &[("user", "a")]).await.expect("a response");
    server.signal(rustix::process::Signal::TERM);
    server.signal(rustix::process::Signal::INT);
    let mut server = server;
    let status = tokio::task::spawn_blocking(move || server.wait()).await.expect("no panic");
    assert!(status.success(), "{status}");
    let again = Server::with_rules(rules.path(), &args);
    let answer = again.client().await.hit("edge", &[("user", "a")]).await.expect("a response");
    assert_eq!(answer.statuses[0].limit_remaining, 1, "the hit before the stop is counted");
}

#[test]
fn a_second_server_on_the_same_port_fails_with_a_remedy() {
    let server = Server::start(&[]);
    let second = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--listen", server.address()])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr.contains("choose another with --listen"), "{stderr}");
}

#[test]
fn bad_rules_stop_the_start_with_every_error() {
    let rules =
        rules_file("domain: edge\ndescriptors:\n  - key: a\n    rate_limit: { unit: eon }\n  - kee: b\n");
    let server = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--listen", "127.0.0.1:0", "--rules"])
        .arg(rules.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&server.stderr);
    assert_eq!(server.status.code(), Some(1));
    assert!(stderr.contains(":4:25:") && stderr.contains(":5:5:"), "{stderr}");
}

#[test]
fn sigusr1_changes_the_log_level_and_back() {
    let server = Server::start(&[]);
    for level in ["tidegate=debug,info", "info"] {
        server.signal(rustix::process::Signal::USR1);
        server.logged(&format!("log level changed to {level}"));
    }
}

/// A stop used to take 15 s: the last metrics, then the last spans, each until a timeout.
#[test]
#[expect(clippy::disallowed_methods, reason = "bounds how long a real server takes to stop")]
fn a_collector_that_never_responds_delays_a_stop_by_the_drain_timeout_at_most() {
    let collector = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", collector.local_addr().expect("an address"));
    let rules = rules_file(RULES);
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint), ("OTEL_TRACES_SAMPLER", "always_on")];
    let server = Server::with_variables(rules.path(), &["--drain-timeout", "1s"], &variables);
    let began = Instant::now();
    assert!(server.terminate().success());
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
}
