//! Envoy with one filter, or none: latency of a request, CPU time, and requests in parallel.
//!
//! One Envoy with one worker per row, with its application in it, on the first core; load and servers on the second. Tidegate is called
//! by a Unix socket, the reference server by TCP. All of them run for the whole measurement, and serve one after the other in short
//! rounds, so that what else the machine does affects all.

use super::{
    Place,
    process::Process,
    results::Results,
    server::{Running, cpu, free_port},
    suite::{ENVOY, Filter, Suite},
};
use anyhow::{Context as _, Result, ensure};
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

const BOOTSTRAP: &str = include_str!("suites/bootstrap.yaml");

/// Requests to each Envoy before the first round.
const WARM_UP: usize = 500;
/// Requests per round and Envoy, one after the other.
const REQUESTS: usize = 500;
/// Time per round and Envoy of requests that are sent in parallel, and the connections with a request in flight each.
const PARALLEL: Duration = Duration::from_millis(250);
const CONNECTIONS: usize = 32;
/// The longest wait for a response.
const TIMEOUT: Duration = Duration::from_secs(10);

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: edge\r\nx-api-key: alice\r\n\r\n";

/// An Envoy, and the servers that its filter calls: the server and its store.
pub(super) struct Envoy<'s> {
    name: &'s str,
    process: Process,
    client: Client,
    servers: Vec<Running>,
}

/// Starts the Envoys of a suite.
pub(super) fn start<'s>(suite: &'s Suite, place: &Place) -> Result<Vec<Envoy<'s>>> {
    let called = |filter: &&Filter| filter.calls.as_ref().is_none_or(|server| !place.absent.contains(server));
    let start = |filter: &'s Filter| Envoy::start(filter, suite, place).with_context(|| filter.name.clone());
    suite.filters.iter().filter(called).map(start).collect()
}

impl<'s> Envoy<'s> {
    fn start(filter: &'s Filter, suite: &Suite, place: &Place) -> Result<Self> {
        let rules = place.write("rules.yaml", &suite.rules.text(0))?;
        let name = filter.name.replace([' ', ','], "-");
        // Without a server, the path is that of no socket.
        let (mut servers, mut socket, mut port) = (Vec::new(), Some(place.files.join("none")), 0);
        if let Some(called) = &filter.calls {
            let store = Running::store(&place.server(called)?.run, place)?;
            let running = Running::start(called, 1, &[("STORE", &Running::url(store.as_ref()))], place)?;
            (socket, port) = (running.socket.clone(), running.address.port());
            servers.extend([running].into_iter().chain(store));
        }
        let called = match &socket {
            Some(socket) => format!("{{ pipe: {{ path: {socket:?} }} }}"),
            None => format!("{{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}"),
        };
        let socket = socket.unwrap_or_default();
        let address = free_port()?;
        let text =
            filter.filter.replace("SETTINGS", &suite.settings).replace("SOCKET", &socket.to_string_lossy());
        let config = BOOTSTRAP
            .replace("FILTER", &text)
            .replace("ADDRESS", &called)
            .replace("LISTEN", &address.port().to_string())
            .replace("APPLICATION", &place.files.join(format!("{name}.socket")).to_string_lossy());
        let config = place.write(&format!("{name}.yaml"), &config)?;
        let arguments = "--concurrency 1 --disable-hot-restart --log-level warning";
        let mut command =
            place.shell(Some(0), &format!("exec \"$ENVOY\" {arguments} --config-path \"$CONFIG\""));
        command.env("CONFIG", config).env("TIDEGATE_RULES", rules);
        command.env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", &place.programs);
        let serves = || Client::open(address).is_ok_and(|mut client| client.one_by_one(1).is_ok());
        let process = Process::start(command, &place.files.join(format!("{name}.log")), serves)?;
        let mut client = Client::open(address)?;
        client.one_by_one(WARM_UP)?;
        Ok(Self { name: &filter.name, process, client, servers })
    }

    /// Measures it for a short time.
    pub(super) fn measure(&mut self, round: u32, place: &Place, results: &mut Results) -> Result<()> {
        let part = if place.options.quick { 5 } else { 1 };
        let (requests, length) = (REQUESTS / part, PARALLEL / part as u32);
        let of_servers = || self.servers.iter().map(Running::cpu).sum::<Result<f64>>();
        let pid = self.process.pid();
        let (before, servers_before) = (cpu(pid)?, of_servers()?);
        let mut latencies = self.client.one_by_one(requests)?;
        let micros_each = |seconds: f64| seconds * 1e6 / requests as f64;
        let (envoy_cpu, server_cpu) =
            (micros_each(cpu(pid)? - before), micros_each(of_servers()? - servers_before));
        latencies.sort_by(f64::total_cmp);
        let percentile = |per_cent: usize| latencies[(requests - 1) * per_cent / 100];

        let before = cpu(pid)?;
        let served = parallel(self.client.address, length)?;
        let seconds = cpu(pid)? - before;
        let mut figures = vec![
            ("p50_us", percentile(50)),
            ("p99_us", percentile(99)),
            ("envoy_cpu_us", envoy_cpu),
            ("requests_per_envoy_core", served as f64 / seconds.max(f64::MIN_POSITIVE)),
        ];
        if !self.servers.is_empty() {
            figures.push(("server_cpu_us", server_cpu));
        }
        results.add(round, (self.name, ENVOY), &figures);
        Ok(())
    }
}

/// An HTTP/1.1 connection to Envoy that is kept open.
struct Client {
    address: SocketAddr,
    stream: TcpStream,
    response: Vec<u8>,
}

impl Client {
    fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { address, stream, response: Vec::with_capacity(1 << 12) })
    }

    fn send(&mut self) -> Result<()> {
        Ok(self.stream.write_all(REQUEST)?)
    }

    /// Reads one response, which must be that of the application.
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

    /// Sends requests, each after the response to the former: the microseconds that each took.
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
