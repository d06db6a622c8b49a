//! Queued requests of a real Envoy: it waits up to its filter's timeout, and sends that timeout as the deadline of the call.

use crate::{
    envoy_process::Envoy,
    support::{Server, http1, rules_file},
};
use http::Request;
use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

/// The listener of the config that fails open when there is no response in time.
const FAIL_OPEN: u16 = 10000;

/// Two requests a second for each route, one by one.
const TWO_A_SECOND: &str = "
domain: edge
descriptors:
  - key: route
    rate_limit: {unit: second, requests_per_unit: 2, algorithm: leaky_bucket, burst: 1, max_wait: 3s}
";

/// Sends three requests at once. Returns their HTTP statuses, sorted, and the time until the last response.
#[expect(clippy::disallowed_methods, reason = "times how long requests are held")]
async fn three_at_once(timeout: &str) -> (Vec<u16>, Duration) {
    let rules = rules_file(TWO_A_SECOND);
    let server = Server::with_rules(rules.path(), &[]);
    let config = include_str!("../../../deploy/envoy/http.yaml");
    let envoy = Envoy::start_with(&config.replace("timeout: 0.25s", timeout), server.address(), &[]).await;
    let port = envoy.port(FAIL_OPEN);
    let started = Instant::now();
    let send = || async move {
        let response = http1::fetch(Ipv4Addr::LOCALHOST, port, Request::get("/search")).await;
        response.expect("Envoy responses").status().as_u16()
    };
    let (one, two, three) = tokio::join!(send(), send(), send());
    let mut statuses = vec![one, two, three];
    statuses.sort_unstable();
    (statuses, started.elapsed())
}

async fn requests_are_queued_within_envoys_timeout() {
    let (statuses, took) = three_at_once("timeout: 5s").await;
    assert_eq!(statuses, [200, 200, 200]);
    assert!(took >= Duration::from_secs(1), "{took:?}");
}

/// Without a response in time, Envoy would admit them.
async fn requests_released_after_envoys_timeout_are_denied_at_once() {
    let (statuses, _) = three_at_once("timeout: 0.25s").await;
    assert_eq!(statuses, [200, 429, 429]);
}

crate::tests_with! { ENVOY:
    requests_are_queued_within_envoys_timeout,
    requests_released_after_envoys_timeout_are_denied_at_once,
}
