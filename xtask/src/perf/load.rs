//! One run: a fresh server, a load, and the measurements.

use super::{
    bench::Report,
    beside::Work,
    machine::{CoreUse, Machine, stolen},
    results::Figure,
    scenario::{Beside, Scenario},
    server::{Binaries, Running, Server},
};
use crate::Failure;

/// Measurements of one run.
pub(super) struct Run {
    per_second: f64,
    cpu_micros: f64,
    p50_micros: f64,
    p99_micros: f64,
    p999_micros: f64,
    /// Resident memory of the server before the first request, in MiB.
    resident_mib: f64,
    /// Figures of the work beside the load.
    of_work: Vec<(Figure, f64)>,
    /// Share of the core that other processes used during the run.
    pub(super) disturbance: f64,
    /// Time that the hypervisor took from the machine during the load, in seconds.
    pub(super) stolen: f64,
}

impl Run {
    pub(super) fn summary(&self) -> String {
        format!(
            "{:>8.0}/s  {:>6.2} µs CPU  p50 {:>6.0} µs  p99 {:>6.0} µs  others {:.0} %",
            self.per_second,
            self.cpu_micros,
            self.p50_micros,
            self.p99_micros,
            self.disturbance * 100.0
        )
    }

    pub(super) fn figures(&self) -> Vec<(Figure, f64)> {
        let figures = [
            (Figure::PerSecond, self.per_second),
            (Figure::CpuMicros, self.cpu_micros),
            (Figure::P50Micros, self.p50_micros),
            (Figure::P99Micros, self.p99_micros),
            (Figure::P999Micros, self.p999_micros),
            (Figure::ResidentMib, self.resident_mib),
            (Figure::Disturbance, self.disturbance),
        ];
        figures.into_iter().chain(self.of_work.iter().copied()).collect()
    }
}

/// Starts the server, applies the load and stops the server.
pub(super) fn measure(
    scenario: &Scenario,
    server: Server,
    seconds: u32,
    machine: &Machine,
    binaries: &Binaries,
) -> Result<Run, Failure> {
    let running = Running::start(server, scenario, machine, binaries)?;
    if scenario.counters_before > 0 {
        let count = scenario.counters_before.to_string();
        // The keys of the load, in order.
        bench(&running, machine, binaries, &[scenario.load, &["--in-order", "--requests", &count]])?;
    }
    let duration = format!("{seconds}s");
    measure_period(&running, scenario, scenario.beside, &["--duration", &duration], machine, binaries)
}

/// Applies the load to a running server, with this work beside it.
pub(super) fn measure_period(
    running: &Running,
    scenario: &Scenario,
    beside: Beside,
    length: &[&str],
    machine: &Machine,
    binaries: &Binaries,
) -> Result<Run, Failure> {
    let resident_mib = running.resident_mib().ok_or("the server's memory cannot be read")?;
    let work = Work::start(beside, scenario, running, machine, binaries)?;
    let before = CoreUse::read(machine.core(0), running.pid())?;
    let stolen_before = stolen()?;
    let report = bench(running, machine, binaries, &[scenario.load, length])
        .map_err(|failure| format!("{}: {failure}", scenario.name))?;
    let stolen = stolen()? - stolen_before;
    let disturbance = CoreUse::read(machine.core(0), running.pid())?.others_since(&before);
    let of_work = work.map(Work::finish).transpose()?.unwrap_or_default();
    Ok(Run {
        per_second: report.number("/per_second")?,
        cpu_micros: report.number("/server_cpu_us_per_request")?,
        p50_micros: report.number("/latency_us/p50")?,
        p99_micros: report.number("/latency_us/p99")?,
        p999_micros: report.number("/latency_us/p99.9")?,
        resident_mib,
        of_work,
        disturbance,
        stolen,
    })
}

fn bench(
    running: &Running,
    machine: &Machine,
    binaries: &Binaries,
    load: &[&[&str]],
) -> Result<Report, Failure> {
    Report::of(machine, &binaries.tidegate, (running.address(), running.pid()), load)
}
