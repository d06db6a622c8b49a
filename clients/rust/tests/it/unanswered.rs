//! Calls without a decision, whatever responds instead of the server; dead addresses; cancelled calls; additions by the layer.

use crate::servers::{serve, serve_on};
use axum::{Router, body::Body, extract::Path, http::StatusCode, routing::get};
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use std::{
    convert::Infallible,
    net::TcpListener as StdListener,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tidegate_client::{
    Builder, Decision, Error, Key, Missing, OnFailure, RateLimitLayer, Reason, RequestSlot, Tidegate,
};
use tokio::net::{TcpListener, TcpStream};
use tower_layer::Layer;
use tower_service::Service;

const HUNDRED: &str =
    "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100000}}]}";
const IN_FLIGHT: &str = "{domain: d, descriptors: [{key: user, rate_limit: {algorithm: concurrency, requests_in_flight: 1000, max_hold: 1h}}]}";

fn client(address: &str) -> Builder {
    Tidegate::builder(address).domain("d").timeout(Duration::from_secs(5)).local_denials(0)
}

/// An HTTP/2 server that responds to each request with a status and, for gRPC, a `grpc-status`.
async fn responding(status: u16, grpc_status: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let mut response = Response::builder().status(status);
                    if let Some(grpc_status) = grpc_status {
                        response = response
                            .header("content-type", "application/grpc")
                            .header("grpc-status", grpc_status);
                    }
                    _ = respond.send_response(response.body(()).expect("a response"), true);
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_open_covers_every_status_without_a_decision() {
    for (status, grpc_status, code) in [
        (404, None, "UNIMPLEMENTED"),
        (401, None, "UNAUTHENTICATED"),
        (403, None, "PERMISSION_DENIED"),
        (200, Some("12"), "UNIMPLEMENTED"),
        (200, Some("16"), "UNAUTHENTICATED"),
        (200, Some("7"), "PERMISSION_DENIED"),
        (200, Some("5"), "NOT_FOUND"),
    ] {
        let address = responding(status, grpc_status).await;
        let client = client(&address).breaker(0, Duration::ZERO).build().expect("a client");
        let layer = RateLimitLayer::new(client.clone(), [Key::constant("user", "a")]);
        let application = Router::new().route("/", get(|| async { "page" })).layer(layer);
        assert_eq!(get_path(&application, "/").await.0, StatusCode::OK, "{code}");
        let decision = client.limit([("user", "a")]).await.expect("a decision");
        assert_eq!((decision.reason, decision.error), (Reason::FailedOpen, Some(code)));
        let closed = tidegate_client::Request::from([("user", "a")]).on_failure(OnFailure::Closed);
        assert_eq!(client.limit(closed).await.expect("a decision").reason, Reason::FailedClosed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut connection) = h2::server::handshake(stream).await else { continue };
            // The request was received, and its connection closes.
            _ = connection.accept().await;
        }
    });
    let client = client(&address).build().expect("a client");
    let decision = client.limit([("user", "a")]).await.expect("a decision");
    assert_eq!(decision.error, Some("UNAVAILABLE"), "{decision:?}");
}

