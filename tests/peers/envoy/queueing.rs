//! A real Envoy whose requests are held: it waits as long as its filter's timeout says, and tells Tidegate how long that is.

use crate::{
    envoy_process::Envoy,
    support::{Server, http1, rules_file},
};
use http::Request;
use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

/// The listener of the config that lets requests through when there is no answer in time.
const FAIL_OPEN: u16 = 10000;

/// Two a second for each route, one by one.
const TWO_A_SECOND: &str = "
domain: edge
descriptors:
  - key: route
    rate_limit: {unit: second, requests_per_unit: 2, algorithm: leaky_bucket, burst: 1, max_wait: 3s}
";

/// The HTTP statuses of three requests that come together, sorted, and how long all of them took.
#[expect(clippy::disallowed_methods, reason = "times how long requests are held")]
async fn three_together(timeout: &str) -> (Vec<u16>, Duration) {
    let rules = rules_file(TWO_A_SECOND);
    let server = Server::with_rules(rules.path(), &[]);
    let config = include_str!("../../../deploy/envoy/http.yaml");
    let envoy = Envoy::start_with(&config.replace("timeout: 0.25s", timeout), server.address(), &[]).await;
    let port = envoy.port(FAIL_OPEN);
    let started = Instant::now();
    let ask = || async move {
        let answer = http1::fetch(Ipv4Addr::LOCALHOST, port, Request::get("/search")).await;
        answer.expect("Envoy answers").status().as_u16()
    };
    let (one, two, three) = tokio::join!(ask(), ask(), ask());
    let mut statuses = vec![one, two, three];
    statuses.sort_unstable();
    (statuses, started.elapsed())
}

async fn requests_are_held_as_long_as_envoy_waits() {
    let (statuses, took) = three_together("timeout: 5s").await;
    assert_eq!(statuses, [200, 200, 200]);
    assert!(took >= Duration::from_secs(1), "{took:?}");
}

/// It would let them through if no answer came in time.
async fn requests_whose_turn_envoy_would_not_wait_for_are_denied_and_not_let_through() {
    let (statuses, _) = three_together("timeout: 0.25s").await;
    assert_eq!(statuses, [200, 429, 429]);
}

crate::tests_with! { ENVOY:
    requests_are_held_as_long_as_envoy_waits,
    requests_whose_turn_envoy_would_not_wait_for_are_denied_and_not_let_through,
}
