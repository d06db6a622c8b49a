//! `cargo xtask perf SUITE`: costs beside those of comparators, against stated bars.
//!
//! A suite is a file of `suites/`. Its rows are of three kinds: loads for servers, programs, and filters of Envoy; [`load`], [`program`]
//! and [`envoy`] measure them. Servers, work beside loads and other programs are commands of a shell there. Rows are measured one after
//! the other in rounds, with servers on one core and the load on another. Bars apply to figures of the same round, so that effects of the
//! machine on all rows cancel out. CPU time per request, by the kernel's accounting, is the most stable figure.

mod beside;
mod envoy;
mod load;
mod machine;
mod plot;
mod process;
mod program;
mod results;
mod server;
mod suite;

use crate::cargo::cargo;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use envoy::Envoy;
use machine::Machine;
use results::{Bar, Results};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};
use suite::{Row, SUITES, Server, Suite};

/// Measures the server, counters in a store, Envoy or a replay beside comparators, and compares the figures with their bars.
#[derive(Args)]
pub(crate) struct Perf {
    #[arg(value_parser = SUITES.map(|(name, _)| name), default_value = "server")]
    suite: String,
    #[command(flatten)]
    options: Options,
}

#[derive(Args)]
struct Options {
    /// Rounds over all measurements; by default 3, of Envoy 40 short ones, of a replay 1.
    #[arg(long)]
    rounds: Option<u32>,
    /// Seconds per measurement of a load.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
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
    /// Events of the decision log that is replayed; ten million take 4.5 GB beside the programs.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(100..))]
    events: u64,
}

/// The place of measurements.
struct Place {
    machine: Machine,
    options: Options,
    programs: PathBuf,
    /// Folder of the files that the programs read and write, in which they run; removed at the end.
    files: PathBuf,
    servers: BTreeMap<String, Server>,
    /// Servers that cannot be measured here.
    absent: BTreeSet<String>,
}

impl Place {
    fn new(suite: &Suite, mut options: Options) -> Result<Self> {
        if options.quick {
            (options.rounds, options.seconds, options.events) = (Some(1), 1, 50_000);
        }
        let programs = options.programs.clone().map_or_else(|| build(&suite.build), Ok)?;
        let programs = fs::canonicalize(&programs).with_context(|| programs.display().to_string())?;
        let (files, servers) = (programs.join("perf"), suite::servers()?);
        // The folder of a run that did not end.
        let _ = fs::remove_dir_all(&files);
        fs::create_dir(&files).with_context(|| files.display().to_string())?;
        let mut place =
            Self { machine: Machine::here()?, options, programs, files, servers, absent: BTreeSet::new() };
        for name in suite.server_names() {
            let needs = place.server(name)?.needs.as_deref().map(|needs| place.shell(None, needs));
            if let Some(mut needs) = needs
                && !needs.status().context("sh")?.success()
            {
                println!("{name} is not measured: its program is not there");
                place.absent.insert(name.to_owned());
            }
        }
        Ok(place)
    }

    fn server(&self, name: &str) -> Result<&Server> {
        self.servers.get(name).with_context(|| format!("no server {name} in servers.yaml"))
    }

    /// A command of a shell in the folder of files, on a core or on all of them.
    fn shell(&self, core: Option<usize>, command: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = self.machine.on_cores(core, "sh");
        // Allows as many open files as the system does.
        shell.args(["-c", &format!("ulimit -S -n \"$(ulimit -H -n)\"\n{command}")]).current_dir(&self.files);
        shell.env("SUITES", root().join("xtask/src/perf/suites"));
        shell.env("PATH", format!("{}:{path}", self.programs.display())).env("PROGRAMS", &self.programs);
        shell.env("EVENTS", self.options.events.to_string());
        shell.env("MEASURE_SECONDS", self.options.seconds.to_string());
        shell
    }

    /// Writes a file for the programs; returns its path.
    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        write(self.files.join(name), text)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.files) {
            eprintln!("{} is not removed: {error}", self.files.display());
        }
    }
}

