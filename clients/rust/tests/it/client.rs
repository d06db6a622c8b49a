//! Concurrency, waiting, restarts, errors of the caller, and the layer under real HTTP.

use crate::servers::{misbehaving, serve, serve_on};
use axum::{Router, routing::get};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tidegate_client::{
    Builder, Descriptor, Error, Key, Missing, OnFailure, RateLimitLayer, Reason, Tidegate, Unit,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::sleep,
};

const HUNDRED: &str =
    "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}";
const FAST: &str = "{domain: d, descriptors: [{key: user, rate_limit: {per: 200ms, requests_per_unit: 2, algorithm: token_bucket}}]}";
const FIVE: &str = "{domain: d, descriptors: [{key: api_key, rate_limit: {name: demo, unit: hour, requests_per_unit: 5, algorithm: token_bucket}}]}";

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
    assert!(client.limit(request("a", 2)).await.expect("a decision").allowed);
    let started = Instant::now();
    let wait = async |user, cost, millis| {
        let waited = client.wait_until_ready(request(user, cost), Duration::from_millis(millis)).await;
        waited.expect("a decision").allowed
    };
    assert!(wait("a", 2, 5_000).await);
    assert!(started.elapsed() >= Duration::from_millis(190));
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
    let long = client.limit([("user", "x".repeat(100_000))]).await;
    assert!(matches!(long, Err(Error::Refused { code: "INVALID_ARGUMENT", .. })), "{long:?}");
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

/// Sends a request; the status, and the headers in lower case.
async fn get_status(address: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("a response");
    let status = response.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, response.to_lowercase())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_layer_lets_five_requests_pass_and_denies_the_sixth() {
    let server = serve(FIVE, &[]);
    let layer = |address: &str, policy| {
        let client = client(address).on_failure(policy).build().expect("a client");
        RateLimitLayer::new(client, [Key::header("api_key", "x-api-key", Missing::Reject)])
    };
    let listen = async |layer| {
        let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move { axum::serve(listener, app).await });
        address
    };
    let address = listen(layer(&server.address, OnFailure::Open)).await;
    for remaining in (0..5).rev() {
        let (status, response) = get_status(&address, "x-api-key: alice\r\n").await;
        assert_eq!(status, 200, "{response}");
        assert!(response.contains(&format!("ratelimit: \"demo\";r={remaining};t=")), "{response}");
    }
    for _ in 0..2 {
        let (status, response) = get_status(&address, "x-api-key: alice\r\n").await;
        assert_eq!(status, 429, "{response}");
        assert!(response.contains("ratelimit-policy: \"demo\";q=5;w=3600"), "{response}");
        assert!(response.contains("retry-after: 7"), "{response}");
        assert!(response.ends_with("too many requests\n"), "{response}");
    }
    assert_eq!(get_status(&address, "x-api-key: bob\r\n").await.0, 200);
    assert_eq!(get_status(&address, "").await.0, 400);
    let (_, response) = get_status(&address, "x-api-key: alice\r\ncontent-type: application/grpc\r\n").await;
    assert!(response.contains("grpc-status: 8"), "{response}");

    let (_, refused) = misbehaving("refused");
    let closed = listen(layer(&refused, OnFailure::Closed)).await;
    assert_eq!(get_status(&closed, "x-api-key: alice\r\n").await.0, 503);
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
