//! Programs that print their figures, and programs that read logs, whose use of the machine is measured.

use super::{
    Place,
    process::{Usage, run},
    results::{FIGURES, Figures, Results},
    server::Store,
    suite::{Decides, Program, Suite},
};
use crate::Failure;
use serde_json::Value;
use std::{fs, path::PathBuf, process::Command};

/// Rows that ask for a part of the events get one in so many.
const PART: u64 = 10;

/// The folder of logs; removed when dropped, as they are large.
pub(super) struct Logs(Option<PathBuf>);

impl Logs {
    /// Makes those of the suite, if it has some.
    pub(super) fn make(suite: &Suite, place: &Place) -> Result<Self, Failure> {
        let Some(setup) = &suite.setup else { return Ok(Self(None)) };
        let folder = place.file("perf-logs");
        let logs = Self(Some(folder.clone()));
        // Of a run that did not end.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        eprintln!("making logs of {} events in {}", place.options.events(), folder.display());
        run("the setup", &mut logs.shell(None, setup, place)).map(|_| logs)
    }

    fn shell(&self, core: Option<usize>, command: &str, place: &Place) -> Command {
        let mut shell = match core {
            Some(core) => place.machine.on_core(core, "sh"),
            None => place.machine.on_all_cores("sh"),
        };
        let path = std::env::var("PATH").unwrap_or_default();
        shell.args(["-c", command]).env("PATH", format!("{}:{path}", place.programs.display()));
        shell.env("EVENTS", place.options.events().to_string());
        shell.env("MEASURE_SECONDS", place.options.seconds().to_string());
        shell.current_dir(self.0.as_ref().unwrap_or(&place.programs));
        shell
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        if let Some(folder) = &self.0
            && let Err(error) = fs::remove_dir_all(folder)
        {
            eprintln!("{} is not removed: {error}", folder.display());
        }
    }
}

/// Runs the program, and adds its figures.
pub(super) fn measure(
    row: &Program,
    round: u32,
    logs: &Logs,
    place: &Place,
    results: &mut Results,
) -> Result<(), Failure> {
    let store = row.command.contains("$STORE").then(|| Store::start(place)).transpose()?;
    let mut command = logs.shell(row.core, &format!("exec {}", row.command), place);
    command.env("STORE", store.as_ref().map_or_else(String::new, Store::url));
    command.env("READS", row.reads.as_deref().unwrap_or_default());
    for (name, field) in ["USER_FIELD", "ADDRESS_FIELD"].into_iter().zip(row.fields.iter().flatten()) {
        command.env(name, field);
    }
    let (usage, output) = match run(&row.name, &mut command) {
        Err(failure) if row.optional => {
            eprintln!("  not measured: {failure}");
            return Ok(());
        }
        ran => ran?,
    };
    if let Some(log) = &row.reads {
        let events = place.options.events() / if row.is_part { PART } else { 1 };
        if let Some(decides) = row.decides {
            check(&output, events, decides).map_err(|failure| format!("{}: {failure}", row.name))?;
        }
        let path = logs.0.as_ref().unwrap_or(&place.programs).join(log);
        let metadata = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let figures = of_use(&usage, events as f64, metadata.len() as f64);
        place.add(results, round, (&row.name, &row.server), &figures);
    }
    let text = String::from_utf8_lossy(&output);
    for (printed, scenario, figure) in &row.prints {
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(printed.as_str())?.strip_prefix('=')?.parse::<f64>().ok());
        let value = value.ok_or_else(|| format!("{} did not print {printed}", row.name))?;
        let known = FIGURES.iter().find(|(name, ..)| name == figure);
        let (figure, ..) = known.ok_or_else(|| format!("{figure} is no figure"))?;
        place.add(results, round, (scenario, &row.server), &[(figure, value)]);
    }
    Ok(())
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
fn check(output: &[u8], events: u64, decides: Decides) -> Result<(), Failure> {
    let report: Value =
        serde_json::from_slice(output).map_err(|error| format!("no report in JSON: {error}"))?;
    let (requests, changed) = (&report["report"]["requests"], &report["report"]["responses_changed"]);
    if *requests != events || report["lines"]["bad"] != 0 {
        return Err(format!("{requests} of {events} events were replayed: {}", report["lines"]));
    }
    match decides {
        Decides::AsLogged if *changed != 0 => Err(format!("{changed} decisions differ from the log")),
        Decides::Otherwise if *changed == 0 => Err("no decision differs under the proposed rules".to_owned()),
        _ => Ok(()),
    }
}
