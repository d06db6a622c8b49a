//! A real Envoy with a real server, and the configs and rules of `deploy/envoy/` as users copy them.
//!
//! These tests wait in real time: a client waits for a reset, two or three seconds at most.

pub mod any_values;
pub mod concurrency;
pub mod denials;
mod load;
pub mod one_limit;
pub mod queueing;
pub mod quota_store;
pub mod quotas;
pub mod recipes;
pub mod reserve;
pub mod rlqs_filters;
pub mod two_servers;

use crate::{
    envoy_process::Envoy,
    support::{Server, descriptor, eventually, http1},
};
use http::{Request, Response, request::Builder};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};
use tidegate::api::pb::{common::RateLimitDescriptor, service::rate_limit_response::Code};
use tidegate_core::clock::{Clock, SystemClock};

/// The listener that fails open when Tidegate cannot be reached; the port of the config.
const FAIL_OPEN: u16 = 10000;
/// The listener that fails closed.
const FAIL_CLOSED: u16 = 10001;
/// The listener of the sidecar, and its application.
const SIDECAR: u16 = 8000;
const APPLICATION: u16 = 8080;

/// More requests than any limit that tests reach one request at a time.
const MANY: usize = 60;

const ALICE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const BOB: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Envoy with one of the configs, and its rate limit server.
struct Edge {
    server: Server,
    envoy: Envoy,
}

impl Edge {
    async fn start() -> Self {
        let server = serve("127.0.0.1:0");
        let envoy = Envoy::start("http.yaml", server.address(), &[]).await;
        Self { server, envoy }
    }

    async fn send(&self, from: Ipv4Addr, request: Builder) -> Response<Vec<u8>> {
        self.send_to(FAIL_OPEN, from, request).await
    }

    async fn send_to(&self, listener: u16, from: Ipv4Addr, request: Builder) -> Response<Vec<u8>> {
        http1::fetch(from, self.envoy.port(listener), request).await.expect("Envoy responses")
    }

    /// Number of requests admitted before one is denied.
    async fn admitted(&self, from: Ipv4Addr, request: impl Fn() -> Builder) -> usize {
        self.first_denied(FAIL_OPEN, from, request).await.0
    }

    /// Sends requests until one is denied. Returns the number of admitted requests, and the denial.
    async fn first_denied(
        &self,
        listener: u16,
        from: Ipv4Addr,
        request: impl Fn() -> Builder,
    ) -> (usize, Response<Vec<u8>>) {
        for admitted in 0..MANY {
            let response = self.send_to(listener, from, request()).await;
            match response.status().as_u16() {
                200 => {}
                429 => return (admitted, response),
                other => panic!("HTTP status {other} after {admitted} requests"),
            }
        }
        panic!("{MANY} requests were let in");
    }

    /// Sends requests until a response has the headers of a limit: Envoy calls the server again.
    async fn limited_again(&self, listener: u16) {
        eventually("requests are limited again", async || {
            let response = self.send_to(listener, ALICE, Request::get("/")).await;
            header(&response, "x-ratelimit-limit").is_some()
        })
        .await;
    }
}

fn serve(listen: &str) -> Server {
    serve_rules("rules.yaml", listen, &[])
}

/// A server with one of the rule files of `deploy/envoy/`.
fn serve_rules(file: &str, listen: &str, args: &[&str]) -> Server {
    let rules = deployed(file);
    let rules = rules.to_str().expect("the crate's path is UTF-8");
    Server::start_on(listen, &[&["--rules", rules], args].concat())
}

fn deployed(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/envoy").join(file)
}

fn header<'a, T>(response: &'a Response<T>, name: &str) -> Option<&'a str> {
    Some(response.headers().get(name)?.to_str().expect("Envoy writes ASCII headers"))
}

fn seconds<T: std::fmt::Debug>(response: &Response<T>, name: &str) -> u64 {
    let value = header(response, name).unwrap_or_else(|| panic!("{name} is missing in {response:?}"));
    value.parse().unwrap_or_else(|_| panic!("{name} is no whole number in {response:?}"))
}

/// Envoy's timers count whole milliseconds of a clock that it reads once per event loop iteration, and may end earlier by this much.
const TIMER_EARLY_MAX: Duration = Duration::from_millis(5);

