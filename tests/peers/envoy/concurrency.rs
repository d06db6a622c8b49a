//! Requests in flight behind a real Envoy, as the back end counts them: clients that give up, denials, and failures of the back end.

use super::APPLICATION;
use crate::{
    envoy_process::{Envoy, Program},
    support::{Client, Server, descriptor, eventually, http1, rules_file},
};
use http::Request;
use rustix::net::{RecvFlags, recv};
use serde_json::Value;
use std::{
    collections::HashSet,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tempfile::{NamedTempFile, TempDir};
use tidegate::api::pb::common::RateLimitDescriptor;
use tokio::task::JoinHandle;

/// The listener of the config.
pub const LISTENER: u16 = 8000;
pub const LIMIT: usize = 3;
const CLIENTS: u64 = 12;
const REQUESTS: usize = 100;
pub const KILLS: usize = 3;
/// Clients that send one request after another, each with its key.
const SEQUENTIAL_CLIENTS: usize = 4;
/// Requests of each client.
const SEQUENTIAL: usize = 2_500;

/// A lost slot does not become free again within the test.
pub const RULES: &str = "
domain: edge
descriptors:
  - key: api_key
    rate_limit: { algorithm: concurrency, requests_in_flight: 3, max_hold: 1h }
";

/// Numbers that look random, the same for one seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        for shift in [(13, true), (7, false), (17, true)] {
            let (bits, is_left) = shift;
            self.0 ^= if is_left { self.0 << bits } else { self.0 >> bits };
        }
        self.0 % end
    }
}

/// A back end that works on each request for some milliseconds, and breaks some connections instead of responding.
#[derive(Default)]
pub struct BackEnd {
    /// Works on each request for at most this many milliseconds.
    work_millis_max: u64,
    in_flight: Mutex<Vec<(usize, TcpStream)>>,
    most: AtomicUsize,
    served: AtomicUsize,
}

impl BackEnd {
    pub fn start(work_millis_max: u64) -> (Arc<Self>, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let back_end = Arc::new(Self { work_millis_max, ..Self::default() });
        let of_thread = Arc::clone(&back_end);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let back_end = Arc::clone(&of_thread);
                std::thread::spawn(move || back_end.serve(number, stream));
            }
        });
        (back_end, port)
    }

    fn serve(&self, number: usize, mut stream: TcpStream) {
        let mut numbers = Numbers(0x9e37_79b9 + number as u64);
        // One read returns the whole of such a small request.
        if !matches!(stream.read(&mut [0; 4096]), Ok(1..)) {
            return;
        }
        self.begin(number, &stream);
        let work = Duration::from_millis(1 + numbers.below(self.work_millis_max));
        stream.set_read_timeout(Some(work)).expect("not zero");
        // Ends early if Envoy closes the connection because the client has gone.
        let is_closed = matches!(stream.read(&mut [0; 1]), Ok(0));
        self.in_flight.lock().expect("no thread panics").retain(|(of, _)| *of != number);
        if !is_closed && numbers.below(7) > 0 {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    }

    /// The most requests that were in flight at once, and the number of all requests.
    pub fn figures(&self) -> (usize, usize) {
        (self.most.load(Ordering::Relaxed), self.served.load(Ordering::Relaxed))
    }

    /// Counts the requests in flight together with this request: those whose connections Envoy has not closed. It closes them before it
    /// reports their ends.
    fn begin(&self, number: usize, stream: &TcpStream) {
        let mut in_flight = self.in_flight.lock().expect("no thread panics");
        in_flight.retain(|(_, stream)| is_open(stream));
        // This is the last check: a connection that is open now was open while the others were looked at. This thread may be late, so that
        // Envoy has closed it.
        if !is_open(stream) {
            return;
        }
        in_flight.push((number, stream.try_clone().expect("a file descriptor")));
        self.most.fetch_max(in_flight.len(), Ordering::Relaxed);
        self.served.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether the peer keeps a connection open on which it sends nothing more.
fn is_open(stream: &TcpStream) -> bool {
    let peeked = recv(stream, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    matches!(peeked, Err(rustix::io::Errno::AGAIN))
}

async fn remaining(client: &mut Client) -> usize {
    let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("api_key", "one")]) };
    let response = client.should_rate_limit("edge", vec![peek]).await.expect("a decision");
    response.statuses[0].limit_remaining as usize
}

/// Envoy with its server and its back end.
struct Edge {
    server: Server,
    back_end: Arc<BackEnd>,
    envoy: Envoy,
    _rules: NamedTempFile,
    folder: TempDir,
}

impl Edge {
    async fn start(program: &Program, rules: &str, work_millis_max: u64) -> Self {
        let rules = rules_file(rules);
        let folder = tempfile::tempdir().expect("a folder");
        let log = log(&folder);
        let server = Server::with_rules(rules.path(), &["--decision-log", &log]);
        let (back_end, port) = BackEnd::start(work_millis_max);
        let config =
            include_str!("../../../deploy/envoy/concurrency.yaml").replace("timeout: 0.25s", "timeout: 5s");
        let envoy = Envoy::start_program(program, &config, server.address(), &[(APPLICATION, port)]).await;
        Self { server, back_end, envoy, _rules: rules, folder }
    }

