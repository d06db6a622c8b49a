//! `cargo xtask perf-shared`: cost of a decision over counters in a store, against stated bars.
//!
//! Store, servers and load are pinned to cores and measured in interleaved rounds, with a fresh store for each measurement. CPU is
//! that of the process, by the kernel's accounting; the load runs once for each process whose CPU is measured. The comparator is
//! the reference server, which increments a counter in the same store without deciding in it.

mod probe;
mod server;

use super::{
    bars::{Bar, Bound, Measure},
    bench::{Length, Process, Report},
    build,
    machine::Machine,
    reference::{Reference, Store},
    results::{Figure, Results},
    server::Binaries,
    table,
};
use crate::Failure;
use clap::Args;
use comfy_table::Table;
use probe::Probe;
use server::{Leases, RULES, tidegate};
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    thread::sleep,
    time::{Duration, Instant},
};

const EXACT: &str = "exact, cold keys";
const LOCAL: &str = "local counters";
const UNLOADED: &str = "exact, unloaded";
const UNLOADED_LOCAL: &str = "local, unloaded";
const PING: &str = "PING";
const BATCH: &str = "batches of 16, 4 in flight";
const BATCH_ONE_BY_ONE: &str = "batches of 16, one at a time";
const ADDED: &str = "added latency";
const HOT: &str = "leases, 1,000 hot keys, 2 nodes";
const HOT_RATE: &str = "leases, the same at 100,000/s";

const OURS: &str = "tidegate";
const REFERENCE: &str = "reference";
const CLIENT: &str = "client";
const NO_DECISION: &str = "no decision";
const LOCAL_NODES: &str = "local counters";

const BARS: &[Bar] = &[
    Bar {
        about: "CPU of the store per exact decision, against the reference",
        measure: Measure::Ratio(EXACT, (EXACT, REFERENCE), Figure::StoreMicros),
        bound: Bound::AtMost(0.5),
    },
    Bar {
        about: "CPU of the server per exact decision, µs",
        measure: Measure::Value(EXACT, OURS, Figure::CpuMicros),
        bound: Bound::AtMost(5.0),
    },
    Bar {
        about: "latency that the store adds, unloaded p50, against a PING",
        measure: Measure::Value(ADDED, OURS, Figure::Ratio),
        bound: Bound::AtMost(1.5),
    },
    Bar {
        about: "CPU of the server per decision by leases, against local counters",
        measure: Measure::Ratio(HOT, (HOT, LOCAL_NODES), Figure::CpuMicros),
        bound: Bound::AtMost(1.3),
    },
    Bar {
        about: "calls of the store per decision by leases, at 100,000/s",
        measure: Measure::Value(HOT_RATE, OURS, Figure::StoreCalls),
        bound: Bound::AtMost(0.02),
    },
    Bar {
        about: "CPU of the store per decision in batches of 16, 4 in flight, µs",
        measure: Measure::Value(BATCH, CLIENT, Figure::StoreMicros),
        bound: Bound::AtMost(4.0),
    },
];

/// Measures decisions over counters in a store, and compares the figures with their bars. Needs redis-server, and Go for the
/// comparator.
#[derive(Args)]
pub(crate) struct PerfShared {
    #[command(flatten)]
    length: Length,
    /// The reference server, instead of one built with Go.
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// Measures a client of this store; started by the command itself on a core of its own.
    #[arg(long, value_name = "URL", hide = true)]
    probe: Option<String>,
}

impl PerfShared {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if let Some(url) = &self.probe {
            return probe::run(url, self.length.seconds());
        }
        let (rounds, seconds) = (self.length.rounds(), self.length.seconds());
        let machine = Machine::here()?;
        let binaries = match &self.length.programs {
            Some(folder) => Binaries::in_folder(folder)?,
            None => build()?,
        };
        let reference = Reference::find(self.reference.as_deref(), &binaries.scratch);
        println!("{machine}");
        if let Err(failure) = &reference {
            println!("The reference server is not measured: {failure}");
        }
        let mut measurements = Measurements {
            machine: &machine,
            binaries: &binaries,
            reference: reference.ok(),
            seconds,
            results: Results::default(),
        };
        for round in 1..=rounds {
            eprintln!("round {round} of {rounds}");
            measurements.round(round)?;
        }
        let results = measurements.results;
        println!("{}\n\n{}", figures(&results).trim_fmt(), super::bars(BARS, &results).trim_fmt());
        if self.length.quick {
            return Ok(ExitCode::SUCCESS);
        }
        let path = super::root().join(format!("docs/perf/shared-{}-{}.csv", machine.date, machine.commit));
        fs::write(&path, results.to_csv(&machine)).map_err(|error| format!("{}: {error}", path.display()))?;
        let missed = BARS.iter().filter(|bar| bar.is_missed(&results)).count();
        println!("wrote {}\n{missed} of {} bars missed", path.display(), BARS.len());
        Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The load of many connections, and that of one call after the other.
const SATURATED: &[&str] = &["--connections", "4", "--streams", "16", "--keys", "1000000"];
const HOT_KEYS: &[&str] = &["--connections", "2", "--streams", "16", "--keys", "1000"];
const HOT_KEYS_AT_RATE: &[&str] = &["--connections", "2", "--keys", "1000", "--rate", "50000"];
const ONE_BY_ONE: &[&str] = &["--connections", "1", "--streams", "1", "--busy", "--keys", "1000000"];

/// Load of `tidegate bench` before it measures.
const WARM_UP: Duration = Duration::from_secs(1);

/// Time after the start and before the end of a measurement in which calls of the store are not counted.
const EDGE: Duration = Duration::from_millis(300);

struct Measurements<'m> {
    machine: &'m Machine,
    binaries: &'m Binaries,
    reference: Option<Reference>,
    seconds: u32,
    results: Results,
}

