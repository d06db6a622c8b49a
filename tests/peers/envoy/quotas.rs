//! Limits that several real Envoys enforce by themselves, by the quotas that the server sends them (RLQS), as a common back end counts them.

use super::{APPLICATION, serve_rules};
use crate::{envoy_process::Envoy, support::Server};
use std::{
    net::{Ipv4Addr, TcpListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

/// The limit of `deploy/envoy/rlqs-rules.yaml`.
const RATE: f64 = 200.0;
const BURST: f64 = 100.0;

/// The listener of the config.
const LISTENER: u16 = 8000;
const ENVOYS: usize = 5;
/// Connections of each client.
const CONNECTIONS: u32 = 2;

#[expect(clippy::disallowed_methods, reason = "times requests at the back end, and paces clients")]
fn now() -> Instant {
    Instant::now()
}

/// Times at which requests reached the back end.
struct BackEnd {
    began: Instant,
    received: Mutex<Vec<f64>>,
}

impl BackEnd {
    fn start() -> (Arc<Self>, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        listener.set_nonblocking(true).expect("a socket can be non-blocking");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
        let back_end = Arc::new(Self { began: now(), received: Mutex::default() });
        let of_task = Arc::clone(&back_end);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&of_task).serve(stream));
            }
        });
        (back_end, port)
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let mut buffer = Vec::new();
        while read_head(&mut stream, &mut buffer).await.is_some() {
            let second = self.second();
            self.received.lock().expect("no thread panics").push(second);
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err() {
                return;
            }
        }
    }

    /// Seconds since its start.
    fn second(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    async fn until(&self, second: f64) {
        tokio::time::sleep(Duration::from_secs_f64((second - self.second()).max(0.0))).await;
    }

    fn times(&self) -> Vec<f64> {
        let mut times = self.received.lock().expect("no thread panics").clone();
        times.sort_by(f64::total_cmp);
        times
    }

    /// Requests per second between two times.
    fn rate(&self, from: f64, to: f64) -> f64 {
        let count = self.times().iter().filter(|time| (from..to).contains(*time)).count();
        count as f64 / (to - from)
    }

    /// The most requests in any interval of a second or more beyond what the rate admits in it.
    fn most_beyond_rate(&self) -> f64 {
        let times = self.times();
        let (mut most, mut least_before, mut next_before) = (0.0_f64, f64::INFINITY, 0);
        for (index, time) in times.iter().enumerate() {
            // Intervals that begin with a request a second or more before this one, which they end with.
            while times[next_before] <= time - 1.0 {
                least_before = least_before.min(next_before as f64 - RATE * times[next_before]);
                next_before += 1;
            }
            most = most.max(index as f64 + 1.0 - RATE * time - least_before);
            // The second that ends with this one.
            most = most.max((index + 1 - next_before) as f64 - RATE);
        }
        most
    }
}

/// Reads up to the end of a message's head; returns it, or none at the end of the connection.
async fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = buffer.drain(..end + 4).collect::<Vec<u8>>();
            return Some(String::from_utf8_lossy(&head).into_owned());
        }
        if !matches!(stream.read_buf(buffer).await, Ok(1..)) {
            return None;
        }
    }
}

/// A client of one Envoy, which sends so many requests per second.
#[derive(Clone, Default)]
struct Client {
    rate: Arc<AtomicU32>,
    sent: Arc<AtomicUsize>,
}

impl Client {
    fn start(port: u16, rate: u32) -> Self {
        let client = Self { rate: Arc::new(AtomicU32::new(rate)), sent: Arc::default() };
        for _ in 0..CONNECTIONS {
            tokio::spawn(client.clone().send(port));
        }
        client
    }

    fn set(&self, rate: u32) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// Ends with the Envoy.
    async fn send(self, port: u16) -> Option<()> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let (mut buffer, mut next) = (Vec::new(), now());
        loop {
            let rate = self.rate.load(Ordering::Relaxed);
            if rate == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
                next = now();
                continue;
            }
            next += Duration::from_secs_f64(f64::from(CONNECTIONS) / f64::from(rate));
            tokio::time::sleep_until(next).await;
            // A busy machine makes up for no more than half a second.
            next = next.max(now() - Duration::from_millis(500));
            stream.write_all(b"GET / HTTP/1.1\r\nhost: shop\r\nx-api-key: alice\r\n\r\n").await.ok()?;
            let head = read_head(&mut stream, &mut buffer).await?;
            assert!(head.contains(" 200 ") || head.contains(" 429 "), "{head}");
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Envoys with the config of `deploy/envoy/`, and their clients, of which each has a number in `rates`.
async fn envoys(server: &Server, back_end: u16, rates: &[u32]) -> Vec<(Envoy, Client)> {
    let mut all = Vec::new();
    for rate in rates {
        let envoy = Envoy::start("rlqs.yaml", server.address(), &[(APPLICATION, back_end)]).await;
        let client = Client::start(envoy.port(LISTENER), *rate);
        all.push((envoy, client));
    }
    all
}

fn serve(listen: &str) -> Server {
    serve_rules("rlqs-rules.yaml", listen, &[])
}

/// Waits until the share of all is nearly that which is possible; returns the second.
async fn reached(back_end: &BackEnd, of: f64, patience: f64) -> f64 {
    let began = back_end.second();
    loop {
        back_end.until(back_end.second() + 1.0).await;
        let now = back_end.second();
        if back_end.rate(now - 2.0, now) >= 0.95 * of {
            return now - began;
        }
        assert!(now - began < patience, "{:.1} requests/s after {patience} s", back_end.rate(now - 2.0, now));
    }
}

async fn envoys_divide_a_limit_and_keep_it_through_kills_and_restarts() {
    let (back_end, port) = BackEnd::start();
    let mut server = serve("127.0.0.1:0");
    let address = server.address().to_owned();
    let mut envoys = envoys(&server, port, &[160, 80, 40, 20, 0]).await;
    assert_eq!(envoys.len(), ENVOYS);
    let took = reached(&back_end, RATE, 40.0).await;
    let from = back_end.second() + 3.0;
    back_end.until(from + 10.0).await;
    let steady = back_end.rate(from, from + 10.0);
    println!("from the start of the server {took:.1} s; then {steady:.1} of {RATE} requests/s");
    // 196 of 200 were measured; one report late costs some percent.
    assert!(steady >= 0.93 * RATE, "{steady} requests/s");

    // All load moves to others.
    for ((_, client), rate) in envoys.iter().zip([0, 0, 0, 150, 150]) {
        client.set(rate);
    }
    let took = reached(&back_end, RATE, 20.0).await;
    println!("{took:.1} s after all load has moved");

    let killed = envoys.pop().expect("there are five");
    killed.1.set(0);
    drop(killed);
    envoys[0].1.set(150);
    let took = reached(&back_end, RATE, 30.0).await;
    println!("{took:.1} s after the kill of an Envoy with half of the load");

    server.signal_until_it_ends(rustix::process::Signal::KILL);
    drop(server);
    back_end.until(back_end.second() + 1.0).await;
    let _server = serve(&address);
    let took = reached(&back_end, RATE, 40.0).await;
    println!("{took:.1} s after the kill of the server");
    let most = back_end.most_beyond_rate();
    println!(
        "{:.0} s in all; at most {most:.0} requests beyond the rate, of a burst of {BURST}",
        back_end.second()
    );
    assert!(most <= BURST, "{most} requests beyond the rate");
}

crate::tests_with! {
    ENVOY: envoys_divide_a_limit_and_keep_it_through_kills_and_restarts
}
