//! Programs that print their figures, and programs that read logs, for which the use of the machine is measured.

use super::{
    Place,
    results::{Figures, Results, figure, printed},
    server::Running,
    suite::Row,
};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::{
    io::Read as _,
    process::{Command, Stdio},
};
use wait4::{ResourceUsage, Wait4 as _};

/// Runs the program, and adds its figures.
pub(super) fn measure(
    row: &Row,
    program: &str,
    round: u32,
    place: &Place,
    results: &mut Results,
) -> Result<()> {
    let store = Running::store(program, place)?;
    let mut command = place.shell(row.core, &format!("exec {program}"));
    command.env("STORE", Running::url(store.as_ref()));
    let (usage, output) = run(&mut command)?;
    if let Some(share) = row.share {
        let events = (place.options.events as f64 * share).round();
        if let Some(changes) = row.changes_decisions {
            check(&output, events, changes)?;
        }
        results.add(round, (&row.name, row.label("")), &of_use(&usage, events));
    }
    for (name, scenario, of) in &row.prints {
        let value = printed(&output).find(|(printed, _)| printed == name);
        let (_, value) = value.with_context(|| format!("it did not print {name}"))?;
        results.add(round, (scenario, row.label("")), &[(figure(of)?, value)]);
    }
    Ok(())
}

/// Runs a command that must succeed. Returns its use of the machine, and its output.
fn run(command: &mut Command) -> Result<(ResourceUsage, String)> {
    let (mut child, mut output) = (command.stdout(Stdio::piped()).spawn()?, String::new());
    child.stdout.take().context("it has no output")?.read_to_string(&mut output)?;
    let ended = child.wait4()?;
    ensure!(ended.status.success(), "{}", ended.status);
    Ok((ended.rusage, output))
}

fn of_use(usage: &ResourceUsage, events: f64) -> Figures {
    let seconds = (usage.utime + usage.stime).as_secs_f64().max(f64::MIN_POSITIVE);
    vec![
        ("m_events_per_cpu_s", events / seconds / 1e6),
        ("peak_mib", usage.maxrss as f64 / f64::from(1 << 20)),
    ]
}

/// Whether all events were replayed, with differences or without.
fn check(output: &str, events: f64, changes: bool) -> Result<()> {
    let report: Value = serde_json::from_str(output).context("no report in JSON")?;
    let (requests, changed) = (&report["report"]["requests"], &report["report"]["responses_changed"]);
    let lines = &report["lines"];
    ensure!(
        requests.as_f64() == Some(events) && lines["bad"] == 0,
        "{requests} of {events} events were replayed: {lines}"
    );
    ensure!((*changed != 0) == changes, "{changed} decisions differ from those of the log");
    Ok(())
}
