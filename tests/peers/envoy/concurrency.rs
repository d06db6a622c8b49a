//! Requests in flight behind a real Envoy, as the back end counts them: clients that give up, denials, and failures of the back end.

use super::APPLICATION;
use crate::{
    envoy_process::Envoy,
    support::{Client, Server, descriptor, http1, rules_file},
};
use http::Request;
use rustix::net::{RecvFlags, recv};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tidegate::api::pb::common::RateLimitDescriptor;

/// The listener of the config.
const LISTENER: u16 = 8000;
const LIMIT: usize = 3;
const CLIENTS: u64 = 12;
const REQUESTS: usize = 150;

/// A slot that is lost is not free again within the test.
const RULES: &str = "
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
struct BackEnd {
    in_flight: Mutex<Vec<(usize, TcpStream)>>,
    most: AtomicUsize,
    served: AtomicUsize,
}

impl BackEnd {
    fn start() -> (Arc<Self>, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let back_end = Arc::new(Self::default());
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
        // One read returns the whole of so small a request.
        if !matches!(stream.read(&mut [0; 4096]), Ok(1..)) {
            return;
        }
        self.begin(number, &stream);
        let work = Duration::from_millis(1 + numbers.below(30));
        stream.set_read_timeout(Some(work)).expect("not zero");
        // Ends early if Envoy closes the connection, because the client has gone.
        let is_closed = matches!(stream.read(&mut [0; 1]), Ok(0));
        self.in_flight.lock().expect("no thread panics").retain(|(of, _)| *of != number);
        if !is_closed && numbers.below(7) > 0 {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    }

    /// Counts the requests in flight with this one: those whose connections Envoy has not closed. It closes them before it reports
    /// their ends.
    fn begin(&self, number: usize, stream: &TcpStream) {
        let mut in_flight = self.in_flight.lock().expect("no thread panics");
        in_flight.retain(|(_, stream)| is_open(stream));
        // Last: what is open now was so while the others were looked at. This thread may be late, and Envoy have closed it.
        if !is_open(stream) {
            return;
        }
        in_flight.push((number, stream.try_clone().expect("a file descriptor")));
        self.most.fetch_max(in_flight.len(), Ordering::Relaxed);
        self.served.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether the peer has not closed a connection on which it sends nothing more.
fn is_open(stream: &TcpStream) -> bool {
    let peeked = recv(stream, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    matches!(peeked, Err(rustix::io::Errno::AGAIN))
}

async fn remaining(client: &mut Client) -> usize {
    let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("api_key", "one")]) };
    let response = client.should_rate_limit("edge", vec![peek]).await.expect("a decision");
    response.statuses[0].limit_remaining as usize
}

async fn no_more_requests_are_in_flight_than_the_limit_and_no_slot_is_lost() {
    let rules = rules_file(RULES);
    let server = Server::with_rules(rules.path(), &[]);
    let (back_end, port) = BackEnd::start();
    let config =
        include_str!("../../../deploy/envoy/concurrency.yaml").replace("timeout: 0.25s", "timeout: 5s");
    let envoy = Envoy::start_with(&config, server.address(), &[(APPLICATION, port)]).await;
    let port = envoy.port(LISTENER);
    let clients = (1..=CLIENTS).map(|client| {
        tokio::spawn(async move {
            let (mut numbers, mut statuses) =
                (Numbers(client.wrapping_mul(0x2545_f491_4f6c_dd1d)), Vec::new());
            for _ in 0..REQUESTS {
                let request = Request::get("/").header("x-api-key", "one");
                let fetched = http1::fetch(Ipv4Addr::LOCALHOST, port, request);
                // One in four gives up at some time, half of these while the decision is on its way.
                let patience = match numbers.below(8) {
                    0 => Duration::from_micros(numbers.below(2_000)),
                    1 => Duration::from_millis(numbers.below(25)),
                    _ => Duration::from_secs(30),
                };
                if let Ok(response) = tokio::time::timeout(patience, fetched).await {
                    let status = response.expect("Envoy responds").status().as_u16();
                    statuses.push(status);
                    if status == 429 {
                        tokio::time::sleep(Duration::from_millis(1 + numbers.below(20))).await;
                    }
                }
            }
            statuses
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut counts = [0; 3];
    for client in clients {
        for status in client.await.expect("no client panics") {
            let which = match status {
                200 => 0,
                429 => 1,
                503 | 502 => 2,
                other => panic!("HTTP status {other}"),
            };
            counts[which] += 1;
        }
    }
    let (most, served) = (back_end.most.load(Ordering::Relaxed), back_end.served.load(Ordering::Relaxed));
    let [responded, denied, failed] = counts;
    println!("{served} served, {most} at once; {responded} responses, {denied} denials, {failed} failures");
    assert!(responded > 0 && denied > 0 && failed > 0, "{counts:?}");
    assert_eq!(most, LIMIT, "the limit is reached, and not exceeded");
    let mut client = server.client().await;
    let mut free = 0;
    for _ in 0..super::PATIENCE.as_millis() / super::POLL.as_millis() {
        free = remaining(&mut client).await;
        if free == LIMIT {
            break;
        }
        tokio::time::sleep(super::POLL).await;
    }
    assert_eq!(free, LIMIT, "slots free after the last request");
}

crate::tests_with! { ENVOY: no_more_requests_are_in_flight_than_the_limit_and_no_slot_is_lost }