impl Measurements<'_> {
    fn round(&mut self, round: u32) -> Result<(), Failure> {
        self.saturated(round, EXACT, OURS, |store, this| {
            tidegate(this.machine, this.binaries, Some((store, Leases::Off)))
        })?;
        if self.reference.is_some() {
            self.saturated(round, EXACT, REFERENCE, |store, this| {
                let reference = this.reference.as_ref().expect("it was checked");
                let on_core = |program: &Path| this.machine.on_core(0, program);
                reference.start(on_core, (&this.binaries.scratch, RULES), store)
            })?;
        }
        self.saturated(round, LOCAL, OURS, |_, this| tidegate(this.machine, this.binaries, None))?;
        self.two_nodes(round)?;
        self.latency(round)?;
        let store = Store::start(self.machine)?;
        let probe = Probe::run(self.machine, &store, self.seconds)?;
        for (scenario, name, cost) in [
            (BATCH, CLIENT, &probe.in_flight),
            (BATCH_ONE_BY_ONE, CLIENT, &probe.one_by_one),
            (BATCH, NO_DECISION, &probe.no_decision),
        ] {
            let figures =
                [(Figure::StoreMicros, cost.cpu_micros), (Figure::ScriptMicros, cost.script_micros)];
            self.add(round, scenario, name, &figures);
        }
        Ok(())
    }

    /// CPU of the server and of the store under the load of many connections.
    fn saturated(
        &mut self,
        round: u32,
        scenario: &'static str,
        name: &'static str,
        start: impl FnOnce(&Store, &Self) -> Result<Process, Failure>,
    ) -> Result<(), Failure> {
        let store = Store::start(self.machine)?;
        let server = start(&store, self)?;
        let report = self.bench(&server, SATURATED, server.pid())?;
        self.add(round, scenario, name, &report.figures()?);
        if scenario != LOCAL {
            let report = self.bench(&server, SATURATED, store.pid())?;
            let micros = report.number("/server_cpu_us_per_request")?;
            self.add(round, scenario, name, &[(Figure::StoreMicros, micros)]);
        }
        Ok(())
    }

    /// Two servers on the first core, each under a load of its own: CPU of the first, by leases and by counters of their own, and
    /// calls of the store at a fixed rate of both together.
    fn two_nodes(&mut self, round: u32) -> Result<(), Failure> {
        let store = Store::start(self.machine)?;
        for (name, store) in [(OURS, Some((&store, Leases::Auto))), (LOCAL_NODES, None)] {
            let nodes = self.nodes(store)?;
            let [first, _] = self.bench_both(&nodes, HOT_KEYS)?;
            self.add(round, HOT, name, &first.figures()?);
        }
        let nodes = self.nodes(Some((&store, Leases::Auto)))?;
        let measured = std::thread::scope(|scope| {
            let calls = scope.spawn(|| self.calls_per_second(&store));
            let reports = self.bench_both(&nodes, HOT_KEYS_AT_RATE);
            let calls = calls.join().map_err(|_| "the count of the store's calls panicked")?;
            Ok::<_, Failure>((reports?, calls?))
        });
        let (reports, calls) = match measured {
            Ok(measured) => measured,
            // A machine that is too slow for the rate misses the bar, and no other one.
            Err(failure) => {
                eprintln!("  {HOT_RATE} is not measured: {failure}");
                return Ok(());
            }
        };
        let rate = reports[0].number("/per_second")? + reports[1].number("/per_second")?;
        let figures = [(Figure::PerSecond, rate), (Figure::StoreCalls, calls / rate)];
        self.add(round, HOT_RATE, OURS, &figures);
        Ok(())
    }

    /// Calls of the store per second while a load runs that starts now, without its first second and its end.
    #[expect(clippy::disallowed_methods, reason = "a measurement is of the real clock")]
    fn calls_per_second(&self, store: &Store) -> Result<f64, Failure> {
        sleep(WARM_UP + EDGE);
        let (began, before) = (Instant::now(), store.calls()?);
        sleep(Duration::from_secs(u64::from(self.seconds)).saturating_sub(2 * EDGE));
        let calls = store.calls()? - before;
        Ok(calls as f64 / began.elapsed().as_secs_f64())
    }

    fn nodes(&self, store: Option<(&Store, Leases)>) -> Result<[Process; 2], Failure> {
        let node = || tidegate(self.machine, self.binaries, store);
        Ok([node()?, node()?])
    }

    /// Runs the load on both servers at once.
    fn bench_both(&self, nodes: &[Process; 2], load: &[&str]) -> Result<[Report; 2], Failure> {
        std::thread::scope(|scope| {
            let second = scope.spawn(|| self.bench(&nodes[1], load, nodes[1].pid()));
            let first = self.bench(&nodes[0], load, nodes[0].pid());
            let second = second.join().map_err(|_| "the load of the second server panicked")?;
            Ok([first?, second?])
        })
    }

    /// The latency of single decisions, with a store and without, and of a PING.
    fn latency(&mut self, round: u32) -> Result<(), Failure> {
        let store = Store::start(self.machine)?;
        let exact =
            self.p50(round, UNLOADED, &tidegate(self.machine, self.binaries, Some((&store, Leases::Off)))?)?;
        let local = self.p50(round, UNLOADED_LOCAL, &tidegate(self.machine, self.binaries, None)?)?;
        let ping = Probe::run(self.machine, &store, self.seconds)?.ping_micros;
        self.add(round, PING, CLIENT, &[(Figure::P50Micros, ping)]);
        self.add(round, ADDED, OURS, &[(Figure::Ratio, (exact - local) / ping)]);
        Ok(())
    }

    fn p50(&mut self, round: u32, scenario: &'static str, server: &Process) -> Result<f64, Failure> {
        let report = self.bench(server, ONE_BY_ONE, server.pid())?;
        self.add(round, scenario, OURS, &report.figures()?);
        report.number("/latency_us/p50")
    }

    /// Runs the load, and reads the CPU of one process. Every request must be admitted.
    fn bench(&self, server: &Process, load: &[&str], pid: u32) -> Result<Report, Failure> {
        let duration = format!("{}s", self.seconds);
        let load = [load, &["--descriptor", "remote_address={ip}", "--duration", &duration]];
        let report = Report::of(self.machine, &self.binaries.tidegate, (server.address, pid), &load)?;
        match report.number("/over_limit")? > 0.0 {
            true => Err("not every request was admitted".to_owned()),
            false => Ok(report),
        }
    }

    fn add(&mut self, round: u32, scenario: &'static str, server: &'static str, figures: &[(Figure, f64)]) {
        for (figure, value) in figures {
            eprintln!("  {scenario:<32} {server:<14} {:<24} {value:.2}", figure.name());
        }
        self.results.add(round, scenario, server, figures);
    }
}

