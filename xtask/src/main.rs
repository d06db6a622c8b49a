//! The project's own chores: `cargo xtask COMMAND`.

mod fuzz;
mod perf;
mod svg;

use clap::Parser;
use std::process::ExitCode;

/// The project's own chores.
#[derive(Parser)]
enum Chore {
    Perf(perf::Perf),
    Fuzz(fuzz::Fuzz),
}

/// Why a chore failed, for people.
type Failure = String;

fn main() -> ExitCode {
    let done = match Chore::parse() {
        Chore::Perf(perf) => perf.run(),
        Chore::Fuzz(fuzz) => fuzz.run(),
    };
    done.unwrap_or_else(|failure: Failure| {
        eprintln!("error: {failure}");
        ExitCode::FAILURE
    })
}
