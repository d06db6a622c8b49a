//! Loads of `tidegate bench`: one period, or short periods that alternate on one server, with work beside the load and without it.
//!
//! Bars compare the lower quartiles of such periods, so that what other guests of the machine do affects both alike, or is left out.
//! Periods in which the hypervisor took time are measured again. The control is a tonic server, which has the same periods afterwards,
//! without the work. Its ratios show how far the figures differ on this machine if the server does nothing else. Clients of an attack share
//! the server's core: they run in all periods, and connect to another port in the periods without the attack.

use super::{
    Place,
    beside::Work,
    machine::CoreUse,
    results::{CONTROL, Figures, OTHERS, Results},
    server::Running,
    suite::Row,
};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::{
    process::{Child, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// A run is measured again if other processes used more than this share of the core, but at most this often.
const OTHERS_MAX: f64 = 0.03;
const REPEATS_MAX: u32 = 2;

/// Periods of each kind in one round, and their length in seconds.
const PERIODS: u32 = 6;
const PERIOD_SECONDS: u32 = 2;
/// The share of a period beyond which time that the hypervisor took from the machine has the period measured again, since it delays calls
/// whatever the server does; and how often that may happen in one round.
const STOLEN_MAX: f64 = 0.0075;
const PERIOD_REPEATS_MAX: u32 = 48;
/// Time after a period for the work that it leaves behind: connections that are closed, rules that are built and dropped. The pause is at
/// least this long, and lasts until the server does nothing.
const PAUSE: Duration = Duration::from_millis(1_500);

/// How long `tidegate bench` loads the server before it measures; also the times after the start and before the end of a measurement in
/// which calls of the store are not counted.
const WARM_UP: Duration = Duration::from_secs(1);
const EDGE: Duration = Duration::from_millis(300);

/// Measures the load on each of its servers.
pub(super) fn measure(load: &Row, round: u32, place: &Place, results: &mut Results) -> Result<()> {
    for server in load.servers.iter().filter(|server| !place.absent.contains(*server)) {
        on(load, server, round, place, results)?;
    }
    Ok(())
}

/// Starts the servers, applies the load, in one period or in several that alternate, and stops the servers.
fn on(load: &Row, server: &str, round: u32, place: &Place, results: &mut Results) -> Result<()> {
    let command = place.server(server)?.run.clone() + &load.serve;
    let store = Running::store(&command, place)?;
    let nodes = (0..=load.further_nodes).map(|_| start(load, server, store.as_ref(), place));
    let nodes: Vec<Running> = nodes.collect::<Result<_, _>>()?;
    let first = &nodes[0];
    if load.counters_before > 0 {
        let count = load.counters_before.to_string();
        // The keys of the load, in order.
        report(bench(place, first, first.pid(), load, &["--in-order", "--requests", &count])?)?;
    }
    let resident = ("resident_mib", first.resident_mib()?);
    let alternates = load.without.is_some();
    let seconds = if alternates { PERIOD_SECONDS } else { place.options.seconds };
    let duration = format!("{seconds}s");
    let length = ["--duration", &duration, "--warm-up", if alternates { "200ms" } else { "1s" }];
    let measure = |beside| period(&nodes, store.as_ref(), load, beside, &length, place);
    if alternates {
        // Not counted: for a while after a start or a long pause, latencies are higher.
        measure(None)?;
    }
    // Servers with a store, or with other servers on their core, are disturbed by these.
    let is_alone = load.further_nodes == 0 && store.is_none();
    let mut repeats = match is_alone && !place.options.quick {
        true if alternates => PERIOD_REPEATS_MAX,
        true => REPEATS_MAX,
        false => 0,
    };
    for (name, beside) in periods(load, server, if place.options.quick { 1 } else { PERIODS }) {
        let mut calmest: Option<Run> = None;
        while calmest.as_ref().is_none_or(|run| run.disturbance > 1.0 && repeats > 0) {
            if let Some(run) = &calmest {
                repeats -= 1;
                eprintln!("  {name}: again, {:.1} times the disturbance that is accepted", run.disturbance);
            }
            if alternates {
                sleep(PAUSE);
                first.wait_until_idle()?;
            }
            let run = measure(beside)?;
            calmest = calmest.filter(|calmest| calmest.disturbance <= run.disturbance).or(Some(run));
        }
        let figures = calmest.into_iter().flat_map(|run| run.figures).chain([resident]);
        results.add(round, (name, load.label(server)), &figures.collect::<Figures>());
    }
    if let Some(store) = store.filter(|_| load.store_cpu) {
        let report = report(bench(place, first, store.pid(), load, &length)?)?;
        let cpu = number(&report, "/server_cpu_us_per_request")?;
        results.add(round, (&load.name, load.label(server)), &[("store_cpu_us", cpu)]);
    }
    Ok(())
}

/// The measurements of a round on one server: name, and work beside the load. If there are several, each is first as often as the other.
fn periods<'l>(load: &'l Row, server: &str, pairs: u32) -> Vec<(&'l str, Option<&'l str>)> {
    let row = (load.name.as_str(), load.beside.as_deref());
    let Some(without) = &load.without else { return vec![row] };
    let without = (without.as_str(), load.beside_without.as_deref());
    let with = if server == CONTROL { (row.0, without.1) } else { row };
    (0..pairs).flat_map(|number| if number % 2 == 0 { [without, with] } else { [with, without] }).collect()
}

fn start(load: &Row, server: &str, store: Option<&Running>, place: &Place) -> Result<Running> {
    place.write("rules.yaml", &load.rules())?;
    let store = Running::url(store);
    let tls = if load.tls { "--tls-cert tls.crt --tls-key tls.key" } else { "" };
    Running::start(server, 0, &[("SERVE", &load.serve), ("STORE", &store), ("TLS", tls)], place)
}

/// The figures of one run.
struct Run {
    figures: Figures,
    /// The disturbance as a share of what is accepted.
    disturbance: f64,
}

/// Applies the load to running servers at once, with this work beside it. The figures are those of the first server, except requests and
/// calls of the store.
fn period(
    nodes: &[Running],
    store: Option<&Running>,
    load: &Row,
    beside: Option<&str>,
    length: &[&str],
    place: &Place,
) -> Result<Run> {
    let (first, alternates) = (&nodes[0], load.without.is_some());
    let work = beside.map(|work| Work::start(work, alternates, first, place)).transpose()?;
    let before = CoreUse::read(first.cpu()?)?;
    let loads = nodes.iter().map(|node| bench(place, node, node.pid(), load, length));
    let loads: Vec<Child> = loads.collect::<Result<_>>()?;
    let counted = store.filter(|_| load.store_calls);
    let calls = counted.map(|store| calls_per_second(store, place.options.seconds)).transpose()?;
    let reports = loads.into_iter().map(report).collect::<Result<Vec<_>>>()?;
    let (others, stolen) = CoreUse::read(first.cpu()?)?.disturbances_since(&before);
    let rate = reports.iter().map(|report| number(report, "/per_second")).sum::<Result<f64>>()?;
    let of_first = |pointer| number(&reports[0], pointer);
    let mut figures = vec![
        ("requests_per_second", rate),
        ("server_cpu_us", of_first("/server_cpu_us_per_request")?),
        ("p50_us", of_first("/latency_us/p50")?),
        ("p99_us", of_first("/latency_us/p99")?),
        ("p99.9_us", of_first("/latency_us/p99.9")?),
        (OTHERS, others),
    ];
    figures.extend(calls.map(|calls| ("store_calls", calls / rate)));
    figures.extend(work.map(Work::finish).transpose()?.unwrap_or_default());
    // The work beside a load counts as another process too.
    let disturbance = if alternates { stolen / STOLEN_MAX } else { others / OTHERS_MAX };
    Ok(Run { figures, disturbance })
}

/// Starts `tidegate bench` on the second core, which measures the CPU time of one process.
fn bench(place: &Place, node: &Running, pid: u32, load: &Row, length: &[&str]) -> Result<Child> {
    let mut command = place.machine.on_cores(Some(1), place.programs.join("tidegate"));
    command.arg("bench").arg(node.address.to_string()).args(length);
    command.args(load.load.iter().flat_map(|load| load.split_whitespace()));
    command.args(["--domain", "edge", "--json", "--timeout", "5s", "--pid", &pid.to_string()]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("tidegate bench")
}

/// The report of a load. Every call must be answered, and admitted.
fn report(bench: Child) -> Result<Value> {
    let output = bench.wait_with_output().context("tidegate bench")?;
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

/// Calls of the store per second during a load that starts now, without its first second and its end.
#[expect(clippy::disallowed_methods, reason = "a measurement is of the real clock")]
fn calls_per_second(store: &Running, seconds: u32) -> Result<f64> {
    sleep(WARM_UP + EDGE);
    let (began, before) = (Instant::now(), store.store_calls()?);
    sleep(Duration::from_secs(u64::from(seconds)).saturating_sub(2 * EDGE));
    Ok((store.store_calls()? - before) as f64 / began.elapsed().as_secs_f64())
}
