//! Costs without a connection, from `benches/in_process`: of a decision, and of reports of quotas.

use super::{
    machine::Machine,
    results::{Figure, Results},
    server::Binaries,
};
use crate::Failure;
use std::path::Path;

/// Name of the measured server in results.
pub(super) const LIMITER: &str = "limiter";
pub(super) const DECIDE_1000_KEYS: &str = "decide, 1,000 keys";
pub(super) const DECIDE_1_M_KEYS: &str = "decide, 1 M keys";
const DECIDE_ALL_1_M_KEYS: &str = "decide 16, 1 M";
pub(super) const TWO_THREADS: &str = "two threads";

/// The same for the thread that divides limits.
pub(super) const QUOTAS: &str = "quotas";
pub(super) const QUOTAS_OF_ALL: &str = "quotas, buckets of all streams";
pub(super) const QUOTAS_OF_TEN: &str = "quotas, buckets of ten streams";
pub(super) const QUOTAS_OF_ONE: &str = "quotas, buckets of one stream";

/// The names that the benchmark prints, before an equals sign and the number.
const PRINTED: [(&str, &str, Figure); 4] = [
    ("decide_1000_keys_ns", DECIDE_1000_KEYS, Figure::Nanos),
    ("decide_1m_keys_ns", DECIDE_1_M_KEYS, Figure::Nanos),
    ("decide_all_1m_keys_ns", DECIDE_ALL_1_M_KEYS, Figure::Nanos),
    ("two_threads_ratio", TWO_THREADS, Figure::Ratio),
];

/// The names that the benchmark of quotas prints, likewise.
const PRINTED_OF_QUOTAS: [(&str, &str, Figure); 6] = [
    ("quotas_all_report_micros", QUOTAS_OF_ALL, Figure::CpuMicros),
    ("quotas_all_bytes", QUOTAS_OF_ALL, Figure::Bytes),
    ("quotas_ten_report_micros", QUOTAS_OF_TEN, Figure::CpuMicros),
    ("quotas_ten_bytes", QUOTAS_OF_TEN, Figure::Bytes),
    ("quotas_own_report_micros", QUOTAS_OF_ONE, Figure::CpuMicros),
    ("quotas_own_bytes", QUOTAS_OF_ONE, Figure::Bytes),
];

/// Runs the benchmark of decisions, on all cores.
pub(super) fn measure(
    round: u32,
    machine: &Machine,
    binaries: &Binaries,
    results: &mut Results,
) -> Result<(), Failure> {
    run(&binaries.in_process, LIMITER, &PRINTED, round, machine, results)
}

/// Runs that of quotas: its clients on one core and the thread that divides limits on another.
pub(super) fn measure_quotas(
    round: u32,
    machine: &Machine,
    binaries: &Binaries,
    results: &mut Results,
) -> Result<(), Failure> {
    run(&binaries.quotas, QUOTAS, &PRINTED_OF_QUOTAS, round, machine, results)
}

fn run(
    program: &Path,
    server: &'static str,
    printed: &[(&str, &'static str, Figure)],
    round: u32,
    machine: &Machine,
    results: &mut Results,
) -> Result<(), Failure> {
    let name = program.display();
    let output = machine.on_all_cores(program).output();
    let output = output.map_err(|error| format!("{name} cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    for &(printed, scenario, figure) in printed {
        let value = text.lines().find_map(|line| line.strip_prefix(printed)?.strip_prefix('=')?.parse().ok());
        let value = value.ok_or_else(|| format!("{name} did not print {printed}"))?;
        eprintln!("  {scenario:<18} {server:<8} {value} {}", figure.name());
        results.add(round, scenario, server, &[(figure, value)]);
    }
    Ok(())
}