    /// Gives up requests while their decisions are on the way, until the decision log has a decision that Envoy reset. That has to
    /// happen within microseconds, so the number of requests depends on the load of the machine.
    async fn give_up_until_a_reset_is_logged(&self) {
        let (port, mut numbers) = (self.envoy.port(LISTENER), Numbers(0x9e37_79b9_7f4a_7c15));
        eventually("a slot is released by a reset", async || {
            for _ in 0..100 {
                let patience = Duration::from_micros(numbers.below(2_000));
                let fetched = http1::fetch(Ipv4Addr::LOCALHOST, port, get("one"));
                drop(tokio::time::timeout(patience, fetched).await);
            }
            let text = std::fs::read_to_string(log(&self.folder)).expect("text");
            let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            if lines.any(|line| line["cancelled"]["ticket"].is_string()) { Ok(()) } else { Err("none") }
        })
        .await;
    }

    /// Stops all; returns the slots in the decision log.
    fn logged(self) -> LoggedSlots {
        let Self { server, envoy, folder, .. } = self;
        drop(envoy);
        assert!(server.terminate().success());
        let text = std::fs::read_to_string(log(&folder)).expect("text");
        let parsed = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let mut lines: Vec<Value> = parsed.collect();
        lines.sort_by_key(|line| line["seq"].as_u64());
        let (mut held, mut of) = (HashSet::new(), LoggedSlots::default());
        for line in &lines {
            let entry = &line["descriptors"][0]["entries"][0];
            if let Some(ticket) = line["cancelled"]["ticket"].as_str() {
                of.cancelled += usize::from(held.remove(ticket));
            } else if entry["key"] == "slot" {
                of.ended += usize::from(held.remove(entry["value"].as_str().expect("text")));
            } else if let Some(ticket) = line["ticket"].as_str() {
                held.insert(ticket);
            }
            of.most = of.most.max(held.len());
        }
        of.left = held.len();
        of
    }

    /// Waits until all slots are free, and returns how long that took.
    #[expect(clippy::disallowed_methods, reason = "times how long a slot is held after its end")]
    async fn until_free(&self, limit: usize) -> Duration {
        let (mut client, began) = (self.server.client().await, Instant::now());
        eventually(&format!("{limit} slots are free"), async || match remaining(&mut client).await {
            free if free == limit => Ok(()),
            free => Err(free),
        })
        .await;
        began.elapsed()
    }
}

/// Slots by the lines of a decision log, in the order of `seq`.
#[derive(Default, Debug)]
struct LoggedSlots {
    /// Slots released by the end of the request.
    ended: usize,
    /// Slots released because Envoy reset the call.
    cancelled: usize,
    /// The most slots held at once.
    most: usize,
    /// Slots that were never released.
    left: usize,
}

fn log(folder: &TempDir) -> String {
    folder.path().join("decisions").to_str().expect("temporary paths are UTF-8").to_owned()
}

/// Responses by kind.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub responses: usize,
    pub denials: usize,
    /// Failures of the back end.
    pub failures: usize,
    /// Requests that no server decided.
    pub undecided: usize,
}

impl Counts {
    pub fn add(&mut self, other: &Self) {
        self.responses += other.responses;
        self.denials += other.denials;
        self.failures += other.failures;
        self.undecided += other.undecided;
    }
}

