//! Commands of the project's development: `cargo xtask COMMAND`.

mod accuracy;
mod cargo;
mod clients;
mod dependencies;
mod fuzz;
mod lines;
mod perf;
mod threads;

use clap::Parser;
use std::process::ExitCode;

/// Commands of the project's development.
#[derive(Parser)]
enum Task {
    Perf(perf::Perf),
    Fuzz(fuzz::Fuzz),
    Lines(lines::Lines),
    /// Measures the accuracy of each algorithm against an exact count, and writes docs/accuracy.md with its drawing
    Accuracy,
    /// Checks that every dependency has a licence that deny.toml allows, is from crates.io, and is built once.
    Dependencies,
    Clients(clients::Clients),
}

/// A failed command, as a message for users.
type Failure = String;

fn main() -> ExitCode {
    let done = match Task::parse() {
        Task::Perf(perf) => perf.run().map_err(|failure| format!("{failure:#}")),
        Task::Fuzz(fuzz) => fuzz.run(),
        Task::Lines(lines) => lines.run(),
        Task::Accuracy => accuracy::run(),
        Task::Dependencies => dependencies::run(),
        Task::Clients(clients) => clients.run(),
    };
    done.unwrap_or_else(|failure: Failure| {
        eprintln!("error: {failure}");
        ExitCode::FAILURE
    })
}
