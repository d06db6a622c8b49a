//! `cargo xtask perf-envoy`: cost of a rate limit to a request through Envoy, by the module and by the `ratelimit` filter, beside no filter.
//!
//! One Envoy with one worker per row, with its application in it, on the first core; load and servers on the second. Tidegate is called by
//! a Unix socket, the reference server by TCP, and its store is on a third core if there is one. All of them run for the whole measurement, and serve one after the other in short rounds, so that what else the machine does affects all. A figure is
//! the median over rounds of the difference to the row without a filter in the same round.

mod client;
mod config;
mod process;

use super::{machine::Machine, table};
use crate::Failure;
use clap::Args;
use client::Client;
use process::{Envoy, Programs, ReferenceServer, Server, cpu_nanos};
use serde_json::json;
use std::{fs, path::PathBuf, process::ExitCode, time::Duration};

/// Requests to each Envoy before the first round.
const WARM_UP: usize = 500;
/// Connections with a request in flight each, where throughput is measured.
const CONNECTIONS: usize = 32;

/// The most that the module may add to the median latency of a request, and to Envoy's CPU time.
const ADDED_MICROS_MAX: f64 = 10.0;
const ADDED_CPU_MICROS_MAX: f64 = 15.0;
/// The largest part that the module may add of what the filter adds.
const SHARE_MAX: f64 = 1.0 / 8.0;

/// Measures what a rate limit adds to a request through Envoy, by the module and by the ratelimit filter.
#[derive(Args)]
pub(crate) struct PerfEnvoy {
    /// Rounds over all Envoys.
    #[arg(long, default_value_t = 40)]
    rounds: usize,
    /// Requests per round and Envoy, one after the other.
    #[arg(long, default_value_t = 500)]
    requests: usize,
    /// Milliseconds per round and Envoy of requests that are sent in parallel.
    #[arg(long, default_value_t = 250)]
    parallel_millis: u64,
    /// A smoke test: no bar can fail.
    #[arg(long)]
    quick: bool,
    /// The program of Envoy.
    #[arg(long, value_name = "PATH", default_value = "envoy")]
    envoy: PathBuf,
    /// The reference server, instead of one built with Go.
    #[arg(long, value_name = "PATH")]
    reference: Option<PathBuf>,
    /// Folder with `tidegate` and `libtidegate.so`, instead of a build with the profile dist.
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
    /// File for the figures of all rounds as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The filter of an Envoy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Row {
    None,
    /// The module, with rules and counters of its process.
    Module,
    /// The module, by leases of the server.
    Leased,
    /// The filter, which calls a Tidegate server for each request.
    Filter,
    /// The filter, which calls the reference server, with a store.
    Reference,
}

impl Row {
    const ALL: [Self; 5] = [Self::None, Self::Module, Self::Leased, Self::Filter, Self::Reference];

    fn name(self) -> &'static str {
        match self {
            Self::None => "no filter",
            Self::Module => "module",
            Self::Leased => "module with leases",
            Self::Filter => "ratelimit filter",
            Self::Reference => "ratelimit filter, reference server",
        }
    }

    fn is_of_module(self) -> bool {
        matches!(self, Self::Module | Self::Leased)
    }
}

/// What is measured of a row in a round, in microseconds, or per second of Envoy's CPU time.
#[derive(Clone, Copy, Default)]
struct Sample {
    p50: f64,
    p99: f64,
    /// Of Envoy, per request.
    cpu: f64,
    /// Of the server, per request.
    server_cpu: f64,
    /// Requests in parallel per second of Envoy's CPU time.
    per_core: f64,
}

/// A row: its Envoy, the processes that this calls, and its samples.
struct Subject {
    row: Row,
    envoy: Envoy,
    servers: Vec<u32>,
    client: Client,
    samples: Vec<Sample>,
}

/// What was measured: the samples of each row, by round.
struct Results(Vec<(Row, Vec<Sample>)>);

