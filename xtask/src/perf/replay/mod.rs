//! `cargo xtask perf-replay`: events that `tidegate replay` decides in a second of CPU time, beside programs that read the same
//! files and decide nothing.
//!
//! The logs are made by `benches/in_process`, the same in each run. The decision log is replayed under its own rules first: the
//! rate of a replay that does not reproduce it is not reported.

mod child;

use super::{machine::Machine, table};
use crate::Failure;
use child::{Usage, run};
use clap::Args;
use serde_json::Value;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

/// The bar: events per second of CPU time, in millions.
const MILLIONS_MIN: f64 = 1.0;
/// Lines of the access logs, and of the decision log that is compressed, are so many times fewer.
const EVENTS_PER_ACCESS: u64 = 10;
/// The fields of a user and of its address, as descriptors.
const JSON_MAPPING: [&str; 2] = ["user=x_user", "plan=\"free\",remote_address=client"];
const ENVOY_MAPPING: [&str; 2] = ["user=user-agent", "plan=\"free\",remote_address=x-forwarded-for"];
const NGINX_MAPPING: [&str; 2] = ["user=http_user_agent", "plan=\"free\",remote_address=remote_addr"];
/// Reads each line as JSON, as a script that evaluates a log would.
const PYTHON: &str = "import json,sys\nfor line in open(sys.argv[1],'rb'): json.loads(line)";

/// Measures the rate of `tidegate replay`, and compares it with its bar.
#[derive(Args)]
pub(crate) struct PerfReplay {
    /// Events of the decision log; ten million take 4.5 GB.
    #[arg(long, default_value_t = 10_000_000)]
    events: u64,
    /// A smoke test with few events: no bar can fail.
    #[arg(long)]
    quick: bool,
    /// Folder with programs that are built already, instead of building them in release mode.
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
    /// Folder for the logs, which are removed at the end; by default beside the programs.
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
}

/// A measured command.
struct Row {
    name: String,
    events: u64,
    bytes: u64,
    used: Usage,
    has_bar: bool,
}

impl Row {
    /// Events per second of CPU time, in millions.
    fn millions(&self) -> f64 {
        self.events as f64 / self.used.cpu().max(f64::MIN_POSITIVE) / 1e6
    }
}

