//! The command line: one file a command. Arguments in, tables or JSON out, exit codes.
//!
//! Exit codes: 0 done, 1 it failed and standard error says why, 2 the arguments are wrong.

mod bench;
mod call;
mod check;
mod completions;
mod connection_bounds;
mod data_dir;
mod descriptor;
mod explain;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz_bridge;
mod progress;
mod response_options;
mod rule_files;
mod rule_text;
mod said;
mod serve;
mod snapshot;
mod table;
mod target;

use clap::{Parser, Subcommand};
use std::{fmt, process::ExitCode, time::Duration};

/// Decides who may go on and who must wait: a rate-limit server for Envoy and everyone else.
///
/// Start with `tidegate serve`, which needs no files, and ask it with `tidegate call demo api_key=alice --repeat 6`.
#[derive(Parser)]
#[command(name = "tidegate", version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Serve),
    Check(check::Check),
    Explain(explain::Explain),
    Call(call::Call),
    Snapshot(snapshot::Snapshot),
    Bench(bench::Bench),
    Completions(completions::Completions),
}

/// Why a command failed, for people.
#[derive(Debug)]
struct Failure(String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A time of the command line that something is done after, or again and again: one too short would be all that is done.
fn interval(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(interval) if interval >= Duration::from_millis(10) => Ok(interval),
        Ok(_) => Err("write at least 10ms".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses the process's arguments and runs the command.
pub fn run() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Check(check) => check.run(),
        Command::Explain(explain) => explain.run(),
        Command::Call(call) => call.run(),
        Command::Snapshot(snapshot) => snapshot.run(),
        Command::Bench(bench) => bench.run(),
        Command::Completions(completions) => completions.run(),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