/// Waits if a minute is about to end, so that a scenario that counts to the last hit is within one window: most limits are per minute.
async fn early_in_a_minute() {
    const MINUTE: Duration = Duration::from_secs(60);
    let into_minute = Duration::from_nanos(SystemClock::new().now().as_nanos() % MINUTE.as_nanos() as u64);
    if into_minute > Duration::from_secs(57) {
        tokio::time::sleep(MINUTE - into_minute).await;
    }
}

async fn a_client_is_admitted_up_to_the_limit_with_matching_headers() {
    let edge = Edge::start().await;
    early_in_a_minute().await;
    let request = || Request::get("/api/").header("x-api-key", "alice");
    for left in (0..20).rev() {
        let response = edge.send(ALICE, request()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(header(&response, "x-ratelimit-limit"), Some("20, 20;w=60;name=\"api-key\""));
        assert_eq!(header(&response, "x-ratelimit-remaining"), Some(left.to_string().as_str()));
        // The time until all twenty are free again: hits count until the end of the next window.
        assert!((1..=120).contains(&seconds(&response, "x-ratelimit-reset")), "{response:?}");
        assert_eq!(header(&response, "x-envoy-ratelimited"), None);
        assert_eq!(header(&response, "retry-after"), None);
    }
    let denied = edge.send(ALICE, request()).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(header(&denied, "x-envoy-ratelimited"), Some("true"));
    assert_eq!(header(&denied, "x-ratelimit-limit"), Some("20, 20;w=60;name=\"api-key\""));
    assert_eq!(header(&denied, "x-ratelimit-remaining"), Some("0"));
    let wait = seconds(&denied, "retry-after");
    assert!((1..=60).contains(&wait), "{denied:?}");
    assert_eq!(seconds(&denied, "x-ratelimit-reset"), wait);
}

async fn retry_after_is_exact_enough_to_be_admitted() {
    let edge = Edge::start().await;
    let denied = edge.first_denied(FAIL_OPEN, ALICE, || Request::get("/")).await.1;
    let wait = seconds(&denied, "retry-after");
    assert!((1..=2).contains(&wait), "{denied:?}");
    tokio::time::sleep(Duration::from_secs(wait)).await;
    assert_eq!(edge.send(ALICE, Request::get("/")).await.status(), 200);
}

async fn a_descriptor_of_the_remote_address_counts_each_client() {
    let edge = Edge::start().await;
    early_in_a_minute().await;
    let write = || Request::post("/documents/1");
    assert_eq!(edge.admitted(ALICE, write).await, 10);
    assert_eq!(edge.send(BOB, write()).await.status(), 200);
    // The rule of a whole virtual host, on a route without a rule of its own.
    assert!(edge.admitted(ALICE, || Request::get("/")).await >= 10);
}

async fn a_descriptor_of_a_request_header_counts_each_value() {
    let edge = Edge::start().await;
    early_in_a_minute().await;
    let with_key = |key: &'static str| move || Request::get("/api/").header("x-api-key", key);
    assert_eq!(edge.admitted(ALICE, with_key("one")).await, 20);
    assert_eq!(edge.send(ALICE, with_key("other")()).await.status(), 200);
    let partner = edge.send(ALICE, with_key("partner")()).await;
    assert_eq!(header(&partner, "x-ratelimit-remaining"), Some("999"));
    // Without the header there is no descriptor, and no request to the server.
    let keyless = edge.send(ALICE, Request::get("/api/")).await;
    assert_eq!((keyless.status().as_u16(), header(&keyless, "x-ratelimit-limit")), (200, None));
}

async fn a_generic_key_counts_a_route_over_all_clients() {
    let edge = Edge::start().await;
    early_in_a_minute().await;
    assert_eq!(edge.send(BOB, Request::get("/search?q=1")).await.status(), 200);
    assert_eq!(edge.admitted(ALICE, || Request::get("/search?q=2")).await, 29);
    assert_eq!(edge.send(BOB, Request::get("/search?q=3")).await.status(), 429);
}

async fn a_header_value_match_counts_matching_requests_only() {
    let edge = Edge::start().await;
    early_in_a_minute().await;
    for _ in 0..15 {
        assert_eq!(edge.send(ALICE, Request::get("/documents/1")).await.status(), 200);
    }
    assert_eq!(edge.admitted(ALICE, || Request::delete("/documents/1")).await, 10);
    assert_eq!(edge.send(ALICE, Request::get("/documents/1")).await.status(), 200);
}

async fn a_hits_addend_charges_the_cost_of_the_route() {
    let edge = Edge::start().await;
    early_in_a_minute().await;
    for left in ["15", "10", "5", "0"] {
        let response = edge.send(ALICE, Request::get("/export")).await;
        assert_eq!(
            (response.status().as_u16(), header(&response, "x-ratelimit-remaining")),
            (200, Some(left))
        );
    }
    assert_eq!(edge.send(ALICE, Request::get("/export")).await.status(), 429);
}

/// The application reports a cost of 400 tokens of 1000 for each response.
async fn a_charge_on_stream_done_is_applied_after_the_response_and_beyond_the_limit() {
    let edge = Edge::start().await;
    early_in_a_minute().await;
    let mut client = edge.server.client().await;
    let request = || Request::post("/completions").header("x-api-key", "alice");
    for left_afterwards in [600, 200, 0] {
        assert_eq!(edge.send(ALICE, request()).await.status(), 200);
        eventually(&format!("{left_afterwards} are left"), async || {
            let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("tokens_of", "alice")]) };
            let status = client.should_rate_limit("edge", vec![peek]).await.unwrap().statuses.remove(0);
            assert_eq!(status.code() == Code::Ok, status.limit_remaining > 0);
            let left = status.limit_remaining;
            if left == left_afterwards { Ok(()) } else { Err(left) }
        })
        .await;
    }
    let denied = edge.send(ALICE, request()).await;
    assert_eq!(denied.status(), 429);
    let other = Request::post("/completions").header("x-api-key", "bob");
    assert_eq!(edge.send(ALICE, other).await.status(), 200);
}