/// Makes an address dead: nothing listens, its kernel drops each SYN, or it accepts and stays silent.
async fn dead(kind: &str, address: &str) -> Vec<Box<dyn std::any::Any + Send>> {
    let mut kept: Vec<Box<dyn std::any::Any + Send>> = Vec::new();
    if kind == "hangs" {
        kept.push(Box::new(StdListener::bind(address).expect("a port")));
    }
    if kind == "swallows" {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(address.parse().expect("an address")).expect("a port");
        kept.push(Box::new(socket.listen(1).expect("it listens")));
        // Fill the queue with connections that are never accepted.
        while let Ok(Ok(stream)) =
            tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await
        {
            kept.push(Box::new(stream));
        }
    }
    kept
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_address_of_a_name_costs_at_most_two_seconds() {
    let kinds = ["refuses", "swallows", "hangs"].map(|kind| tokio::spawn(beside_a_dead_address(kind)));
    for kind in kinds {
        kind.await.expect("it passes");
    }
}

async fn beside_a_dead_address(kind: &'static str) {
    let server = serve(HUNDRED, &[]);
    let port = server.address.rsplit(':').next().expect("a port");
    let _dead = dead(kind, &format!("127.0.0.2:{port}")).await;
    let addresses = format!("ipv4:127.0.0.2:{port},127.0.0.1:{port}");
    let client = client(&addresses).timeout(Duration::from_millis(500)).build().expect("a client");
    let (began, mut late) = (Instant::now(), Vec::new());
    while began.elapsed() < Duration::from_secs(3) {
        let failed = client.limit([("user", "a")]).await.expect("a decision").error.is_some();
        if began.elapsed() > Duration::from_secs(2) {
            late.push(failed);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A loaded machine exceeds the timeout now and then. The dead address would cost every call.
    let failures = late.iter().filter(|failed| **failed).count();
    assert!(failures * 10 < late.len(), "{kind}: {failures} of {}", late.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_beside_another_costs_at_most_two_seconds() {
    let other = serve(HUNDRED, &[]);
    let port = other.address.rsplit(':').next().expect("a port");
    let hung = serve_on(&format!("127.0.0.2:{port}"), HUNDRED, &[]);
    // The timeout is for loaded machines.
    let building = |address: &str| client(address).timeout(Duration::from_secs(1));
    let mut runs = Vec::new();
    for every in [Duration::from_millis(5), Duration::from_secs(1)] {
        let of_name = building(&format!("ipv4:127.0.0.2:{port},127.0.0.1:{port}"));
        let of_list = building(&hung.address).address(&other.address);
        for builder in [of_name, of_list] {
            let client = builder.build().expect("a client");
            for _ in 0..2 {
                client.limit([("user", "a")]).await.expect("a decision");
            }
            runs.push((client, every));
        }
    }
    hung.signal("STOP");
    let runs = runs.into_iter().map(|(client, every)| tokio::spawn(undecided(client, every)));
    for run in runs.collect::<Vec<_>>() {
        let undecided = run.await.expect("it ends");
        let (Some(first), Some(last)) = (undecided.first(), undecided.last()) else {
            panic!("the server that hangs got no call")
        };
        assert!(last.duration_since(*first) < Duration::from_secs(2), "{undecided:?}");
    }
}

/// Calls at a pace for several seconds; the times of calls that were not decided.
async fn undecided(client: Tidegate, every: Duration) -> Vec<Instant> {
    let mut undecided = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        let sent = Instant::now();
        if client.limit([("user", "a")]).await.expect("a decision").error.is_some() {
            undecided.push(Instant::now());
        }
        tokio::time::sleep(every.saturating_sub(sent.elapsed())).await;
    }
    undecided
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_at_any_moment_keeps_no_slot() {
    let server = serve(IN_FLIGHT, &[]);
    let client = client(&server.address).build().expect("a client");
    client.peek([("user", "a")]).await.expect("a decision");
    for number in 0..300 {
        let acquiring = client.acquire([("user", "a")]);
        _ = tokio::time::timeout(Duration::from_micros(number * 7), acquiring).await;
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while client.peek([("user", "a")]).await.expect("a decision").remaining != Some(1000) {
        assert!(Instant::now() < deadline, "slots stay held");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends a request to an application in this process: the status, and the values of a header.
async fn get_path(application: &Router, path: &str) -> (StatusCode, http::HeaderMap, Bytes) {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let response: Result<Response<Body>, Infallible> = application.clone().call(request).await;
    let (head, body) = response.expect("a response").into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
    (head.status, head.headers, body)
}

fn values(headers: &http::HeaderMap, name: &str) -> String {
    let values = headers.get_all(name).iter().map(|value| value.to_str().expect("ASCII"));
    values.collect::<Vec<_>>().join(", ")
}

/// The first value of each call, its hits, and whether it gives them back.
type Calls = Arc<Mutex<Vec<(String, u64, bool)>>>;

/// A client that admits, and its calls.
fn admitting(ticket: Option<&str>) -> (Tidegate, Calls) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let mut admitted = Decision::admitted();
    admitted.ticket = ticket.map(str::to_owned);
    let client = Tidegate::fake(move |call| {
        let value = call.descriptors[0].entries()[0].1.clone();
        seen.lock().expect("no panic").push((value, call.costs[0], call.gives_back));
        admitted.clone()
    });
    (client, calls)
}

#[tokio::test]
async fn two_layers_on_one_request_list_the_limits_of_both() {
    let server = serve(
        "{domain: d, descriptors: [{key: outer, rate_limit: {name: outer, unit: hour, requests_per_unit: 8}}, {key: inner, rate_limit: {name: inner, unit: hour, requests_per_unit: 1}}]}",
        &[],
    );
    let client = client(&server.address).build().expect("a client");
    let layer = |entry: &str| RateLimitLayer::new(client.clone(), [Key::constant(entry, "a")]);
    let application =
        Router::new().route("/", get(|| async { "hello" })).layer(layer("inner")).layer(layer("outer"));
    let (status, headers, _) = get_path(&application, "/").await;
    assert_eq!(
        (status, values(&headers, "ratelimit").as_str()),
        (StatusCode::OK, "\"outer\";r=7, \"inner\";r=0")
    );
    let (status, headers, _) = get_path(&application, "/").await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(values(&headers, "ratelimit").starts_with("\"outer\";r=6, \"inner\";r=0;t="), "{headers:?}");
}

#[tokio::test]
async fn the_layer_skips_requests_and_reads_their_costs() {
    let (client, calls) = admitting(None);
    let layer = RateLimitLayer::new(
        client,
        [Key::custom("path", |r| Some(r.uri.path().to_owned()), Missing::Reject)],
    )
    .skip(|request| request.uri.path() == "/healthz")
    .cost_by(|request| request.uri.query().map_or(1, |query| query.len() as u64));
    let application = Router::new().fallback(|| async { "hello" }).layer(layer);
    for path in ["/healthz", "/a", "/b?1234"] {
        get_path(&application, path).await;
    }
    assert_eq!(*calls.lock().expect("no panic"), [("/a".into(), 1, false), ("/b".into(), 4, false)]);
}

#[tokio::test]
async fn an_application_makes_the_bodies_of_its_denials() {
    let client = Tidegate::fake(|_| Decision::denied(Some(Duration::from_secs(5))));
    let body = |decision: &Decision| {
        let wait = decision.retry_after.map_or(0, |wait| wait.as_secs());
        (HeaderValue::from_static("application/json"), Bytes::from(format!("{{\"wait\":{wait}}}")))
    };
    let layer = RateLimitLayer::new(client, [Key::constant("route", "all")]).denied_body(body);
    let application = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    let (status, headers, body) = get_path(&application, "/").await;
    assert_eq!((status, &body[..]), (StatusCode::TOO_MANY_REQUESTS, &b"{\"wait\":5}"[..]));
    assert_eq!(
        (values(&headers, "content-type").as_str(), values(&headers, "retry-after").as_str()),
        ("application/json", "5")
    );
}

#[tokio::test]
async fn requests_that_do_not_count_give_their_hits_back() {
    let (client, calls) = admitting(None);
    let layer = RateLimitLayer::new(client, [Key::constant("route", "login")])
        .counts(|status| status == StatusCode::UNAUTHORIZED);
    let respond = |Path(status): Path<u16>| async move { StatusCode::from_u16(status).expect("a status") };
    let application = Router::new().route("/{status}", get(respond)).layer(layer);
    for path in ["/401", "/200", "/401"] {
        get_path(&application, path).await;
        tokio::task::yield_now().await;
    }
    let given_back: Vec<_> =
        calls.lock().expect("no panic").iter().map(|(_, _, gives_back)| *gives_back).collect();
    assert_eq!(given_back, [false, false, true, false]);
}

#[tokio::test]
async fn an_upgraded_connection_may_hold_the_slots_of_all_layers() {
    let (outer, calls_of_outer) = admitting(Some("slot-1"));
    let (inner, calls_of_inner) = admitting(Some("slot-2"));
    let [outer, inner] =
        [outer, inner].map(|client| RateLimitLayer::new(client, [Key::constant("route", "all")]));
    let calls = || [&calls_of_outer, &calls_of_inner].map(|calls| calls.lock().expect("no panic").len());
    let kept = Arc::new(Mutex::new(None));
    let keeping = Arc::clone(&kept);
    let upgrade = move |request: Request<Body>| {
        let slot = request.extensions().get::<RequestSlot>().cloned();
        *keeping.lock().expect("no panic") = slot;
        async {
            Ok::<_, Infallible>(Response::builder().status(101).body(Body::empty()).expect("a response"))
        }
    };
    let request = Request::get("/").body(Body::empty()).expect("a request");
    let mut service = outer.layer(inner.layer(tower_service_fn(upgrade)));
    drop(service.call(request).await.expect("a response"));
    tokio::task::yield_now().await;
    assert_eq!(calls(), [1, 1], "the slots are held");
    drop(kept.lock().expect("no panic").take());
    tokio::task::yield_now().await;
    assert_eq!(calls(), [2, 2], "the slots are released");
}

/// A service made of a function.
fn tower_service_fn<F>(function: F) -> ServiceFn<F> {
    ServiceFn(function)
}

#[derive(Clone)]
struct ServiceFn<F>(F);

impl<F, U> Service<Request<Body>> for ServiceFn<F>
where
    F: Fn(Request<Body>) -> U,
    U: Future<Output = Result<Response<Body>, Infallible>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = U;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> U {
        (self.0)(request)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_descriptor_that_the_server_refuses_is_a_typed_error() {
    let server = serve(HUNDRED, &[]);
    let client = client(&server.address).build().expect("a client");
    let refused = client.limit([("user", "ann"); 33]).await;
    assert!(matches!(refused, Err(Error::Refused { code: "INVALID_ARGUMENT", .. })), "{refused:?}");
}
