//! Loads of `tidegate bench`: one run with fresh servers, or short periods with and without work beside the load that alternate on one
//! server.
//!
//! Bars compare the lower quartiles of such periods, so that what other guests of the machine do affects both alike, or is left out.
//! Periods in which the hypervisor took time are measured again. Control: a tonic server has the same periods afterwards, and no work.
//! Its ratios show how far the figures of both differ on this machine if the server does nothing else. Clients of an attack share the
//! server's core: they run in all periods, and connect to another port where the server has no such work.

use super::{
    Place,
    beside::{Work, allow_open_files},
    machine::CoreUse,
    results::{Figures, OTHERS, Results},
    server::{Running, Use},
    suite::{Beside, Load},
};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::{
    thread::{self, sleep},
    time::{Duration, Instant},
};

/// A run is repeated if other processes used more than this share of the core.
const DISTURBANCE_MAX: f64 = 0.03;
const ATTEMPTS: u32 = 3;

/// Periods of each kind in one round, and their length in seconds.
const PERIODS: u32 = 6;
const PERIOD_SECONDS: u32 = 2;
/// Share of a period that the hypervisor took from the machine, beyond which the period is measured again: it delays calls whatever the
/// server does.
const STOLEN_SHARE: f64 = 0.0075;
/// Periods of a server that are measured again in one round.
const REPEATS_MAX: u32 = 48;
/// Time after a period for what it leaves behind: connections that are closed, rules that are built and dropped. At least this
/// long, and until the server does nothing.
const PAUSE: Duration = Duration::from_millis(1_500);

/// Load of `tidegate bench` before it measures, and the time after the start and before the end of a measurement in which calls of the
/// store are not counted.
const WARM_UP: Duration = Duration::from_secs(1);
const EDGE: Duration = Duration::from_millis(300);

/// What was measured at once.
struct Run {
    figures: Figures,
    /// Share of the core that other processes used during the run.
    disturbance: f64,
    /// Time that the hypervisor took from the machine during the load, in seconds.
    stolen: f64,
}

/// Measures the load on each of its servers.
pub(super) fn measure(load: &Load, round: u32, place: &Place, results: &mut Results) -> Result<()> {
    for server in load.servers.iter().filter(|server| !place.absent.contains(*server)) {
        if load.without.is_some() {
            alternate(load, server, round, place, results)?;
            continue;
        }
        match calmest(load, server, place) {
            Err(failure) if load.optional => eprintln!("  {} is not measured: {failure:#}", load.name),
            run => {
                let figures = run.with_context(|| load.name.clone())?.figures;
                results.add(round, (&load.name, load.label(server)), &figures);
            }
        }
    }
    Ok(())
}

/// The run that other processes disturbed least. Those with a store, or with several servers on a core, disturb themselves.
fn calmest(load: &Load, server: &str, place: &Place) -> Result<Run> {
    let mut calmest = once(load, server, place)?;
    let is_alone =
        load.further_nodes == 0 && !command(load, server, place)?.contains("STORE") && !place.options.quick;
    for _ in 1..if is_alone { ATTEMPTS } else { 1 } {
        if calmest.disturbance <= DISTURBANCE_MAX {
            break;
        }
        let run = once(load, server, place)?;
        if run.disturbance < calmest.disturbance {
            calmest = run;
        }
    }
    Ok(calmest)
}

/// Of the server, with the arguments of the row.
fn command(load: &Load, server: &str, place: &Place) -> Result<String> {
    Ok(place.server(server)?.run.clone() + &load.serve)
}

fn start(load: &Load, server: &str, store: Option<&Running>, place: &Place) -> Result<Running> {
    place.write("rules.yaml", &load.rules())?;
    let store = Running::url(store);
    let tls = if load.tls { "--tls-cert tls.crt --tls-key tls.key" } else { "" };
    Running::start(server, 0, &[("SERVE", &load.serve), ("STORE", &store), ("TLS", tls)], place)
}

/// Starts the servers, applies the load and stops the servers.
fn once(load: &Load, server: &str, place: &Place) -> Result<Run> {
    let store = Running::store(&command(load, server, place)?, place)?;
    let nodes = (0..=load.further_nodes).map(|_| start(load, server, store.as_ref(), place));
    let nodes: Vec<Running> = nodes.collect::<Result<_, _>>()?;
    if load.counters_before > 0 {
        let count = load.counters_before.to_string();
        // The keys of the load, in order.
        bench(place, &nodes[0], nodes[0].pid(), load, &["--in-order", "--requests", &count])?;
    }
    let duration = format!("{}s", place.options.seconds);
    let length = ["--duration", duration.as_str()];
    let mut run = period(&nodes, store.as_ref(), load, &load.beside, &length, place)?;
    if let Some(store) = store.filter(|_| load.store_cpu) {
        let report = bench(place, &nodes[0], store.pid(), load, &length)?;
        run.figures.push(("store_cpu_us", number(&report, "/server_cpu_us_per_request")?));
    }
    Ok(run)
}