async fn without_tidegate_envoy_fails_open_or_closed_as_set_and_limits_again_after_a_restart() {
    let mut edge = Edge::start().await;
    early_in_a_minute().await;
    assert_eq!(edge.first_denied(FAIL_CLOSED, ALICE, || Request::get("/")).await.0, 5);
    edge.server.signal(rustix::process::Signal::KILL);
    edge.server.wait();

    for _ in 0..MANY {
        let response = edge.send(ALICE, Request::get("/")).await;
        assert_eq!((response.status().as_u16(), header(&response, "x-ratelimit-limit")), (200, None));
        let response = edge.send_to(FAIL_CLOSED, BOB, Request::get("/")).await;
        assert_eq!((response.status().as_u16(), header(&response, "x-envoy-ratelimited")), (503, None));
    }

    let address = edge.server.address().to_owned();
    edge.server = serve(&address);
    edge.limited_again(FAIL_OPEN).await;
    assert!(edge.admitted(BOB, || Request::get("/")).await >= 10);
    early_in_a_minute().await;
    assert_eq!(edge.first_denied(FAIL_CLOSED, BOB, || Request::get("/")).await.0, 5);
}

async fn envoy_waits_for_a_stopped_tidegate_up_to_its_timeout() {
    let edge = Edge::start().await;
    edge.limited_again(FAIL_OPEN).await;
    edge.server.freeze();
    let clock = SystemClock::new();
    let asked_at = clock.now().as_nanos();
    let response = edge.send(ALICE, Request::get("/")).await;
    let waited = Duration::from_nanos(clock.now().as_nanos() - asked_at);
    assert_eq!((response.status().as_u16(), header(&response, "x-ratelimit-limit")), (200, None));
    assert!(waited + TIMER_EARLY_MAX >= Duration::from_millis(250), "Envoy waited {waited:?}");
    assert_eq!(edge.send_to(FAIL_CLOSED, ALICE, Request::get("/")).await.status(), 503);

    edge.server.signal(rustix::process::Signal::CONT);
    edge.limited_again(FAIL_OPEN).await;
    edge.limited_again(FAIL_CLOSED).await;
}