impl PerfEnvoy {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (rounds, requests, millis) = match self.quick {
            true => (3, 100, 50),
            false => (self.rounds.max(1), self.requests.max(1), self.parallel_millis.max(1)),
        };
        let machine = Machine::here()?;
        let programs = Programs::find(&self.envoy, self.programs.as_deref())?;
        machine.leave_the_servers_core()?;
        println!("{machine}; {}", programs.envoy_version);
        if machine.cores < 2 {
            println!("Only one core: Envoy and load share it.");
        }
        let server = Server::start(&machine, &programs)?;
        let reference = ReferenceServer::start(&machine, &programs, self.reference.as_deref());
        if let Err(failure) = &reference {
            println!("The reference server is not measured: {failure}");
        }
        let reference = reference.ok();
        let mut subjects = Vec::new();
        for row in Row::ALL {
            let (address, servers) = match (row, &reference) {
                (Row::Reference, None) => continue,
                (Row::Reference, Some(reference)) => {
                    (config::address(reference.address()), reference.pids().to_vec())
                }
                (Row::None | Row::Module, _) => (config::pipe(&server.socket), Vec::new()),
                (Row::Leased | Row::Filter, _) => (config::pipe(&server.socket), vec![server.pid()]),
            };
            let envoy = Envoy::start(row, &machine, &programs, &address)?;
            let mut client = Client::open(envoy.address)?;
            client.one_by_one(WARM_UP)?;
            subjects.push(Subject { row, envoy, servers, client, samples: Vec::new() });
        }
        for round in 0..rounds {
            // In another order each time.
            subjects.rotate_left(round % 2 + 1);
            for subject in &mut subjects {
                subject.measure(requests, Duration::from_millis(millis))?;
            }
        }
        subjects.sort_by_key(|subject| Row::ALL.iter().position(|row| *row == subject.row));
        let results = Results(subjects.into_iter().map(|subject| (subject.row, subject.samples)).collect());
        println!("{}", results.figures().trim_fmt());
        let bars = results.bars();
        println!("\n{}", table_of_bars(&bars).trim_fmt());
        if let Some(path) = &self.json {
            let report = results.json(&machine.to_string(), &programs.envoy_version, &bars);
            fs::write(path, format!("{report:#}\n"))
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let missed = bars.iter().filter(|bar| bar.is_missed()).count();
        println!("{missed} of {} bars missed", bars.len());
        Ok(if missed == 0 || self.quick { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Subject {
    fn measure(&mut self, requests: usize, parallel: Duration) -> Result<(), Failure> {
        let pid = self.envoy.pid();
        let of_servers =
            || self.servers.iter().map(|server| cpu_nanos(*server)).sum::<Result<u64, Failure>>();
        let (before, server_before) = (cpu_nanos(pid)?, of_servers()?);
        let mut latencies = self.client.one_by_one(requests)?;
        let micros = |before: u64, after: u64| (after - before) as f64 / 1_000.0 / requests as f64;
        let cpu = micros(before, cpu_nanos(pid)?);
        let server_cpu = micros(server_before, of_servers()?);
        latencies.sort_unstable();
        let percentile = |per_mille: usize| latencies[(requests - 1) * per_mille / 1_000] as f64 / 1_000.0;

        let before = cpu_nanos(pid)?;
        let served = client::parallel(self.envoy.address, CONNECTIONS, parallel)?;
        let seconds = (cpu_nanos(pid)? - before) as f64 / 1e9;
        let per_core = served as f64 / seconds.max(f64::MIN_POSITIVE);
        self.samples.push(Sample { p50: percentile(500), p99: percentile(990), cpu, server_cpu, per_core });
        Ok(())
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A bound on a figure.
struct Bar {
    about: String,
    most: f64,
    measured: f64,
}

impl Bar {
    /// Also if there is no figure.
    fn is_missed(&self) -> bool {
        self.measured.is_nan() || self.measured > self.most
    }
}

impl Results {
    fn samples(&self, row: Row) -> &[Sample] {
        self.0.iter().find(|(own, _)| *own == row).map_or(&[], |(_, samples)| samples)
    }

    /// The median over rounds of a figure.
    fn median(&self, row: Row, figure: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples(row).iter().map(figure).collect())
    }

    /// The median over rounds of what a row adds to a figure.
    fn added(&self, row: Row, figure: impl Fn(&Sample) -> f64) -> f64 {
        let without = self.samples(Row::None);
        median(self.samples(row).iter().zip(without).map(|(own, none)| figure(own) - figure(none)).collect())
    }

    fn figures(&self) -> comfy_table::Table {
        let mut table = table([
            "filter",
            "p50 µs",
            "added",
            "p99 µs",
            "Envoy CPU µs",
            "added",
            "server CPU µs",
            "requests/s of an Envoy core",
        ]);
        for (row, _) in &self.0 {
            let whole = |number: f64| format!("{number:.1}");
            let added = |number: f64| if *row == Row::None { String::new() } else { whole(number) };
            table.add_row([
                row.name().to_owned(),
                whole(self.median(*row, |sample| sample.p50)),
                added(self.added(*row, |sample| sample.p50)),
                whole(self.median(*row, |sample| sample.p99)),
                whole(self.median(*row, |sample| sample.cpu)),
                added(self.added(*row, |sample| sample.cpu)),
                if matches!(row, Row::None | Row::Module) {
                    String::new()
                } else {
                    whole(self.median(*row, |sample| sample.server_cpu))
                },
                format!("{:.0}", self.median(*row, |sample| sample.per_core)),
            ]);
        }
        table
    }

    fn bars(&self) -> Vec<Bar> {
        let mut bars = Vec::new();
        for (row, _) in self.0.iter().filter(|(row, _)| row.is_of_module()) {
            let (p50, cpu) = (|sample: &Sample| sample.p50, |sample: &Sample| sample.cpu);
            let mut bar = |about: &str, most, measured| {
                bars.push(Bar { about: format!("{}: {about}", row.name()), most, measured });
            };
            bar("added to p50, µs", ADDED_MICROS_MAX, self.added(*row, p50));
            bar("added CPU of Envoy, µs", ADDED_CPU_MICROS_MAX, self.added(*row, cpu));
            let share =
                |figure: fn(&Sample) -> f64| self.added(*row, figure) / self.added(Row::Filter, figure);
            bar("p50, part of what the filter adds", SHARE_MAX, share(p50));
            bar("CPU, part of what the filter adds", SHARE_MAX, share(cpu));
        }
        bars
    }

    fn json(&self, machine: &str, envoy: &str, bars: &[Bar]) -> serde_json::Value {
        let rows: serde_json::Map<_, _> = self
            .0
            .iter()
            .map(|(row, samples)| {
                let figure = |of: fn(&Sample) -> f64| {
                    json!({
                        "median": self.median(*row, of),
                        "added": self.added(*row, of),
                        "rounds": samples.iter().map(of).collect::<Vec<_>>(),
                    })
                };
                let figures = json!({
                    "p50_us": figure(|sample| sample.p50),
                    "p99_us": figure(|sample| sample.p99),
                    "envoy_cpu_us": figure(|sample| sample.cpu),
                    "server_cpu_us": figure(|sample| sample.server_cpu),
                    "requests_per_envoy_core": figure(|sample| sample.per_core),
                });
                (row.name().to_owned(), figures)
            })
            .collect();
        let bars: Vec<_> = bars
            .iter()
            .map(|bar| json!({"about": bar.about, "most": bar.most, "measured": bar.measured, "missed": bar.is_missed()}))
            .collect();
        json!({"machine": machine, "envoy": envoy, "rows": rows, "bars": bars})
    }
}

fn table_of_bars(bars: &[Bar]) -> comfy_table::Table {
    let mut table = table(["figure", "at most", "measured", ""]);
    for bar in bars {
        let verdict = if bar.is_missed() { "MISSED" } else { "ok" };
        table.add_row([
            bar.about.clone(),
            format!("{:.3}", bar.most),
            format!("{:.3}", bar.measured),
            verdict.to_owned(),
        ]);
    }
    table
}
