//! `tidegate envoy`: configurations of Envoy, held against rules.

mod check;
mod explain;
mod inputs;

use crate::cli::Failure;
use clap::Subcommand;
use std::process::ExitCode;

/// Compares configurations of Envoy with rules.
#[derive(Subcommand)]
pub(in crate::cli) enum Envoy {
    Check(check::Check),
    Explain(Box<explain::Explain>),
}

impl Envoy {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Check(check) => check.run(),
            Self::Explain(explain) => explain.run(),
        }
    }
}
