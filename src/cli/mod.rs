//! The command line: arguments in, tables or JSON out. `commands/` has a file or folder for each command but `serve/`, which has its
//! own; `arguments/` what several commands have.
//!
//! Exit codes: 0 success, 1 failure with the reason on standard error, 2 wrong arguments.

mod arguments;
mod commands;
mod failure;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz_bridge;
#[cfg(test)]
mod help_tests;
pub mod output;
mod serve;

use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;
use commands::Command;
use failure::Failure;
use serve::settings;
use std::process::ExitCode;

/// Rate limit server for Envoy's rate limit API.
///
/// Try it: `tidegate serve` serves demo rules, `tidegate call demo api_key=alice --repeat 6` sends it requests.
#[derive(Parser)]
#[command(name = "tidegate", version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Parses the arguments of the process and runs the command.
pub fn run() -> ExitCode {
    // Ends the process if a shell has called it for a completion.
    CompleteEnv::with_factory(Cli::command).var("TIDEGATE_COMPLETE").bin("tidegate").complete();
    let (command, settings) = match settings::parse() {
        Ok((cli, settings)) => (cli.command, settings),
        Err(failure) => {
            eprintln!("error: {failure}");
            return ExitCode::FAILURE;
        }
    };
    match command.run(settings.unwrap_or_default()) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
