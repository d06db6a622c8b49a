//! Programs that print their figures, and programs that read logs, whose use of the machine is measured.

use super::{
    Place,
    process::{Usage, run},
    results::{FIGURES, Figures, Results},
    server::Running,
    suite::{Decides, Program},
};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::fs;

/// Rows that ask for a part of the events get one in so many.
const PART: u64 = 10;

/// Runs the program, and adds its figures.
pub(super) fn measure(row: &Program, round: u32, place: &Place, results: &mut Results) -> Result<()> {
    match figures(row, place) {
        Err(failure) if row.optional => eprintln!("  {} is not measured: {failure:#}", row.name),
        figures => {
            for (scenario, figures) in figures.with_context(|| row.name.clone())? {
                results.add(round, (scenario, row.server()), &figures);
            }
        }
    }
    Ok(())
}

/// Its figures by scenario.
fn figures<'r>(row: &'r Program, place: &Place) -> Result<Vec<(&'r str, Figures)>> {
    let store = Running::store(&row.command, place)?;
    let mut command = place.shell(row.core, &format!("exec {}", row.command));
    command.env("STORE", Running::url(store.as_ref()));
    let (usage, output) = run(&mut command)?;
    let mut all = Vec::new();
    if let Some(log) = &row.reads {
        let events = place.options.events / if row.is_part { PART } else { 1 };
        if let Some(decides) = row.decides {
            check(&output, events, decides)?;
        }
        let bytes = fs::metadata(place.files.join(log)).with_context(|| log.clone())?.len();
        all.push((row.name.as_str(), of_use(&usage, events as f64, bytes as f64)));
    }
    for (printed, scenario, figure) in &row.prints {
        let value = |line: &str| line.strip_prefix(printed.as_str())?.strip_prefix('=')?.parse::<f64>().ok();
        let value = output.lines().find_map(value).with_context(|| format!("it did not print {printed}"))?;
        let known = FIGURES.iter().find(|(name, ..)| name == figure);
        all.push((scenario, vec![(known.with_context(|| format!("{figure} is no figure"))?.0, value)]));
    }
    Ok(all)
}

fn of_use(&Usage { wall, user, system, peak_mib }: &Usage, events: f64, bytes: f64) -> Figures {
    let millions_per_second = |number: f64| number / (user + system).max(f64::MIN_POSITIVE) / 1e6;
    vec![
        ("events", events),
        ("bytes_per_event", bytes / events),
        ("wall_s", wall),
        ("user_s", user),
        ("system_s", system),
        ("m_events_per_cpu_s", millions_per_second(events)),
        ("mb_per_cpu_s", millions_per_second(bytes)),
        ("peak_mib", peak_mib),
    ]
}

/// Whether all events were replayed, and without differences where the rules are those of the log.
fn check(output: &str, events: u64, decides: Decides) -> Result<()> {
    let report: Value = serde_json::from_str(output).context("no report in JSON")?;
    let (requests, changed) = (&report["report"]["requests"], &report["report"]["responses_changed"]);
    let lines = &report["lines"];
    ensure!(*requests == events && lines["bad"] == 0, "{requests} of {events} events were replayed: {lines}");
    match decides {
        Decides::AsLogged if *changed != 0 => bail!("{changed} decisions differ from the log"),
        Decides::Otherwise if *changed == 0 => bail!("no decision differs under the proposed rules"),
        _ => Ok(()),
    }
}
