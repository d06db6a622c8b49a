//! The command line: arguments in, tables or JSON out. `commands/` has a file or folder for each command but `serve/`, which has its
//! own; `arguments/` what several commands have.
//!
//! Exit codes: 0 success, 1 failure with the reason on standard error, 2 wrong arguments.

mod arguments;
mod commands;
mod examples;
mod failure;
mod files;
#[cfg(test)]
mod help_tests;
mod output;
mod serve;

use crate::api::BUILD;
use clap::{CommandFactory, FromArgMatches as _, Parser};
use clap_complete::CompleteEnv;
use commands::Command;
use failure::Failure;
use serve::settings;
use std::{process::ExitCode, sync::LazyLock};

/// Rate limit server for Envoy's rate limit API.
///
/// Try it: `tidegate serve` serves demo rules, `tidegate call demo api_key=alice --repeat 6` sends it requests.
#[derive(Parser)]
#[command(name = "tidegate", version = version(), max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The version, and the commit if the build has it.
fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| format!("{} (commit {})", BUILD.version, BUILD.commit));
    &TEXT
}

/// Parses the arguments of the process and runs the command.
pub fn run() -> ExitCode {
    // Ends the process if a shell has called it for a completion.
    CompleteEnv::with_factory(Cli::command).var("TIDEGATE_COMPLETE").bin("tidegate").complete();
    run_command(examples::with_examples(Cli::command())).unwrap_or_else(|failure| {
        eprintln!("error: {failure}");
        ExitCode::FAILURE
    })
}

fn run_command(mut program: clap::Command) -> Result<ExitCode, Failure> {
    let (matches, settings) = settings::parse(&program)?;
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut program).exit());
    cli.command.run(settings.unwrap_or_default(), program)
}
