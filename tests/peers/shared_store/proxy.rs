//! A proxy between servers and their store, which delays responses, cuts connections or silences one of them.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// A running proxy; it ends with its runtime.
pub struct Proxy {
    port: u16,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    delay_ms: AtomicU64,
    /// One of this many responses is delayed; zero delays all.
    one_in: AtomicU64,
    responses: AtomicU64,
    cuts: AtomicBool,
    /// Connections so far. Each has its number among them, from 1.
    connections: AtomicU64,
    /// The connection of the last call of a script; zero if there was none.
    deciding: AtomicU64,
    /// The connection that forwards nothing; zero if all do.
    silenced: AtomicU64,
}

impl Proxy {
    /// Forwards connections to this port of loopback.
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let faults = Arc::new(Faults::default());
        let of_connections = Arc::clone(&faults);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, to, Arc::clone(&of_connections)));
            }
        });
        Self { port, faults }
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Delays each response from now on.
    pub fn delay(&self, delay: Duration) {
        self.faults.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }

    /// Delays one of this many responses from now on.
    pub fn delay_one_in(&self, responses: u64, delay: Duration) {
        self.faults.one_in.store(responses, Ordering::Relaxed);
        self.delay(delay);
    }

    /// From now on, closes each connection after half of its next response; or stops doing so.
    pub fn cut(&self, cuts: bool) {
        self.faults.cuts.store(cuts, Ordering::Relaxed);
    }

    /// The number of the connection of the last call of a script.
    pub fn deciding(&self) -> u64 {
        self.faults.deciding.load(Ordering::Relaxed)
    }

    /// From now on, this connection forwards nothing, and stays open.
    pub fn silence(&self, connection: u64) {
        self.faults.silenced.store(connection, Ordering::Relaxed);
    }
}

async fn forward(client: TcpStream, to: u16, faults: Arc<Faults>) {
    let Ok(store) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], to))).await else { return };
    let (from_client, mut to_client) = client.into_split();
    let (mut from_store, to_store) = store.into_split();
    let number = faults.connections.fetch_add(1, Ordering::Relaxed) + 1;
    let requests = tokio::spawn(forward_requests(from_client, to_store, number, Arc::clone(&faults)));
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from_store.read(&mut buffer).await {
        let delay = faults.delay_ms.load(Ordering::Relaxed);
        let number = faults.responses.fetch_add(1, Ordering::Relaxed);
        if delay > 0 && number.is_multiple_of(faults.one_in.load(Ordering::Relaxed).max(1)) {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        let cuts = faults.cuts.load(Ordering::Relaxed);
        let passed = if cuts { length / 2 } else { length };
        if to_client.write_all(&buffer[..passed]).await.is_err() || cuts {
            break;
        }
    }
    requests.abort();
}

async fn forward_requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, number: u64, faults: Arc<Faults>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if faults.silenced.load(Ordering::Relaxed) == number {
            continue;
        }
        if buffer[..length].windows(7).any(|word| word == b"EVALSHA") {
            faults.deciding.store(number, Ordering::Relaxed);
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
}
