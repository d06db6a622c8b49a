//! Envoy with one filter, or none: latency of a request, CPU time, and requests in parallel.
//!
//! One Envoy with one worker per row, with its application in it, on the first core; load and servers on the second. Tidegate is called
//! by a Unix socket, the reference server by TCP. All of them run for the whole measurement, and serve one after the other in short
//! rounds, so that what else the machine does affects all.

use super::{
    Place,
    http::{Client, parallel},
    process::{Process, cpu_micros, free_port},
    results::Results,
    server::{Server, Store, reference},
    suite::{ENVOY, Filter, Suite},
};
use crate::Failure;
use std::{os::unix::net::UnixStream, path::Path, time::Duration};

const BOOTSTRAP: &str = include_str!("suites/bootstrap.yaml");

/// One limit that no load reaches.
const RULES: &str = "domain: edge
descriptors:
  - key: api_key
    rate_limit: { unit: day, requests_per_unit: 4000000000 }
";

/// Requests to each Envoy before the first round.
const WARM_UP: usize = 500;
/// Requests per round and Envoy, one after the other.
const REQUESTS: usize = 500;
/// Time per round and Envoy of requests that are sent in parallel.
const PARALLEL: Duration = Duration::from_millis(250);

/// The Envoys of a suite.
pub(super) struct Envoys<'s> {
    rows: Vec<Row<'s>>,
    /// The servers that they call, which end with this.
    _servers: Vec<Process>,
    _store: Option<Store>,
}

/// An Envoy, and the processes whose CPU is that of its server.
struct Row<'s> {
    name: &'s str,
    envoy: Process,
    client: Client,
    servers: Vec<u32>,
}

impl<'s> Envoys<'s> {
    pub(super) fn start(suite: &'s Suite, place: &Place) -> Result<Self, Failure> {
        let mut envoys = Self { rows: Vec::new(), _servers: Vec::new(), _store: None };
        if suite.filters.is_empty() {
            return Ok(envoys);
        }
        let rules = place.write("perf-rules.yaml", RULES)?;
        let socket = place.file("perf-tidegate.socket");
        let mut command = place.machine.on_core(1, place.program("tidegate"));
        command
            .args(["serve", "--threads", "1", "--leases", "--listen"])
            .arg(format!("unix:{}", socket.display()));
        command.arg("--rules").arg(&rules);
        let is_ready = || UnixStream::connect(&socket).is_ok();
        let tidegate = Process::start("tidegate", command, &place.file("perf-tidegate.log"), is_ready)?;
        let of_tidegate = (format!("{{ pipe: {{ path: {socket:?} }} }}"), vec![tidegate.pid()]);
        envoys._servers.push(tidegate);
        for filter in &suite.filters {
            let (address, servers) = match filter.calls {
                Some(Server::Reference) if !place.has(Server::Reference) => continue,
                Some(Server::Reference) => envoys.start_reference(place)?,
                Some(_) => of_tidegate.clone(),
                None => (of_tidegate.0.clone(), Vec::new()),
            };
            let (settings, socket) = (&suite.settings, socket.to_string_lossy());
            let text = filter.filter.replace("SETTINGS", settings).replace("SOCKET", &socket);
            let row = Row::start(
                filter,
                &BOOTSTRAP.replace("FILTER", &text).replace("ADDRESS", &address),
                servers,
                &rules,
                place,
            );
            envoys.rows.push(row.map_err(|failure| format!("{}: {failure}", filter.name))?);
        }
        Ok(envoys)
    }

    /// The reference server and its store, on the core of the load: its address as Envoy writes it, and the processes.
    fn start_reference(&mut self, place: &Place) -> Result<(String, Vec<u32>), Failure> {
        let (store, address) = (Store::start(place)?, free_port()?);
        let command = reference(place, 1, RULES, &store, address)?;
        let log = place.file("perf-reference.log");
        let server = Process::listening("the reference server", command, &log, address)?;
        let pids = vec![server.pid(), store.pid()];
        self._servers.push(server);
        self._store = Some(store);
        Ok((format!("{{ socket_address: {{ address: 127.0.0.1, port_value: {} }} }}", address.port()), pids))
    }

    /// Measures each Envoy for a short time.
    pub(super) fn measure(
        &mut self,
        round: u32,
        place: &Place,
        results: &mut Results,
    ) -> Result<(), Failure> {
        for row in &mut self.rows {
            let (requests, length) =
                if place.options.quick { (REQUESTS / 5, PARALLEL / 5) } else { (REQUESTS, PARALLEL) };
            let figures = row.measure(requests, length)?;
            results.add(round, (row.name, ENVOY), &figures);
        }
        Ok(())
    }
}

impl<'s> Row<'s> {
    fn start(
        filter: &'s Filter,
        bootstrap: &str,
        servers: Vec<u32>,
        rules: &Path,
        place: &Place,
    ) -> Result<Self, Failure> {
        let (address, name) = (free_port()?, filter.name.replace([' ', ','], "-"));
        let application = place.file(&format!("perf-{name}.socket"));
        let config = bootstrap
            .replace("LISTEN", &address.port().to_string())
            .replace("APPLICATION", &application.to_string_lossy());
        let config = place.write(&format!("perf-{name}.yaml"), &config)?;
        let mut command = place.machine.on_core(0, &place.options.envoy);
        command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]);
        command.arg("--config-path").arg(config);
        command.env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", &place.programs).env("TIDEGATE_RULES", rules);
        let serves = || Client::open(address).is_ok_and(|mut client| client.one_by_one(1).is_ok());
        let envoy = Process::start("Envoy", command, &place.file(&format!("perf-{name}.log")), serves)?;
        let mut client = Client::open(address)?;
        client.one_by_one(WARM_UP)?;
        Ok(Self { name: &filter.name, envoy, client, servers })
    }

    fn measure(&mut self, requests: usize, length: Duration) -> Result<Vec<(&'static str, f64)>, Failure> {
        let pid = self.envoy.pid();
        let of_servers =
            || self.servers.iter().map(|server| cpu_micros(*server)).sum::<Result<f64, Failure>>();
        let (before, server_before) = (cpu_micros(pid)?, of_servers()?);
        let mut latencies = self.client.one_by_one(requests)?;
        let cpu = (cpu_micros(pid)? - before) / requests as f64;
        let server_cpu = (of_servers()? - server_before) / requests as f64;
        latencies.sort_by(f64::total_cmp);
        let percentile = |per_cent: usize| latencies[(requests - 1) * per_cent / 100];

        let before = cpu_micros(pid)?;
        let served = parallel(self.client.address, length)?;
        let seconds = (cpu_micros(pid)? - before) / 1e6;
        let mut figures = vec![
            ("p50_us", percentile(50)),
            ("p99_us", percentile(99)),
            ("envoy_cpu_us", cpu),
            ("requests_per_envoy_core", served as f64 / seconds.max(f64::MIN_POSITIVE)),
        ];
        if !self.servers.is_empty() {
            figures.push(("server_cpu_us", server_cpu));
        }
        Ok(figures)
    }
}