/// A client whose requests may end at any time. Some requests are given up, half of them while the decision is on its way.
async fn restless_client(client: u64, port: u16, goes_on: impl Fn(usize) -> bool) -> Counts {
    let (mut numbers, mut counts) = (Numbers(client.wrapping_mul(0x2545_f491_4f6c_dd1d)), Counts::default());
    for _ in (0..).take_while(|sent| goes_on(*sent)) {
        let fetched = http1::fetch(Ipv4Addr::LOCALHOST, port, get("one"));
        let patience = match numbers.below(8) {
            0 => Duration::from_micros(numbers.below(2_000)),
            1 => Duration::from_millis(numbers.below(25)),
            _ => Duration::from_secs(30),
        };
        let Ok(response) = tokio::time::timeout(patience, fetched).await else { continue };
        match response.map(|response| response.status().as_u16()) {
            Ok(200) => counts.responses += 1,
            Ok(429) => {
                counts.denials += 1;
                tokio::time::sleep(Duration::from_millis(1 + numbers.below(20))).await;
            }
            Ok(502 | 503) => counts.failures += 1,
            Ok(500) => {
                counts.undecided += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(other) => panic!("HTTP status {other}"),
            // Envoy was killed.
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    counts
}

pub fn get(api_key: &str) -> http::request::Builder {
    Request::get("/").header("x-api-key", api_key)
}

fn restless_clients(port: u16, requests: usize) -> Vec<JoinHandle<Counts>> {
    let goes_on = move |sent| sent < requests;
    (1..=CLIENTS).map(|client| tokio::spawn(restless_client(client, port, goes_on))).collect()
}

/// Clients that continue until they are stopped.
pub fn restless_clients_until(port: u16, is_stopped: &Arc<AtomicBool>) -> Vec<JoinHandle<Counts>> {
    let client = |client| {
        let is_stopped = Arc::clone(is_stopped);
        tokio::spawn(restless_client(client, port, move |_| !is_stopped.load(Ordering::Relaxed)))
    };
    (1..=CLIENTS).map(client).collect()
}

async fn no_more_requests_are_in_flight_than_the_limit_and_no_slot_is_lost() {
    for program in Program::all_with_two_workers() {
        let edge = Edge::start(&program, RULES, 30).await;
        let mut sum = Counts::default();
        for client in restless_clients(edge.envoy.port(LISTENER), REQUESTS) {
            sum.add(&client.await.expect("no client panics"));
        }
        edge.give_up_until_a_reset_is_logged().await;
        let free_after = edge.until_free(LIMIT).await;
        let (most, served) = edge.back_end.figures();
        println!(
            "{}: {served} served, {most} at once; {sum:?}; free after {free_after:?}",
            program.binary.display()
        );
        assert!(sum.responses > 0 && sum.denials > 0 && sum.failures > 0 && sum.undecided == 0, "{sum:?}");
        assert_eq!(most, LIMIT, "the limit is reached, and not exceeded");
        let logged = edge.logged();
        println!("{logged:?}");
        assert!(
            logged.ended > 0 && logged.cancelled > 0,
            "Envoy resets calls of clients that are gone: {logged:?}"
        );
        assert_eq!((logged.most, logged.left), (LIMIT, 0), "the log has the end of each slot, in order");
    }
}

/// Nothing reports the ends of its requests: their slots are free once `max_hold` has passed, and not before the requests have ended.
async fn an_envoy_that_is_killed_holds_slots_for_max_hold_and_never_lets_more_requests_through() {
    for program in Program::all_with_two_workers() {
        let mut edge = Edge::start(&program, &RULES.replace("max_hold: 1h", "max_hold: 1s"), 30).await;
        let port = edge.envoy.port(LISTENER);
        for _ in 0..KILLS {
            let clients = restless_clients(port, 30);
            tokio::time::sleep(Duration::from_millis(300)).await;
            edge.envoy.kill_and_restart(&program).await;
            for client in clients {
                assert_eq!(client.await.expect("no client panics").undecided, 0);
            }
        }
        let free_after = edge.until_free(LIMIT).await;
        let (most, served) = edge.back_end.figures();
        println!("{}: {served} served, {most} at once; free after {free_after:?}", program.binary.display());
        assert_eq!(most, LIMIT, "the limit is reached, and not exceeded");
    }
}

/// Connections of the client reach either worker, and each worker has a connection to the server: the end of a request and the next start
/// arrive in either order.
#[expect(clippy::disallowed_methods, reason = "states how long the requests took")]
async fn a_client_that_sends_one_request_after_the_other_is_not_denied_by_a_limit_of_one() {
    for program in Program::all_with_two_workers() {
        let denied = async |wait: &str| {
            let rules = RULES
                .replace("in_flight: 3", "in_flight: 1")
                .replace("max_hold: 1h", &format!("max_hold: 1h{wait}"));
            let edge = Edge::start(&program, &rules, 1).await;
            let began = Instant::now();
            let (denials, requests) = sequential_clients(edge.envoy.port(LISTENER)).await;
            println!("{}: {denials} of {requests} denied in {:?}", program.binary.display(), began.elapsed());
            (denials, requests)
        };
        let (by_default, requests) = denied("").await;
        if by_default > requests / 500 {
            // On a busy machine, the end before may come later than the wait. Fewer requests are denied than without a wait, nevertheless.
            let (without, _) = denied(", max_wait: 0s").await;
            assert!(by_default <= without / 3, "{by_default} of {requests} denied, {without} without a wait");
        }
    }
}

/// Clients that send one request after another; returns how many requests were denied, and how many were sent.
pub async fn sequential_clients(port: u16) -> (usize, usize) {
    let clients = (0..SEQUENTIAL_CLIENTS).map(|client| tokio::spawn(sequential_client(client, port)));
    let mut denials = 0;
    for client in clients.collect::<Vec<_>>() {
        denials += client.await.expect("no client panics");
    }
    (denials, SEQUENTIAL_CLIENTS * SEQUENTIAL)
}

/// Sends one request after another; returns how many were denied.
async fn sequential_client(client: usize, port: u16) -> usize {
    let (key, mut denials) = (format!("client-{client}"), 0);
    for _ in 0..SEQUENTIAL {
        let response = http1::fetch(Ipv4Addr::LOCALHOST, port, get(&key)).await.expect("Envoy responds");
        denials += usize::from(response.status() == 429);
    }
    denials
}

crate::tests_with! {
    ENVOY: no_more_requests_are_in_flight_than_the_limit_and_no_slot_is_lost,
    an_envoy_that_is_killed_holds_slots_for_max_hold_and_never_lets_more_requests_through,
    a_client_that_sends_one_request_after_the_other_is_not_denied_by_a_limit_of_one
}