/// Envoy connects again after each GOAWAY, and every request is decided: this listener refuses requests without a decision.
async fn a_maximum_age_of_connections_loses_no_call() {
    let server = serve_rules("rules.yaml", "127.0.0.1:0", &["--max-connection-age", "100ms"]);
    let envoy = Envoy::start("http.yaml", server.address(), &[]).await;
    let edge = Edge { server, envoy };
    edge.limited_again(FAIL_CLOSED).await;
    for request in 0..150 {
        let response = edge.send_to(FAIL_CLOSED, ALICE, Request::get("/")).await;
        assert!(matches!(response.status().as_u16(), 200 | 429), "request {request}: {response:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn a_sidecar_is_reached_over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", folder.path().join("tidegate.sock").display());
    let mut server = serve(&address);
    let application = application();
    let envoy =
        Envoy::start("sidecar-unix-socket.yaml", server.address(), &[(APPLICATION, application)]).await;
    let mut edge = Edge { server, envoy };

    assert!(edge.first_denied(SIDECAR, ALICE, || Request::get("/")).await.0 >= 10);
    // The config declares this for responses that Envoy makes itself.
    for _ in 0..MANY {
        assert_eq!(edge.send_to(SIDECAR, ALICE, Request::get("/ready")).await.status(), 200);
    }

    edge.server.signal(rustix::process::Signal::KILL);
    edge.server.wait();
    let response = edge.send_to(SIDECAR, ALICE, Request::get("/")).await;
    assert_eq!((response.status().as_u16(), header(&response, "x-ratelimit-limit")), (200, None));

    server = serve(&address);
    edge.server = server;
    edge.limited_again(SIDECAR).await;
    early_in_a_minute().await;
    let keyed = edge.send_to(SIDECAR, BOB, Request::get("/").header("x-api-key", "alice")).await;
    assert_eq!(keyed.status(), 200);
}

async fn the_readmes_config_limits_the_demo() {
    let config = include_str!("../../../deploy/envoy/quickstart.yaml");
    // The part that README shows is the same as in the file.
    let lines = |text: &'static str| text.lines().map(str::trim).filter(|line| !line.is_empty());
    let in_file: Vec<_> = lines(config).collect();
    let readme = include_str!("../../../README.md")
        .split("```yaml\n")
        .map(|rest| rest.split("```").next().unwrap_or_default());
    let shown =
        readme.into_iter().find(|block| block.contains("ratelimit.v3.RateLimit")).expect("the filter");
    for line in lines(shown) {
        assert!(in_file.contains(&line), "not in quickstart.yaml: {line}");
    }
    let server = Server::start(&[]);
    let envoy = Envoy::start_with(config, server.address(), &[(APPLICATION, application())]).await;
    let edge = Edge { server, envoy };
    let keyed = || Request::get("/").header("x-api-key", "alice");
    let (admitted, denied) = edge.first_denied(SIDECAR, ALICE, keyed).await;
    assert!(
        (5..=6).contains(&admitted),
        "{admitted} of 5 per 10 s, on either side of a window's edge at most"
    );
    assert!(header(&denied, "retry-after").is_some());
    assert_eq!(edge.send_to(SIDECAR, ALICE, Request::get("/")).await.status(), 200);
}

/// Starts an application that responds 200 to every request. Returns its port. It ends with the test process.
fn application() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            // One read returns the whole of such a small request.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    port
}

crate::tests_with! { ENVOY:
    a_client_is_admitted_up_to_the_limit_with_matching_headers,
    retry_after_is_exact_enough_to_be_admitted,
    a_descriptor_of_the_remote_address_counts_each_client,
    a_descriptor_of_a_request_header_counts_each_value,
    a_generic_key_counts_a_route_over_all_clients,
    a_header_value_match_counts_matching_requests_only,
    a_hits_addend_charges_the_cost_of_the_route,
    a_charge_on_stream_done_is_applied_after_the_response_and_beyond_the_limit,
    without_tidegate_envoy_fails_open_or_closed_as_set_and_limits_again_after_a_restart,
    envoy_waits_for_a_stopped_tidegate_up_to_its_timeout,
    a_maximum_age_of_connections_loses_no_call,
    a_sidecar_is_reached_over_a_unix_socket,
    the_readmes_config_limits_the_demo,
}
