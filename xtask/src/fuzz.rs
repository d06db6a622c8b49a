//! `cargo xtask fuzz`: runs the fuzz targets of `fuzz/`.
//!
//! libFuzzer on stable Rust: LLVM's coverage instrumentation guides it. There is no sanitizer, since safe code has little need of it.
//! One build serves all targets.

use crate::{Failure, cargo::cargo, threads};
use clap::Args;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// Instruments edges and comparisons in the form that libFuzzer reads.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// How much is optimized.
const PROFILE: &str = "fuzz/profile.toml";

/// Initial inputs beside those in `fuzz/corpus`.
const ALSO: [(&str, &[&str]); 1] =
    [("rule_file", &["examples", "tests/rules/reference", "tests/rules/broken"])];

/// Directory of the inputs that earlier runs found, from which later runs continue.
const WORK: &str = "target/fuzz-work";

/// Runs fuzz targets. Inputs that fail are kept in target/fuzz-work and can be run again with --input.
#[derive(Args)]
pub(super) struct Fuzz {
    /// Targets to run; by default all of fuzz/targets.
    targets: Vec<String>,
    /// Seconds per target.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Run these inputs once each instead of fuzzing; needs the name of one target.
    #[arg(long, value_name = "FILE")]
    input: Vec<PathBuf>,
}

impl Fuzz {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let targets = if self.targets.is_empty() { all_targets()? } else { self.targets.clone() };
        if !self.input.is_empty() && targets.len() != 1 {
            return Err("--input needs exactly one target".into());
        }
        let host = host()?;
        build(&host, &targets)?;
        // Each target has one thread.
        let passed = threads::map(threads::cores(), &targets, |target| self.passes(&host, target));
        let passed = passed.into_iter().collect::<Result<Vec<bool>, Failure>>()?;
        let found = targets.iter().zip(passed).filter(|(_, passed)| !passed);
        let found: Vec<&str> = found.map(|(target, _)| target.as_str()).collect();
        if found.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(format!("failing inputs found by {} (kept in {WORK})", found.join(", ")))
    }

    /// Runs one target; true if no input failed. Prints its output otherwise.
    fn passes(&self, host: &str, target: &str) -> Result<bool, Failure> {
        let work = format!("{WORK}/{target}");
        fs::create_dir_all(&work).map_err(|error| format!("cannot create {work}: {error}"))?;
        let mut fuzzer = Command::new(format!("target/{host}/debug/{target}"));
        fuzzer.args(["-timeout=5", "-rss_limit_mb=1024", "-print_final_stats=1"]);
        fuzzer.arg(format!("-artifact_prefix={work}/"));
        if self.input.is_empty() {
            let corpus = format!("fuzz/corpus/{target}");
            let also = ALSO.iter().filter(|(name, _)| *name == target).flat_map(|(_, folders)| *folders);
            let folders = [corpus.as_str()]
                .into_iter()
                .chain(also.copied())
                .filter(|folder| Path::new(folder).is_dir());
            fuzzer.arg(format!("-max_total_time={}", self.seconds)).arg(&work).args(folders);
        } else {
            fuzzer.args(&self.input);
        }
        let ended = fuzzer.output().map_err(|error| format!("cannot run {target}: {error}"))?;
        let said = String::from_utf8_lossy(&ended.stderr);
        let runs = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
        println!("{target}: {} runs", runs.unwrap_or("some").trim());
        if !ended.status.success() {
            println!("{said}");
        }
        Ok(ended.status.success())
    }
}

/// The names of the files in `fuzz/targets`.
fn all_targets() -> Result<Vec<String>, Failure> {
    let failed = |error| format!("cannot read fuzz/targets (run this at the repository's root): {error}");
    let mut targets = Vec::new();
    for entry in fs::read_dir("fuzz/targets").map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        targets.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    targets.sort_unstable();
    Ok(targets)
}

/// The host triple. Naming it as the target keeps build scripts free of instrumentation.
fn host() -> Result<String, Failure> {
    let said =
        Command::new("rustc").arg("-vV").output().map_err(|error| format!("cannot run rustc: {error}"))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV prints no host".into())
}

fn build(host: &str, targets: &[String]) -> Result<(), Failure> {
    let mut cargo = cargo();
    cargo.args(["build", "--quiet", "--locked", "--package", "fuzz", "--config", PROFILE, "--target", host]);
    cargo.args(targets.iter().flat_map(|target| ["--bin", target])).env("RUSTFLAGS", COVERAGE);
    let built = cargo.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    if built.success() { Ok(()) } else { Err("the fuzzers do not build".into()) }
}