fn write(path: PathBuf, text: &str) -> Result<PathBuf> {
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}

impl Perf {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (mut suite, is_whole) = (Suite::named(&self.suite)?, self.options.only.is_empty());
        let bars = suite.bars();
        if !is_whole {
            suite.keep(&self.options.only);
        }
        let place = Place::new(&suite, self.options)?;
        place.machine.leave_the_servers_core()?;
        println!("{}", place.machine);
        if place.machine.cores < 2 {
            println!("Only one core: server and load share it, so latencies are not meaningful.");
        }
        let results = measure(&suite, &place)?;
        let is_absent = |server: &str| place.absent.contains(server) && place.servers[server].optional;
        let is_due = |bar: &Bar| match is_whole {
            true => !bar.comparator().is_some_and(&is_absent),
            false => bar.measured(&results).is_some(),
        };
        let bars: Vec<Bar> = bars.into_iter().filter(is_due).collect();
        println!("{}\n\n{}", results.table().trim_fmt(), results.table_of_bars(&bars).trim_fmt());
        if place.options.quick {
            return Ok(ExitCode::SUCCESS);
        }
        if is_whole {
            save(&self.suite, &place.machine, &results)?;
        }
        let missed = bars.iter().filter(|bar| bar.is_missed(&results)).count();
        println!("{missed} of {} bars missed", bars.iter().filter(|bar| bar.is_bounded()).count());
        Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Measures the rows of the suite in rounds.
fn measure(suite: &Suite, place: &Place) -> Result<Results> {
    let mut results = Results::default();
    if let Some(setup) = &suite.setup {
        let status = place.shell(None, setup).status().context("sh")?;
        ensure!(status.success(), "the setup of the suite failed");
    }
    let mut envoys = BTreeMap::new();
    let is_here =
        |row: &&Row| row.filter.is_none() || !row.servers.iter().any(|name| place.absent.contains(name));
    let rows: Vec<&Row> = suite.rows.iter().filter(is_here).collect();
    for row in &rows {
        if let Some(filter) = &row.filter {
            let envoy = Envoy::start(row, filter, suite, place).with_context(|| row.name.clone())?;
            envoys.insert(&row.name, envoy);
        }
    }
    let rounds = place.options.rounds.unwrap_or(suite.rounds).max(1);
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        for row in &rows {
            let measured = match (envoys.get_mut(&row.name), &row.command) {
                (Some(envoy), _) => envoy.measure(row, round, place, &mut results),
                (_, Some(command)) => program::measure(row, command, round, place, &mut results),
                _ => load::measure(row, round, place, &mut results),
            };
            match measured {
                Err(failure) if row.optional => eprintln!("  {} is not measured: {failure:#}", row.name),
                measured => measured.with_context(|| row.name.clone())?,
            }
        }
    }
    Ok(results)
}

/// Root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the repository")
}

/// Builds programs; returns their folder.
fn build(arguments: &str) -> Result<PathBuf> {
    let mut cargo = cargo();
    cargo.current_dir(root()).args(["build", "--profile", "dist"]).args(arguments.split_whitespace());
    ensure!(cargo.status().context("cargo")?.success(), "the build with the profile dist failed");
    // target/debug contains this program; target/dist is its neighbour, wherever target/ is.
    let this = std::env::current_exe().context("cannot find the path of this program")?;
    Ok(this.ancestors().nth(2).context("this program is not in a target directory")?.join("dist"))
}

/// Writes the results to docs/perf, and draws those of the server.
fn save(suite: &str, machine: &Machine, results: &Results) -> Result<()> {
    let folder = root().join("docs/perf");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let is_server = suite == "server";
    let prefix = if is_server { String::new() } else { format!("{suite}-") };
    let name = format!("{prefix}{}-{}.csv", machine.date, machine.commit);
    println!("wrote {}", write(folder.join(name), &results.to_csv(machine))?.display());
    if is_server {
        println!("wrote {}", write(folder.join("latest.svg"), &plot::svg(machine, results))?.display());
    }
    Ok(())
}