impl PerfReplay {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let events = if self.quick { 50_000 } else { self.events };
        let machine = Machine::here()?;
        let programs = match self.programs {
            Some(folder) => folder,
            None => super::build()?.scratch,
        };
        println!("{machine}");
        let logs = Logs { folder: self.logs.unwrap_or_else(|| programs.join("perf-replay")), events };
        let rows = logs.make(&programs).and_then(|()| logs.measure(&programs.join("tidegate")));
        // They are large.
        let removed = fs::remove_dir_all(&logs.folder);
        let rows = rows?;
        removed.map_err(|error| format!("{}: {error}", logs.folder.display()))?;
        println!("{}", report(&rows).trim_fmt());
        let missed = rows.iter().filter(|row| row.has_bar && row.millions() < MILLIONS_MIN).count();
        println!(
            "bar: at least {MILLIONS_MIN} million events per second of CPU time; missed by {missed} rows"
        );
        Ok(if missed == 0 || self.quick { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The logs, and the rules for them.
struct Logs {
    folder: PathBuf,
    events: u64,
}

impl Logs {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn bytes(&self, name: &str) -> Result<u64, Failure> {
        let path = self.path(name);
        let metadata = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(metadata.len())
    }

    fn make(&self, programs: &Path) -> Result<(), Failure> {
        eprintln!("making logs of {} events in {}", self.events, self.folder.display());
        let mut make = Command::new(programs.join("replay_logs"));
        run(make.arg(&self.folder).arg(self.events.to_string()))?;
        let failed = |error: std::io::Error| format!("{}: {error}", self.folder.display());
        let lines = (1 + self.events / EVENTS_PER_ACCESS).to_string();
        let mut head = Command::new("head");
        head.args(["-n", &lines]).arg(self.path("decisions.jsonl"));
        run(head.stdout(File::create(self.path("part.jsonl")).map_err(failed)?))?;
        let mut gzip = Command::new("gzip");
        run(gzip.args(["-k", "-6"]).arg(self.path("part.jsonl"))).map(drop)
    }

    fn measure(&self, tidegate: &Path) -> Result<Vec<Row>, Failure> {
        let (all, part) = (self.events, self.events / EVENTS_PER_ACCESS);
        let [rules, proposed] = ["rules.yaml", "proposed.yaml"].map(|name| self.path(name));
        let [rules, proposed] = [&rules, &proposed].map(|path| path.to_str().unwrap_or_default());
        let replays: [(&str, &str, u64, Vec<&str>); 8] = [
            ("under its own rules", "decisions.jsonl", all, vec![]),
            ("under proposed rules", "decisions.jsonl", all, vec!["--rules", proposed]),
            (
                "proposed against current",
                "decisions.jsonl",
                all,
                vec!["--rules", proposed, "--against", rules],
            ),
            ("gzip", "part.jsonl.gz", part, vec![]),
            ("access log, JSON", "access.json", part, access("json", JSON_MAPPING, proposed)),
            ("access log, CSV", "access.csv", part, access("csv", JSON_MAPPING, proposed)),
            ("access log of Envoy", "access.envoy", part, access("envoy", ENVOY_MAPPING, proposed)),
            ("access log of nginx", "access.nginx", part, access("nginx", NGINX_MAPPING, proposed)),
        ];
        let mut rows = Vec::new();
        for (name, log, events, args) in replays {
            eprintln!("tidegate replay: {name}");
            let mut command = Command::new(tidegate);
            command.args(["replay", "--json"]).args(&args).arg(self.path(log)).stdout(Stdio::piped());
            let (used, output) = run(&mut command)?;
            check(&output, events, args.is_empty()).map_err(|failure| format!("{name}: {failure}"))?;
            let has_bar = log == "decisions.jsonl" && !args.contains(&"--against");
            rows.push(Row {
                name: format!("replay, {name}"),
                events,
                bytes: self.bytes(log)?,
                used,
                has_bar,
            });
        }
        for (name, log, program, args) in [
            ("wc -l", "decisions.jsonl", "wc", vec!["-l"]),
            ("python3, json.loads", "part.jsonl", "python3", vec!["-c", PYTHON]),
            ("jq .code", "part.jsonl", "jq", vec![".code"]),
        ] {
            eprintln!("{name}");
            let mut command = Command::new(program);
            command.args(&args).arg(self.path(log)).stdout(Stdio::null());
            let events = if log == "part.jsonl" { part } else { all };
            match run(&mut command) {
                Ok((used, _)) => {
                    let bytes = self.bytes(log)?;
                    rows.push(Row { name: name.to_owned(), events, bytes, used, has_bar: false });
                }
                Err(failure) => eprintln!("not measured: {failure}"),
            }
        }
        Ok(rows)
    }
}

/// Arguments for an access log.
fn access<'a>(format: &'a str, mapping: [&'a str; 2], proposed: &'a str) -> Vec<&'a str> {
    let [user, address] = mapping;
    let mapping = ["--domain", "edge", "--descriptor", user, "--descriptor", address];
    [&mapping[..], &["--format", format, "--rules", proposed]].concat()
}

/// Whether all events were replayed, and without differences where the rules are those of the log.
fn check(output: &[u8], events: u64, is_as_logged: bool) -> Result<(), Failure> {
    let report: Value =
        serde_json::from_slice(output).map_err(|error| format!("no report in JSON: {error}"))?;
    let (requests, changed) = (&report["report"]["requests"], &report["report"]["responses_changed"]);
    if *requests != events || report["lines"]["bad"] != 0 {
        return Err(format!("{requests} of {events} events were replayed: {}", report["lines"]));
    }
    if is_as_logged && *changed != 0 {
        return Err(format!("{changed} decisions differ from the log"));
    }
    if !is_as_logged && *changed == 0 {
        return Err("no decision differs under the proposed rules".to_owned());
    }
    Ok(())
}

fn report(rows: &[Row]) -> comfy_table::Table {
    let mut table = table([
        "",
        "events",
        "bytes/event",
        "wall s",
        "user s",
        "system s",
        "M events/s of CPU",
        "MB/s of CPU",
        "MiB",
    ]);
    for row in rows {
        let Usage { wall, user, system, peak_mib } = row.used;
        table.add_row([
            row.name.clone(),
            row.events.to_string(),
            format!("{:.0}", row.bytes as f64 / row.events as f64),
            format!("{wall:.2}"),
            format!("{user:.2}"),
            format!("{system:.2}"),
            format!("{:.2}", row.millions()),
            format!("{:.0}", row.bytes as f64 / row.used.cpu().max(f64::MIN_POSITIVE) / 1e6),
            format!("{peak_mib:.0}"),
        ]);
    }
    table
}
