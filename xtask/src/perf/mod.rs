//! `cargo xtask perf`: cost of a decision relative to servers that return a constant, against stated bars.
//!
//! Server and comparators run one after the other in rounds, each freshly started on its own core, with the load on another.
//! Bars apply to ratios within a round, so that effects of the machine on all servers cancel out. CPU time per request, by
//! the kernel's accounting, is the most stable figure. Latencies beside other work of the server are measured in pairs of short
//! periods ([`pairs`]); of those of a round the lower quartiles are compared.

mod bars;
mod bench;
mod beside;
mod control;
pub(crate) mod envoy;
mod in_process;
mod load;
mod machine;
mod pairs;
mod plot;
mod reference;
pub(crate) mod replay;
mod results;
mod scenario;
mod scrape;
mod server;
pub(crate) mod shared;

use crate::Failure;
use bars::{BARS, Bar};
use bench::Length;
use clap::Args;
use comfy_table::{Table, presets};
use machine::Machine;
use results::{Figure, Results};
use scenario::{PAIRS, SCENARIOS, Scenario};
use server::Binaries;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// A run is repeated if other processes used more than this share of the core.
const DISTURBANCE_MAX: f64 = 0.03;
const ATTEMPTS: u32 = 3;

/// Measures the server beside servers that return a constant, and compares the figures with their bars.
#[derive(Args)]
pub(crate) struct Perf {
    #[command(flatten)]
    length: Length,
    /// Measures only scenarios whose names contain one of these texts: writes nothing, and bars without figures are left out.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
}

impl Perf {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (rounds, seconds) = (self.length.rounds(), self.length.seconds());
        let machine = Machine::here()?;
        let binaries = self.length.programs.as_deref().map_or_else(build, Binaries::in_folder)?;
        machine.leave_the_servers_core()?;
        println!("{machine}");
        if machine.cores < 2 {
            println!("Only one core: server and load share it, so latencies are not meaningful.");
        }

        let is_whole = self.only.is_empty();
        let is_chosen = |name: &str| is_whole || self.only.iter().any(|text| name.contains(text));
        let mut results = Results::default();
        for round in 1..=rounds {
            eprintln!("round {round} of {rounds}");
            for scenario in SCENARIOS.iter().filter(|scenario| is_chosen(scenario.name)) {
                measure(scenario, round, seconds, &machine, &binaries, &mut results)?;
            }
            for pair in PAIRS.iter().filter(|pair| is_chosen(pair.scenario.name)) {
                pairs::measure(pair, round, self.length.quick, &machine, &binaries, &mut results)?;
            }
            if is_whole {
                in_process::measure(round, &machine, &binaries, &mut results)?;
            }
            if is_chosen(in_process::QUOTAS) {
                in_process::measure_quotas(round, &machine, &binaries, &mut results)?;
            }
        }
        let is_due = |bar: &&Bar| is_whole && !bar.needs_limitador() || bar.measured(&results).is_some();
        println!(
            "{}\n\n{}",
            figures(&results).trim_fmt(),
            bars(BARS.iter().filter(is_due), &results).trim_fmt()
        );
        if self.length.quick {
            return Ok(ExitCode::SUCCESS);
        }
        if is_whole {
            write(&machine, &results)?;
        }
        let missed = BARS.iter().filter(is_due).filter(|bar| bar.is_missed(&results)).count();
        println!("{missed} of {} bars missed", BARS.iter().filter(is_due).count());
        Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the repository").to_owned()
}

fn build() -> Result<Binaries, Failure> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["build", "--profile", "dist"]);
    for package in ["tidegate", "tidegate-ceiling", "tidegate-in-process"] {
        cargo.args(["--package", package]);
    }
    if !cargo.status().map_err(|error| format!("cargo cannot be run: {error}"))?.success() {
        return Err("the build with the profile dist failed".to_owned());
    }
    // target/debug holds this program; target/dist is its neighbour, wherever target/ is.
    let this =
        std::env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let target = this.ancestors().nth(2).ok_or("this program is not in a target directory")?;
    Binaries::in_folder(&target.join("dist"))
}

fn measure(
    scenario: &Scenario,
    round: u32,
    seconds: u32,
    machine: &Machine,
    binaries: &Binaries,
    results: &mut Results,
) -> Result<(), Failure> {
    for &server in scenario.servers.iter().filter(|server| server.is_here()) {
        let mut calmest: Option<load::Run> = None;
        for _ in 0..ATTEMPTS {
            let run = load::measure(scenario, server, seconds, machine, binaries)?;
            if calmest.as_ref().is_none_or(|calmest| run.disturbance < calmest.disturbance) {
                calmest = Some(run);
            }
            if calmest.as_ref().is_some_and(|run| run.disturbance <= DISTURBANCE_MAX) {
                break;
            }
        }
        let run = calmest.expect("there is at least one attempt");
        eprintln!("  {:<18} {:<8} {}", scenario.name, server.name(), run.summary());
        results.add(round, scenario.name, server.name(), &run.figures());
    }
    Ok(())
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(header);
    table
}

/// Medians of the measurements over the network.
fn figures(results: &Results) -> Table {
    let mut table =
        table(["scenario", "server", "requests/s", "CPU µs", "p50 µs", "p99 µs", "p99.9 µs", "others"]);
    let single = SCENARIOS.iter().map(|scenario| (scenario.name, scenario.servers));
    let paired = PAIRS.iter().flat_map(|pair| [pair.without, pair.scenario.name]);
    for (scenario, servers) in single.chain(paired.map(|name| (name, pairs::SERVERS))) {
        for server in servers {
            if results.median(scenario, server.name(), Figure::PerSecond).is_none() {
                continue;
            }
            let median = |figure| results.median(scenario, server.name(), figure).unwrap_or(f64::NAN);
            table.add_row([
                scenario.to_owned(),
                server.name().to_owned(),
                format!("{:.0}", median(Figure::PerSecond)),
                format!("{:.2}", median(Figure::CpuMicros)),
                format!("{:.0}", median(Figure::P50Micros)),
                format!("{:.0}", median(Figure::P99Micros)),
                format!("{:.0}", median(Figure::P999Micros)),
                format!("{:.0} %", median(Figure::Disturbance) * 100.0),
            ]);
        }
    }
    table
}

fn bars<'b>(bars: impl IntoIterator<Item = &'b Bar>, results: &Results) -> Table {
    let mut table =
        table(["figure", "bar", "measured", "spread", "control: the same of tonic without work", ""]);
    let range = |least: f64, most: f64| format!("{least:.2} – {most:.2}");
    for bar in bars {
        let (measured, spread) = match bar.measured(results) {
            Some(spread) => (spread.median, range(spread.least, spread.most)),
            None => (f64::NAN, "not measured".to_owned()),
        };
        let control = bar.control(results);
        let control = control
            .map(|control| format!("{:.2} ({})", control.median, range(control.least, control.most)))
            .unwrap_or_default();
        let verdict = if bar.is_missed(results) { "MISSED" } else { "ok" };
        let (bound, measured) = (bar.bound.to_string(), format!("{measured:.2}"));
        table.add_row([bar.about.to_owned(), bound, measured, spread, control, verdict.to_owned()]);
    }
    table
}

fn write(machine: &Machine, results: &Results) -> Result<(), Failure> {
    let folder = root().join("docs/perf");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let save = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("wrote docs/perf/{name}");
        Ok::<_, Failure>(())
    };
    save(&format!("{}-{}.csv", machine.date, machine.commit), results.to_csv(machine))?;
    save("latest.svg", plot::svg(machine, results))
}