/// Measures all periods of one round.
fn alternate(load: &Load, server: &str, round: u32, place: &Place, results: &mut Results) -> Result<()> {
    allow_open_files()?;
    let nodes = [start(load, server, None, place)?];
    let duration = format!("{PERIOD_SECONDS}s");
    let length = ["--duration", &duration, "--warm-up", "200ms"];
    let measure = |beside| period(&nodes, None, load, beside, &length, place);
    // Not counted: for a while after a start or a long pause, latencies are higher.
    measure(&Beside::Nothing)?;
    // Clients of an attack are on other machines, where they do not delay the load; here they do so in all periods.
    let clients = match load.beside {
        Beside::HalfHandshakes => Beside::HalfHandshakesElsewhere,
        _ => Beside::Nothing,
    };
    let with = if server == "tidegate" { &load.beside } else { &clients };
    let without = load.without.as_deref().unwrap_or_default();
    let (count, mut repeats) = if place.options.quick { (1, 0) } else { (PERIODS, REPEATS_MAX) };
    for number in 0..count {
        let mut periods = [(without, &clients), (load.name.as_str(), with)];
        // Each is the first as often as the other.
        if number % 2 == 1 {
            periods.reverse();
        }
        for (name, beside) in periods {
            let run = loop {
                sleep(PAUSE);
                nodes[0].wait_until_idle()?;
                let run = measure(beside)?;
                if run.stolen <= STOLEN_SHARE * f64::from(PERIOD_SECONDS) || repeats == 0 {
                    break run;
                }
                repeats -= 1;
                eprintln!("  {name}: again, {:.0} ms were stolen", run.stolen * 1e3);
            };
            results.add(round, (name, server), &run.figures);
        }
    }
    Ok(())
}

/// Applies the load to running servers at once, with this work beside it. The figures are those of the first, but for requests and calls
/// of the store.
fn period(
    nodes: &[Running],
    store: Option<&Running>,
    load: &Load,
    beside: &Beside,
    length: &[&str],
    place: &Place,
) -> Result<Run> {
    let first = &nodes[0];
    let resident_mib = first.resident_mib()?;
    let work = Work::start(beside, load, first, place)?;
    let (before, stolen_before) = (Use::read(first, place)?, CoreUse::of_all()?.stolen);
    let (reports, calls) = thread::scope(|scope| {
        let counted = store.filter(|_| load.store_calls);
        let calls = counted.map(|store| scope.spawn(|| calls_per_second(store, place.options.seconds)));
        let benches = nodes.iter().map(|node| scope.spawn(|| bench(place, node, node.pid(), load, length)));
        let benches: Vec<_> = benches.collect();
        let reports = benches.into_iter().map(|bench| bench.join().ok().context("a load panicked")?);
        let reports = reports.collect::<Result<Vec<_>>>();
        let calls = calls.map(|calls| calls.join().ok().context("the count of calls panicked")?);
        anyhow::Ok((reports?, calls.transpose()?))
    })?;
    let stolen = CoreUse::of_all()?.stolen - stolen_before;
    let disturbance = Use::read(first, place)?.others_since(&before);
    let rate = reports.iter().map(|report| number(report, "/per_second")).sum::<Result<f64>>()?;
    let of_first = |pointer| number(&reports[0], pointer);
    let mut figures = vec![
        ("requests_per_second", rate),
        ("server_cpu_us", of_first("/server_cpu_us_per_request")?),
        ("p50_us", of_first("/latency_us/p50")?),
        ("p99_us", of_first("/latency_us/p99")?),
        ("p99.9_us", of_first("/latency_us/p99.9")?),
        ("resident_mib", resident_mib),
        (OTHERS, disturbance),
    ];
    figures.extend(calls.map(|calls| ("store_calls", calls / rate)));
    figures.extend(work.map(Work::finish).transpose()?.unwrap_or_default());
    Ok(Run { figures, disturbance, stolen })
}

/// Runs `tidegate bench` on the second core, with the CPU of one process. Every call must be answered, and admitted.
fn bench(place: &Place, node: &Running, pid: u32, load: &Load, length: &[&str]) -> Result<Value> {
    let mut command = place.machine.on_cores(Some(1), place.programs.join("tidegate"));
    command.arg("bench").arg(node.address.to_string()).args(load.load.split_whitespace()).args(length);
    command.args(["--domain", "edge", "--json", "--timeout", "5s", "--pid", &pid.to_string()]);
    let output = command.output().context("tidegate bench")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tidegate bench failed: {}", errors.trim());
    let report: Value = serde_json::from_slice(&output.stdout).context("tidegate bench printed no JSON")?;
    ensure!(number(&report, "/errors")? == 0.0, "calls failed: {}", report["errors_by_kind"]);
    ensure!(number(&report, "/over_limit")? == 0.0, "not every request was admitted");
    Ok(report)
}

fn number(report: &Value, pointer: &str) -> Result<f64> {
    report.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("the report lacks {pointer}"))
}

/// Calls of the store per second while a load runs that starts now, without its first second and its end.
#[expect(clippy::disallowed_methods, reason = "a measurement is of the real clock")]
fn calls_per_second(store: &Running, seconds: u32) -> Result<f64> {
    sleep(WARM_UP + EDGE);
    let (began, before) = (Instant::now(), store.store_calls()?);
    sleep(Duration::from_secs(u64::from(seconds)).saturating_sub(2 * EDGE));
    Ok((store.store_calls()? - before) as f64 / began.elapsed().as_secs_f64())
}
