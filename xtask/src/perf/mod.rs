//! `cargo xtask perf SUITE`: costs beside those of comparators, against stated bars.
//!
//! A suite is a file of `suites/`. Its rows are of three kinds: loads for servers, programs, and filters of Envoy; [`load`], [`program`]
//! and [`envoy`] measure them. Rows are measured one after the other in rounds, with servers on one core and the load on another. Bars
//! apply to figures of the same round, so that effects of the machine on all rows cancel out. CPU time per request, by the kernel's
//! accounting, is the most stable figure.

mod beside;
mod envoy;
mod http;
mod load;
mod machine;
mod plot;
mod process;
mod program;
mod results;
mod scrape;
mod server;
mod suite;

use crate::Failure;
use clap::Args;
use envoy::Envoys;
use machine::Machine;
use program::Logs;
use results::{Bar, Results};
use server::Server;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};
use suite::{Subject, Suite};

/// Measures the server, counters in a store, Envoy or a replay beside comparators, and compares the figures with their bars.
#[derive(Args)]
pub(crate) struct Perf {
    #[arg(value_enum, default_value = "server")]
    suite: Subject,
    #[command(flatten)]
    options: Options,
}

#[derive(Args)]
struct Options {
    /// Rounds over all measurements; by default 3, of Envoy 40 short ones, of a replay 1.
    #[arg(long)]
    rounds: Option<u32>,
    /// Seconds per measurement of a load.
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Measures only rows whose names contain one of these texts: writes nothing, and bars without figures are left out.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// One short round as a smoke test: writes nothing, and no bar can fail.
    #[arg(long)]
    quick: bool,
    /// Folder with built programs, instead of a build with the profile dist.
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
    /// The reference server, instead of one built with Go.
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// The program of Envoy.
    #[arg(long, value_name = "FILE", default_value = "envoy")]
    envoy: PathBuf,
    /// Events of the decision log that is replayed; ten million take 4.5 GB beside the programs.
    #[arg(long, default_value_t = 10_000_000)]
    events: u64,
}

impl Options {
    fn seconds(&self) -> u32 {
        if self.quick { 1 } else { self.seconds.max(1) }
    }

    fn events(&self) -> u64 {
        if self.quick { 50_000 } else { self.events.max(100) }
    }
}

/// Where measurements are made.
struct Place {
    machine: Machine,
    options: Options,
    /// Folder of the programs, and of files for them.
    programs: PathBuf,
    /// Servers that cannot be measured here.
    absent: Vec<Server>,
}

impl Place {
    fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    fn has(&self, server: Server) -> bool {
        !self.absent.contains(&server)
    }

    /// Writes a file for the programs; returns its path.
    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        write(self.file(name), text)
    }

    /// Adds figures to the results, and prints them.
    fn add(&self, results: &mut Results, round: u32, series: (&str, &str), figures: &[(&'static str, f64)]) {
        let printed: Vec<String> =
            figures.iter().map(|(figure, value)| format!("{figure} {value:.2}")).collect();
        eprintln!("  {:<32} {:<14} {}", series.0, series.1, printed.join("  "));
        results.add(round, series, figures);
    }
}

fn write(path: PathBuf, text: &str) -> Result<PathBuf, Failure> {
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

impl Perf {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (mut suite, is_whole) = (self.suite.suite()?, self.options.only.is_empty());
        let bars = suite.bars();
        if !is_whole {
            suite.keep(&self.options.only);
        }
        let rounds = if self.options.quick { 1 } else { self.options.rounds.unwrap_or(suite.rounds).max(1) };
        let programs = self.options.programs.clone().map_or_else(|| build(&suite.build), Ok)?;
        let programs =
            fs::canonicalize(&programs).map_err(|error| format!("{}: {error}", programs.display()))?;
        let mut place =
            Place { machine: Machine::here()?, options: self.options, programs, absent: Vec::new() };
        place.machine.leave_the_servers_core()?;
        println!("{}", place.machine);
        if place.machine.cores < 2 {
            println!("Only one core: server and load share it, so latencies are not meaningful.");
        }
        for server in servers(&suite) {
            if let Err(failure) = server.program(&place) {
                println!("{} is not measured: {failure}", server.name());
                place.absent.push(server);
            }
        }
        let results = measure(&suite, rounds, &place)?;
        let is_due = |bar: &Bar| match is_whole {
            // Limitador's server is on no registry of packages.
            true => place.has(Server::Limitador) || !bar.needs(Server::Limitador.name()),
            false => bar.measured(&results).is_some(),
        };
        let bars: Vec<Bar> = bars.into_iter().filter(is_due).collect();
        println!("{}\n\n{}", results.table().trim_fmt(), results.table_of_bars(&bars).trim_fmt());
        if place.options.quick {
            return Ok(ExitCode::SUCCESS);
        }
        if is_whole {
            save(self.suite, &place.machine, &results)?;
        }
        let missed = bars.iter().filter(|bar| bar.is_missed(&results)).count();
        println!("{missed} of {} bars missed", bars.iter().filter(|bar| bar.is_bounded()).count());
        Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn measure(suite: &Suite, rounds: u32, place: &Place) -> Result<Results, Failure> {
    let mut results = Results::default();
    let (logs, mut envoys) = (Logs::make(suite, place)?, Envoys::start(suite, place)?);
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        suite.loads.iter().try_for_each(|row| load::measure(row, round, place, &mut results))?;
        suite.programs.iter().try_for_each(|row| program::measure(row, round, &logs, place, &mut results))?;
        envoys.measure(round, place, &mut results)?;
    }
    Ok(results)
}

/// The servers of the rows, each once.
fn servers(suite: &Suite) -> Vec<Server> {
    let called = suite.filters.iter().filter_map(|row| row.calls);
    let all = suite.loads.iter().flat_map(|row| row.servers.iter().copied()).chain(called);
    let mut seen = BTreeSet::new();
    all.filter(|server| seen.insert(server.name())).collect()
}

/// Root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the repository").to_owned()
}

/// Builds programs; returns their folder.
fn build(arguments: &str) -> Result<PathBuf, Failure> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["build", "--profile", "dist"]).args(arguments.split_whitespace());
    if !cargo.status().map_err(|error| format!("cargo cannot be run: {error}"))?.success() {
        return Err("the build with the profile dist failed".to_owned());
    }
    // target/debug holds this program; target/dist is its neighbour, wherever target/ is.
    let this =
        std::env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let target = this.ancestors().nth(2).ok_or("this program is not in a target directory")?;
    Ok(target.join("dist"))
}

/// Writes the results to docs/perf, and draws those of the server.
fn save(subject: Subject, machine: &Machine, results: &Results) -> Result<(), Failure> {
    let folder = root().join("docs/perf");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let name = format!("{}{}-{}.csv", subject.prefix(), machine.date, machine.commit);
    println!("wrote {}", write(folder.join(name), &results.to_csv(machine))?.display());
    if matches!(subject, Subject::Server) {
        println!("wrote {}", write(folder.join("latest.svg"), &plot::svg(machine, results))?.display());
    }
    Ok(())
}
