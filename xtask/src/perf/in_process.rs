//! Cost of a decision in process, from `benches/in_process`.

use super::{
    machine::Machine,
    results::{Figure, Results},
    server::Binaries,
};
use crate::Failure;

/// Name of the measured server in results.
pub(super) const LIMITER: &str = "limiter";
pub(super) const DECIDE_1000_KEYS: &str = "decide, 1,000 keys";
pub(super) const DECIDE_1_M_KEYS: &str = "decide, 1 M keys";
const DECIDE_ALL_1_M_KEYS: &str = "decide 16, 1 M";
pub(super) const TWO_THREADS: &str = "two threads";

/// The names that the benchmark prints, before an equals sign and the number.
const PRINTED: [(&str, &str, Figure); 4] = [
    ("decide_1000_keys_ns", DECIDE_1000_KEYS, Figure::Nanos),
    ("decide_1m_keys_ns", DECIDE_1_M_KEYS, Figure::Nanos),
    ("decide_all_1m_keys_ns", DECIDE_ALL_1_M_KEYS, Figure::Nanos),
    ("two_threads_ratio", TWO_THREADS, Figure::Ratio),
];

/// Runs the benchmark, on all cores.
pub(super) fn measure(
    round: u32,
    machine: &Machine,
    binaries: &Binaries,
    results: &mut Results,
) -> Result<(), Failure> {
    let output = machine.on_all_cores(&binaries.in_process).output();
    let output = output.map_err(|error| format!("the in-process benchmark cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("the in-process benchmark failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    for (name, scenario, figure) in PRINTED {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
        let value = value.ok_or_else(|| format!("the in-process benchmark did not print {name}"))?;
        eprintln!("  {scenario:<18} {LIMITER:<8} {value}");
        results.add(round, scenario, LIMITER, &[(figure, value)]);
    }
    Ok(())
}
