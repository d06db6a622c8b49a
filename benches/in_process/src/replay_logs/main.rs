//! Logs for `cargo xtask perf replay`: `replay_logs FOLDER EVENTS` writes a decision log of so many events, and access logs of a tenth
//! of them: in JSON, in CSV, and in the default formats of Envoy and nginx.
//!
//! The events are decided by the library, so that a replay under the rules of the log has to reproduce each of them. Everything is
//! the same in each run: keys, times and the order of lines.

mod lines;
mod traffic;

use lines::LineWriter;
use std::{
    env,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::Path,
    process::ExitCode,
};
use tidegate_core::{
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};
use traffic::Traffic;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rules of the log.
const RULES: &str = include_str!("rules.yaml");
/// Events of the decision log for one line of the access logs.
const EVENTS_PER_ACCESS: u64 = 10;
/// One of so many lines follows the one with the next number, as where two threads decide.
const LINES_PER_SWAP: u64 = 64;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, events] = &*arguments else { return usage() };
    let Ok(events) = events.parse() else { return usage() };
    match write_logs(Path::new(folder), events) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: replay_logs FOLDER EVENTS");
    ExitCode::from(2)
}

fn write_logs(folder: &Path, events: u64) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("rules.yaml"), RULES)?;
    // Two limits of the log are lower, and one is higher.
    let proposed = RULES.replace("requests_per_unit: 600", "requests_per_unit: 300");
    let proposed = proposed.replace("requests_per_unit: 120", "requests_per_unit: 60");
    fs::write(folder.join("proposed.yaml"), proposed.replace("size: 100", "size: 400"))?;
    let file =
        |name: &str| File::create(folder.join(name)).map(|file| BufWriter::with_capacity(1 << 20, file));
    let (mut log, mut json, mut csv) = (file("decisions.jsonl")?, file("access.json")?, file("access.csv")?);
    let (mut envoy, mut nginx) = (file("access.envoy")?, file("access.nginx")?);

    let rules = RuleSet::parse(&[Source::file("rules.yaml", RULES)], &LoadOptions::default())
        .map_err(|errors| io::Error::other(errors.to_string()))?;
    let settings =
        StoreSettings { seed: Seed::from_bytes([7; 16]), counters_max: 4_000_000, on_full: OnFull::Deny };
    let limiter = Limiter::new(rules, settings, false);

    let (mut traffic, mut lines) = (Traffic::new(), LineWriter::default());
    lines.rules(RULES, traffic.now());
    log.write_all(lines.written())?;
    csv.write_all(lines::CSV_COLUMNS.as_bytes())?;
    let mut delayed = Vec::new();
    for number in 0..events {
        let event = traffic.next();
        let request = event.request();
        let pinned = limiter.pin();
        let decision = pinned.decide(&request, event.time);
        // The line of rules is the first.
        lines.decision(number + 2, &event, &request, &decision);
        if number % LINES_PER_SWAP == 0 {
            delayed.extend_from_slice(lines.written());
        } else {
            log.write_all(lines.written())?;
            log.write_all(&delayed)?;
            delayed.clear();
        }
        if number % EVENTS_PER_ACCESS == 0 {
            lines.access_json(&event, decision.code);
            json.write_all(lines.written())?;
            lines.access_csv(&event, decision.code);
            csv.write_all(lines.written())?;
            lines.access_envoy(&event, decision.code);
            envoy.write_all(lines.written())?;
            lines.access_nginx(&event, decision.code);
            nginx.write_all(lines.written())?;
        }
        if number % (1 << 20) == 0 {
            let store = limiter.store();
            for shard in 0..store.shard_count() {
                while !store.sweep(shard, 1_024, event.time).finished {}
            }
        }
    }
    log.write_all(&delayed)?;
    [log, json, csv, envoy, nginx].iter_mut().try_for_each(Write::flush)
}
