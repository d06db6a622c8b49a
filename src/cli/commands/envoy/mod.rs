//! `tidegate envoy`: configurations of Envoy, held against rules.

mod check;
mod explain;
mod inputs;

use crate::cli::Failure;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Compares configurations of Envoy with rules.
#[derive(Args)]
pub(in crate::cli) struct Envoy {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(check::Check),
    Explain(Box<explain::Explain>),
}

impl Envoy {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Check(check) => check.run(),
            Command::Explain(explain) => explain.run(),
        }
    }
}
