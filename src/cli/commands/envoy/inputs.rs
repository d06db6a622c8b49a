//! The files of both commands: rules, and configurations of Envoy.

use crate::cli::{Failure, arguments::rule_files::ReadAs};
use clap::Args;
use std::path::PathBuf;
use tidegate_core::rules::{self, RuleSet, Source, config_map_files, documents};
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
        let sources: Vec<Source> = rules::read(&self.rules)?.into_iter().flat_map(unpacked).collect();
        self.read_as.parse(&sources)
    }

    pub(super) fn files(&self) -> Result<Files, Failure> {
        Ok(Files::read(rules::read(&self.configs)?)?)
    }
}

/// The rule files of a ConfigMap, or the file itself.
fn unpacked(source: Source) -> Vec<Source> {
    let held: Vec<Source> = documents(&source).map_or_else(
        |_| Vec::new(),
        |all| {
            all.iter().filter_map(|document| config_map_files(&source, document.root())).flatten().collect()
        },
    );
    if held.is_empty() { vec![source] } else { held }
}
