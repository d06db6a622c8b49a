//! Load on several Envoys before a common back end, which counts the requests that they admit.

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

/// Connections of each client.
const CONNECTIONS: u32 = 2;

/// Parts of a second by which admissions are counted.
const BINS_PER_SECOND: f64 = 50.0;

#[expect(clippy::disallowed_methods, reason = "times requests at the back end, and paces clients")]
fn now() -> Instant {
    Instant::now()
}

/// A request that reached the back end: it was admitted between two times, in seconds since the start of the back end.
#[derive(Clone, Copy, Debug)]
struct Admission {
    sent: f64,
    received: f64,
}

/// Counts the requests that reach it, by their API keys.
pub struct BackEnd {
    began: Instant,
    admitted: Mutex<Vec<(String, Admission)>>,
    counted: AtomicUsize,
}

impl BackEnd {
    /// Starts a back end; returns it and its port.
    pub fn start() -> (Arc<Self>, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        listener.set_nonblocking(true).expect("a socket can be non-blocking");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
        let back_end =
            Arc::new(Self { began: now(), admitted: Mutex::default(), counted: AtomicUsize::default() });
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
        while let Some(head) = read_head(&mut stream, &mut buffer).await {
            let received = self.second();
            let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).expect("sent");
            let (key, sent) = (header("x-api-key: ").to_owned(), header("x-sent: ").parse().expect("a time"));
            self.admitted.lock().expect("no thread panics").push((key, Admission { sent, received }));
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err() {
                return;
            }
        }
    }

    /// Counts a request that was sent at this second, and that was admitted without the back end.
    pub fn count_admitted(&self, key: &str, sent: f64) {
        let admission = Admission { sent, received: self.second() };
        self.admitted.lock().expect("no thread panics").push((key.to_owned(), admission));
        self.counted.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of requests that were counted like this.
    pub fn counted(&self) -> usize {
        self.counted.load(Ordering::Relaxed)
    }

    /// Seconds since its start.
    pub fn second(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub async fn until(&self, second: f64) {
        tokio::time::sleep(Duration::from_secs_f64((second - self.second()).max(0.0))).await;
    }

    fn admissions(&self, key: &str) -> Vec<Admission> {
        let admitted = self.admitted.lock().expect("no thread panics");
        admitted.iter().filter(|(own, _)| own == key).map(|(_, admission)| *admission).collect()
    }

    /// Number of requests with this key.
    pub fn count(&self, key: &str) -> usize {
        self.admissions(key).len()
    }

    /// Requests per second between two times.
    pub fn rate(&self, key: &str, from: f64, to: f64) -> f64 {
        let admissions = self.admissions(key);
        let count = admissions.iter().filter(|admission| (from..to).contains(&admission.received)).count();
        count as f64 / (to - from)
    }

    /// The largest excess of requests over the allowed number, in any interval of any length in seconds. A request counts for an interval
    /// if it was both sent and received in it: however long it was on its way, it was admitted then.
    pub fn most_beyond(&self, key: &str, allowed: impl Fn(f64) -> f64) -> f64 {
        let bin = |second: f64| (second * BINS_PER_SECOND) as usize;
        let bins = bin(self.second()) + 1;
        let mut received = vec![Vec::new(); bins];
        for admission in self.admissions(key) {
            received[bin(admission.sent)].push(bin(admission.received));
        }
        let (mut most, mut counts) = (f64::NEG_INFINITY, vec![0_u32; bins]);
        for (from, received) in received.iter().enumerate().rev() {
            received.iter().for_each(|&bin| counts[bin] += 1);
            let mut sum = 0;
            for (to, count) in counts.iter().enumerate().skip(from).filter(|(_, count)| **count > 0) {
                sum += count;
                most = most.max(f64::from(sum) - allowed((to + 1 - from) as f64 / BINS_PER_SECOND));
            }
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

/// A client of one Envoy, which sends this many requests per second with one API key.
#[derive(Clone)]
pub struct Client {
    key: &'static str,
    rate: Arc<AtomicU32>,
    admitted: Arc<AtomicUsize>,
    back_end: Arc<BackEnd>,
}

impl Client {
    pub fn start(back_end: &Arc<BackEnd>, port: u16, key: &'static str, rate: u32) -> Self {
        let rate = Arc::new(AtomicU32::new(rate));
        let client = Self { key, rate, admitted: Arc::default(), back_end: Arc::clone(back_end) };
        for _ in 0..CONNECTIONS {
            tokio::spawn(client.clone().send(port));
        }
        client
    }

    pub fn set(&self, rate: u32) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// Number of its requests that were admitted.
    pub fn admitted(&self) -> usize {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Ends when the Envoy ends.
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
            // A busy machine may catch up on at most half a second.
            next = next.max(now() - Duration::from_millis(500));
            let (key, sent) = (self.key, self.back_end.second());
            let request =
                format!("GET / HTTP/1.1\r\nhost: shop\r\nx-api-key: {key}\r\nx-sent: {sent}\r\n\r\n");
            stream.write_all(request.as_bytes()).await.ok()?;
            let head = read_head(&mut stream, &mut buffer).await?;
            let is_admitted = head.contains(" 200 ");
            assert!(is_admitted || head.contains(" 429 "), "{head}");
            self.admitted.fetch_add(is_admitted.into(), Ordering::Relaxed);
        }
    }
}
