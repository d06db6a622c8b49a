//! `tidegate rlqs`: what clients of the rate limit quota service need.

mod envoy_config;
mod matchers;

use crate::cli::Failure;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Configures clients of the rate limit quota service (RLQS).
#[derive(Args)]
pub(in crate::cli) struct Rlqs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    EnvoyConfig(envoy_config::EnvoyConfig),
}

impl Rlqs {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::EnvoyConfig(config) => config.run(),
        }
    }
}