/// Medians of the measurements.
fn figures(results: &Results) -> Table {
    let mut table = table([
        "measurement",
        "of",
        "requests/s",
        "server CPU µs",
        "store CPU µs",
        "in the script µs",
        "store calls",
        "p50 µs",
        "p99 µs",
    ]);
    let rows = [
        (EXACT, OURS),
        (EXACT, REFERENCE),
        (LOCAL, OURS),
        (HOT, OURS),
        (HOT, LOCAL_NODES),
        (HOT_RATE, OURS),
        (UNLOADED, OURS),
        (UNLOADED_LOCAL, OURS),
        (PING, CLIENT),
        (BATCH, CLIENT),
        (BATCH_ONE_BY_ONE, CLIENT),
        (BATCH, NO_DECISION),
    ];
    for (scenario, server) in rows {
        let median = |figure, digits: usize| {
            results
                .median(scenario, server, figure)
                .map_or(String::new(), |value| format!("{value:.digits$}"))
        };
        table.add_row([
            scenario.to_owned(),
            server.to_owned(),
            median(Figure::PerSecond, 0),
            median(Figure::CpuMicros, 2),
            median(Figure::StoreMicros, 2),
            median(Figure::ScriptMicros, 2),
            median(Figure::StoreCalls, 4),
            median(Figure::P50Micros, 0),
            median(Figure::P99Micros, 0),
        ]);
    }
    table
}
