//! `tidegate rlqs`: what clients of the rate limit quota service need.

mod envoy_config;
mod matchers;

use crate::cli::Failure;
use clap::Subcommand;
use std::process::ExitCode;

/// Configures clients of the rate limit quota service (RLQS).
#[derive(Subcommand)]
pub(in crate::cli) enum Rlqs {
    EnvoyConfig(envoy_config::EnvoyConfig),
}

impl Rlqs {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let Self::EnvoyConfig(config) = self;
        config.run()
    }
}
