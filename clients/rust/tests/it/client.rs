//! Concurrency, waiting, restarts, errors of the caller.

use crate::servers::{misbehaving, serve, serve_on};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tidegate_client::{Builder, Descriptor, Error, OnFailure, Reason, Tidegate, Unit};
use tokio::time::sleep;

const HUNDRED: &str =
    "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}";
const FAST: &str = "{domain: d, descriptors: [{key: user, rate_limit: {per: 200ms, requests_per_unit: 2, algorithm: token_bucket}}]}";

fn client(address: &str) -> Builder {
    Tidegate::builder(address).domain("d").timeout(Duration::from_secs(10))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tasks_admit_exactly_the_limit() {
    let server = serve(HUNDRED, &[]);
    let client = client(&server.address).build().expect("a client");
    let tasks = (0..1000).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { client.limit([("user", "a")]).await.expect("a decision") })
    });
    let mut admitted = 0;
    for task in tasks.collect::<Vec<_>>() {
        let decision = task.await.expect("it ends");
        assert!(matches!(decision.reason, Reason::Decided | Reason::DeniedLocally), "{decision:?}");
        admitted += usize::from(decision.allowed);
    }
    assert_eq!(admitted, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_is_answered_while_the_server_is_restarted() {
    let server = serve(HUNDRED, &[]);
    let address = server.address.clone();
    let client = client(&address).on_failure(OnFailure::Closed).local_denials(0);
    let client = client.timeout(Duration::from_millis(500)).breaker(5, Duration::from_millis(100));
    let client = client.build().expect("a client");
    let until = async |reason| {
        let deadline = Instant::now() + Duration::from_secs(15);
        loop {
            let decision = client.limit([("user", "a")]).await.expect("a decision");
            assert_eq!(decision.error.is_none(), decision.reason == Reason::Decided, "{decision:?}");
            if decision.reason == reason {
                return;
            }
            assert!(Instant::now() < deadline, "no decision is {reason:?}");
            sleep(Duration::from_millis(1)).await;
        }
    };
    until(Reason::Decided).await;
    drop(server);
    until(Reason::FailedClosed).await;
    let _server = serve_on(&address, HUNDRED, &[]);
    until(Reason::Decided).await;
}

#[tokio::test]
async fn waiting_ends_when_the_hits_fit_or_at_once_if_they_cannot() {
    let server = serve(FAST, &[]);
    let client = client(&server.address).build().expect("a client");
    let request = |user, cost| Descriptor::new([("user", user)]).cost(cost);
    let started = Instant::now();
    assert!(client.limit(request("a", 2)).await.expect("a decision").allowed);
    let wait = async |user, cost, millis| {
        let waited = client.wait_until_ready(request(user, cost), Duration::from_millis(millis)).await;
        waited.expect("a decision").allowed
    };
    assert!(wait("a", 2, 5_000).await);
    assert!(started.elapsed() >= Duration::from_millis(200));
    assert!(!wait("a", 2, 50).await);
    assert!(!wait("b", 3, 5_000).await);
}

#[tokio::test]
async fn a_unix_socket_and_several_addresses() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = format!("unix:{}/t.sock", folder.path().display());
    let _server = serve_on(&path, HUNDRED, &[]);
    let decision = client(&path).build().expect("a client").limit([("user", "a")]).await.expect("a decision");
    assert_eq!((decision.remaining, decision.error), (Some(99), None));

    let (one, other) = (serve(HUNDRED, &[]), serve(HUNDRED, &[]));
    let client = client(&one.address).address(&other.address).local_denials(0).build().expect("a client");
    let (mut left, mut calls) = (std::collections::HashSet::new(), 0);
    // The second connection may take a moment.
    let deadline = Instant::now() + Duration::from_secs(5);
    while left.len() == calls && Instant::now() < deadline {
        calls += 1;
        left.insert(client.limit([("user", "a")]).await.expect("a decision").remaining);
    }
    assert!(left.len() < calls, "one server counted all calls");
}

#[tokio::test]
async fn errors_of_the_caller_are_returned_and_never_fail_open() {
    let server = serve(HUNDRED, &[]);
    let client = client(&server.address).build().expect("a client");
    let long = client.limit([("user", "x".repeat(2_000_000))]).await;
    assert!(matches!(long, Err(Error::Refused { code: "OUT_OF_RANGE", .. })), "{long:?}");
    for request in
        [vec![], vec![Descriptor::default()], vec![Descriptor::new([("a", "b")]).limit(1, Unit::Week)]]
    {
        assert!(matches!(client.limit(request).await, Err(Error::Request(_))));
    }
    let without_domain = Tidegate::builder(&server.address).build().expect("a client");
    assert!(matches!(without_domain.limit([("user", "a")]).await, Err(Error::Request(_))));
}

#[tokio::test]
async fn a_dropped_call_is_no_failure_and_observers_see_decisions() {
    let (_server, address) = misbehaving("slow=1s");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observed = Arc::clone(&seen);
    let client = client(&address).breaker(1, Duration::from_secs(3600));
    let client = client.observer(move |decision, _| observed.lock().expect("no panic").push(decision.reason));
    let client = client.build().expect("a client");
    let dropped = tokio::time::timeout(Duration::from_millis(50), client.limit([("user", "a")])).await;
    assert!(dropped.is_err());
    client.limit([("user", "a")]).await.expect("a decision");
    assert_eq!(*seen.lock().expect("no panic"), [Reason::Decided]);
}

#[tokio::test]
async fn addresses_without_a_port_are_refused_and_failures_name_theirs() {
    for address in ["127.0.0.1", "localhost", "127.0.0.1:port", "[::1]"] {
        let error = client(address).build().expect_err("it has no port");
        assert!(error.to_string().starts_with(address), "{error}");
    }
    let (_, refused) = misbehaving("refused");
    let decision =
        client(&refused).build().expect("a client").limit([("user", "a")]).await.expect("a decision");
    assert!(decision.error_message.unwrap_or_default().contains(&refused));
}

#[tokio::test]
async fn an_address_that_refuses_connections_costs_no_call() {
    let server = serve(HUNDRED, &[]);
    let (_, refused) = misbehaving("refused");
    let client = client(&refused).address(&server.address).local_denials(0).build().expect("a client");
    for call in 1..=6 {
        let decision = client.limit([("user", "a")]).await.expect("a decision");
        assert_eq!((decision.error, decision.remaining), (None, Some(100 - call)));
    }
}
