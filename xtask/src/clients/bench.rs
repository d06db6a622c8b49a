//! `cargo xtask clients --bench`: each client beside the bare gRPC stub of its language.
//!
//! Each language has a program that measures itself against the server at `TIDEGATE_ADDR`, whose rules are [`RULES`], and
//! prints one line of JSON, [`Figures`]. Stub and client alternate in short rounds and the best round of each counts, so
//! that other load on the machine affects neither. Both send the same message and metadata, built for each call, with the same deadline.

use super::{
    Outcome,
    languages::{Command, Language},
    process::Place,
};
use crate::Failure;
use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{self, Child, Stdio},
    thread,
};

/// A limit that admits every call, and a limit that denies every call but the first.
const RULES: &str = "\
domain: bench
descriptors:
  - key: admitted
    rate_limit: {unit: second, requests_per_unit: 4000000000}
  - key: denied
    rate_limit: {unit: year, requests_per_unit: 1}
";

/// Largest overhead over the stub, in percent.
const OVERHEAD_MAX: f64 = 15.0;

pub(super) const HEADER: &[&str] = &[
    "sequential p50: stub",
    "client",
    "overhead",
    "64 concurrent: stub",
    "client",
    "overhead",
    "local denial",
];

/// The program that measures a client.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bench {
    /// Commands that build it.
    #[serde(default)]
    prepare: Vec<Command>,
    run: Command,
    /// Largest time of a local denial, in microseconds.
    local_denial_us_max: f64,
}

/// Measured figures of one language.
#[derive(serde::Deserialize)]
struct Figures {
    /// Median time of sequential calls, in microseconds.
    stub_p50_us: f64,
    client_p50_us: f64,
    /// Calls per second of 64 concurrent callers.
    stub_per_s: f64,
    client_per_s: f64,
    /// Time of a denial without a call, in microseconds: the least mean of a round.
    local_denial_us: f64,
}

pub(super) fn run(language: &Language, place: &Place<'_>) -> Outcome {
    let bench = &language.bench;
    let folder = place.repository.join("clients").join(language.folder);
    place.prepare(&bench.prepare, &folder)?;
    let server = Server::start(place)?;
    let mut command = place.command(&bench.run, &folder)?;
    let output = command.env("TIDEGATE_ADDR", &server.address).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{}: {error}", bench.run.join(" ")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rfind(|line| line.starts_with('{')).ok_or("the program printed no figures")?;
    let figures: Figures = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
    Ok((figures.cells(), figures.missed(bench)))
}

impl Figures {
    /// Overheads in percent: of the sequential time, and of the time per call of concurrent callers.
    fn overheads(&self) -> [f64; 2] {
        [self.client_p50_us / self.stub_p50_us, self.stub_per_s / self.client_per_s]
            .map(|ratio| (ratio - 1.0) * 100.0)
    }

    fn cells(&self) -> Vec<String> {
        let [sequential, concurrent] = self.overheads();
        let (us, per_s) = (|us: f64| format!("{us:.0} µs"), |calls: f64| format!("{calls:.0}/s"));
        vec![
            us(self.stub_p50_us),
            us(self.client_p50_us),
            format!("{sequential:+.0} %"),
            per_s(self.stub_per_s),
            per_s(self.client_per_s),
            format!("{concurrent:+.0} %"),
            format!("{:.2} µs", self.local_denial_us),
        ]
    }

    /// Targets that are missed.
    fn missed(&self, bench: &Bench) -> Vec<String> {
        let [sequential, concurrent] = self.overheads();
        let measured = [
            ("sequential overhead", sequential, OVERHEAD_MAX, "%"),
            ("concurrent overhead", concurrent, OVERHEAD_MAX, "%"),
            ("local denial", self.local_denial_us, bench.local_denial_us_max, "µs"),
        ];
        let missed = measured.into_iter().filter(|(_, measured, max, _)| measured > max);
        missed
            .map(|(name, measured, max, unit)| format!("{name} {measured:.1} {unit}, target {max} {unit}"))
            .collect()
    }
}

/// A server with [`RULES`]; ended when dropped.
struct Server {
    child: Child,
    address: String,
    rules: PathBuf,
}

impl Server {
    fn start(place: &Place<'_>) -> Result<Self, Failure> {
        let rules = env::temp_dir().join(format!("tidegate-clients-bench-{}.yaml", process::id()));
        fs::write(&rules, RULES).map_err(|error| format!("{}: {error}", rules.display()))?;
        let mut child = process::Command::new(place.server)
            .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--rules"])
            .arg(&rules)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", place.server.display()))?;
        let log = child.stderr.take();
        let mut server = Self { child, address: String::new(), rules };
        let mut lines = BufReader::new(log.ok_or("the server has no log")?).lines().map_while(Result::ok);
        for line in lines.by_ref() {
            let event: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            match event["message"].as_str() {
                Some("listening") => {
                    event["address"].as_str().unwrap_or_default().clone_into(&mut server.address)
                }
                Some("serving") => {
                    thread::spawn(move || lines.for_each(drop));
                    return Ok(server);
                }
                _ => {}
            }
        }
        Err("the server does not serve".into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.rules);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_beyond_their_targets_are_reported() {
        let bench = Bench { prepare: vec![], run: vec![], local_denial_us_max: 2.0 };
        let line = r#"{"stub_p50_us": 100, "client_p50_us": 116, "stub_per_s": 1100, "client_per_s": 1000, "local_denial_us": 2.5}"#;
        let figures: Figures = serde_json::from_str(line).expect("figures");
        let missed = figures.missed(&bench);
        assert_eq!(missed, ["sequential overhead 16.0 %, target 15 %", "local denial 2.5 µs, target 2 µs"]);
        assert_eq!(figures.cells()[2], "+16 %");
        assert_eq!(figures.cells()[5], "+10 %");
    }
}
