//! The project's own chores: `cargo xtask COMMAND`.

mod accuracy;
mod clients;
mod dependencies;
mod fuzz;
mod perf;

use clap::Parser;
use std::process::ExitCode;

/// The project's own chores.
#[derive(Parser)]
enum Chore {
    Perf(perf::Perf),
    Fuzz(fuzz::Fuzz),
    Accuracy(accuracy::Accuracy),
    Dependencies(dependencies::Dependencies),
    Clients(clients::Clients),
}

/// Why a chore failed, for people.
type Failure = String;

fn main() -> ExitCode {
    let done = match Chore::parse() {
        Chore::Perf(perf) => perf.run(),
        Chore::Fuzz(fuzz) => fuzz.run(),
        Chore::Accuracy(accuracy) => accuracy.run(),
        Chore::Dependencies(dependencies) => dependencies.run(),
        Chore::Clients(clients) => clients.run(),
    };
    done.unwrap_or_else(|failure: Failure| {
        eprintln!("error: {failure}");
        ExitCode::FAILURE
    })
}
