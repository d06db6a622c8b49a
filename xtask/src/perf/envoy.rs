//! Envoy with one filter, or none: latency of a request, CPU time, and requests in parallel.
//!
//! Each row has one Envoy with one worker and its application in it, on the first core; load and servers are on the second. Envoy calls
//! Tidegate over a Unix socket, and the reference server over TCP. All of them run for the whole measurement, and serve one after the other
//! in short rounds, so that other work of the machine affects all alike.

use super::{
    Place,
    results::Results,
    server::Running,
    suite::{Row, Suite},
};
use anyhow::{Result, ensure};
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// Requests to each Envoy before the first round.
const WARM_UP: usize = 500;
/// Requests per round and Envoy, one after the other.
const REQUESTS: usize = 500;
/// The time per round and Envoy in which requests are sent in parallel, and the number of connections, each with one request in flight.
const PARALLEL: Duration = Duration::from_millis(250);
const CONNECTIONS: usize = 32;
/// The longest wait for a response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The address of a filter that calls no server.
const NO_SERVER: &str = "{ pipe: { path: none } }";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: edge\r\nx-api-key: alice\r\n\r\n";

/// An Envoy, and the servers that its filter calls: the server and its store.
pub(super) struct Envoy {
    envoy: Running,
    client: Client,
    servers: Vec<Running>,
}

impl Envoy {
    pub(super) fn start(row: &Row, filter: &str, suite: &Suite, place: &Place) -> Result<Self> {
        place.write("rules.yaml", &row.rules())?;
        let (mut servers, mut socket, mut address) = (Vec::new(), String::new(), NO_SERVER.to_owned());
        if let Some(called) = row.servers.first() {
            let store = Running::store(&place.server(called)?.run, place)?;
            let running = Running::start(called, 1, &[("STORE", &Running::url(store.as_ref()))], place)?;
            let port = running.address.port();
            address = format!("{{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}");
            if let Some(path) = &running.socket {
                socket = path.display().to_string();
                address = format!("{{ pipe: {{ path: {socket:?} }} }}");
            }
            servers.extend([running].into_iter().chain(store));
        }
        let text = filter.replace("SETTINGS", &suite.settings).replace("SOCKET", &socket);
        let envoy = Running::start("envoy", 0, &[("FILTER", &text), ("CALLED", &address)], place)?;
        let mut client = Client::open(envoy.address)?;
        client.one_by_one(WARM_UP)?;
        Ok(Self { envoy, client, servers })
    }

    /// Measures it for a short time.
    pub(super) fn measure(
        &mut self,
        row: &Row,
        round: u32,
        place: &Place,
        results: &mut Results,
    ) -> Result<()> {
        let part = if place.options.quick { 5 } else { 1 };
        let (requests, length) = (REQUESTS / part, PARALLEL / part as u32);
        let of_servers = || self.servers.iter().map(Running::cpu).sum::<Result<f64>>();
        let (before, servers_before) = (self.envoy.cpu()?, of_servers()?);
        let mut latencies = self.client.one_by_one(requests)?;
        let micros_each = |seconds: f64| seconds * 1e6 / requests as f64;
        let (envoy_cpu, server_cpu) =
            (micros_each(self.envoy.cpu()? - before), micros_each(of_servers()? - servers_before));
        latencies.sort_by(f64::total_cmp);
        let percentile = |per_cent: usize| latencies[(requests - 1) * per_cent / 100];

        let before = self.envoy.cpu()?;
        let served = parallel(self.envoy.address, length)?;
        let seconds = self.envoy.cpu()? - before;
        let mut figures = vec![
            ("p50_us", percentile(50)),
            ("p99_us", percentile(99)),
            ("envoy_cpu_us", envoy_cpu),
            ("requests_per_envoy_core", served as f64 / seconds.max(f64::MIN_POSITIVE)),
        ];
        if !self.servers.is_empty() {
            figures.push(("server_cpu_us", server_cpu));
        }
        results.add(round, (&row.name, row.label("")), &figures);
        Ok(())
    }
}

/// An HTTP/1.1 connection to Envoy that is kept open.
struct Client {
    stream: TcpStream,
    response: Vec<u8>,
}

impl Client {
    fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, response: Vec::with_capacity(1 << 12) })
    }

    fn send(&mut self) -> Result<()> {
        Ok(self.stream.write_all(REQUEST)?)
    }

    /// Reads one response, which must be the application's response.
    fn receive(&mut self) -> Result<()> {
        self.response.clear();
        while !self.response.ends_with(b"\r\n\r\nserved") {
            let mut piece = [0; 1 << 12];
            let count = self.stream.read(&mut piece)?;
            ensure!(count > 0, "Envoy closed a connection: {}", String::from_utf8_lossy(&self.response));
            self.response.extend_from_slice(&piece[..count]);
        }
        let is_ok = self.response.starts_with(b"HTTP/1.1 200 ");
        ensure!(is_ok, "a request failed: {}", String::from_utf8_lossy(&self.response));
        Ok(())
    }

    /// Sends requests, each after the response to the one before: the microseconds that each took.
    #[expect(clippy::disallowed_methods, reason = "a measurement is of the real clock")]
    fn one_by_one(&mut self, count: usize) -> Result<Vec<f64>> {
        let mut one = || {
            let sent = Instant::now();
            self.send()?;
            self.receive()?;
            Ok(sent.elapsed().as_secs_f64() * 1e6)
        };
        (0..count).map(|_| one()).collect()
    }
}

/// Keeps one request in flight on each of [`CONNECTIONS`] connections for a while: the number of responses.
#[expect(clippy::disallowed_methods, reason = "a measurement is of the real clock")]
fn parallel(address: SocketAddr, length: Duration) -> Result<usize> {
    let mut clients = (0..CONNECTIONS).map(|_| Client::open(address)).collect::<Result<Vec<_>>>()?;
    let (began, mut served) = (Instant::now(), 0);
    clients.iter_mut().try_for_each(Client::send)?;
    while began.elapsed() < length {
        for client in &mut clients {
            client.receive()?;
            client.send()?;
        }
        served += CONNECTIONS;
    }
    clients.iter_mut().try_for_each(Client::receive)?;
    Ok(served + CONNECTIONS)
}
