//! The files of both commands: rules, and configurations of Envoy.

use crate::cli::{Failure, arguments::rule_files::ReadAs};
use clap::Args;
use std::path::PathBuf;
use tidegate_core::rules::{self, RuleSet};
use tidegate_envoy_config::Files;

/// Rules and configurations.
#[derive(Args)]
pub(super) struct Inputs {
    /// A rule file, a directory of them, or a ConfigMap that holds some; repeat for more.
    #[arg(long, env = "TIDEGATE_RULES", value_name = "PATH", value_delimiter = ':', required = true)]
    rules: Vec<PathBuf>,
    #[command(flatten)]
    read_as: ReadAs,
    /// Files of Envoy, YAML or JSON: a bootstrap, routes, a config dump, EnvoyFilters, ConfigMaps of these; - is standard input.
    #[arg(required = true, value_name = "CONFIG")]
    configs: Vec<PathBuf>,
}

impl Inputs {
    pub(super) fn rules(&self) -> Result<RuleSet, Failure> {
        self.read_as.load(&self.rules)
    }

    pub(super) fn files(&self) -> Result<Files, Failure> {
        Ok(Files::read(rules::read(&self.configs)?)?)
    }
}
