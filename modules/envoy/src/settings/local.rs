//! The module's own settings: the source of rules or decisions, and values that Envoy does not offer to a module.
//!
//! With JSON they are the object `tidegate` beside the fields of Envoy's message; a protobuf message has no room for them. Variables of the
//! environment set them in either case.

use super::Server;
use serde::Deserialize;
use std::{num::NonZeroUsize, path::PathBuf};
use tidegate_envoy_config::Problems;

/// The module's own settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Local {
    /// The server that decides and grants leases. Without a server, rules and counters are of this process.
    pub(crate) server: Option<Server>,
    pub(crate) rules: RuleSource,
    /// Maximum number of counters; none for the default of the machine's memory.
    pub(crate) counters_max: Option<usize>,
    /// The value of the action `source_cluster`: the `cluster` of Envoy's node, which a module cannot read.
    pub(crate) source_cluster: Option<String>,
    /// Whether decisions are written to the stream's dynamic metadata.
    pub(crate) dynamic_metadata: bool,
}

/// The variable with the value of the action `source_cluster`.
const SOURCE_CLUSTER: &str = "TIDEGATE_SOURCE_CLUSTER";

/// The source of rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum RuleSource {
    /// Files and directories, read again when they change.
    Files(Vec<PathBuf>),
    /// The text of a rule file, in the configuration.
    Text(String),
}

impl Default for RuleSource {
    fn default() -> Self {
        Self::Files(Vec::new())
    }
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(deny_unknown_fields)]
struct Written {
    rules_files: Option<Vec<PathBuf>>,
    rules: Option<serde_json::Value>,
    server: Option<serde_json::Value>,
    max_counters: Option<NonZeroUsize>,
    source_cluster: Option<String>,
    dynamic_metadata: Option<bool>,
}

impl Local {
    /// Reads those of the filter's configuration, and variables of the environment.
    pub(super) fn read(
        own: Option<serde_json::Value>,
        variable: impl Fn(&str) -> Option<String>,
        problems: &Problems,
    ) -> Self {
        let mut written = written(own, problems);
        let variable = &set(variable);
        let (mut rules, mut server) = (RuleSource::default(), None);
        match (written.rules_files.take(), written.rules.take(), written.server.take()) {
            (Some(files), None, None) => {
                if files.is_empty() {
                    problems.add("tidegate.rules_files", "is empty; name a file or a directory of rules");
                }
                rules = RuleSource::Files(files);
            }
            (None, Some(serde_json::Value::String(text)), None) => rules = RuleSource::Text(text),
            // JSON is YAML.
            (None, Some(json), None) => rules = RuleSource::Text(json.to_string()),
            (None, None, Some(json)) => {
                server = Server::read(json, problems);
                if written.max_counters.is_some() {
                    problems
                        .add("tidegate.max_counters", "has no effect with a server, which has the counters");
                }
            }
            (None, None, None) => {
                server = Server::of_variables(variable, problems);
                let paths = variable("TIDEGATE_RULES").unwrap_or_default();
                let paths = std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty());
                rules = RuleSource::Files(paths.collect());
                let has_rules = rules != RuleSource::default();
                if has_rules && variable("TIDEGATE_LEASE_SERVER").is_some() {
                    problems.add(
                        "",
                        "the variables TIDEGATE_RULES and TIDEGATE_LEASE_SERVER are both set; leave one of them",
                    );
                } else if !has_rules && variable("TIDEGATE_LEASE_SERVER").is_none() {
                    let remedy = "there are no rules: set the variable TIDEGATE_RULES of Envoy to rule files, separated by colons, or \
                                  TIDEGATE_LEASE_SERVER to the address of a server, or, in a configuration as JSON, \
                                  `tidegate: {rules_files: […]}`, `tidegate: {rules: …}` or `tidegate: {server: …}`";
                    problems.add("", remedy);
                }
            }
            _ => problems
                .add("tidegate", "has more than one of rules_files, rules and server; leave one of them"),
        }
        let number = variable("TIDEGATE_MAX_COUNTERS").map(|text| text.parse::<NonZeroUsize>());
        if let Some(Err(_)) = number {
            problems.add("", "the variable TIDEGATE_MAX_COUNTERS is not a whole number from 1");
        }
        let counters_max = written.max_counters.or(number.and_then(Result::ok)).map(NonZeroUsize::get);
        let dynamic_metadata = match variable("TIDEGATE_DYNAMIC_METADATA").as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => {
                problems.add("", "the variable TIDEGATE_DYNAMIC_METADATA is not true or false");
                false
            }
        };
        let dynamic_metadata = written.dynamic_metadata.unwrap_or(dynamic_metadata);
        let source_cluster = written.source_cluster.or_else(|| variable(SOURCE_CLUSTER));
        Self { server, rules, counters_max, source_cluster, dynamic_metadata }
    }

    /// Reads those of a route's configuration, which has no rules of its own, and variables of the environment.
    pub(super) fn of_route(
        own: Option<serde_json::Value>,
        variable: impl Fn(&str) -> Option<String>,
        problems: &Problems,
    ) -> Self {
        let mut written = written(own, problems);
        let own = written.source_cluster.take();
        if written != Written::default() {
            problems.add("tidegate", "of a route takes source_cluster only; all else is the filter's");
        }
        Self { source_cluster: own.or_else(|| set(variable)(SOURCE_CLUSTER)), ..Self::default() }
    }
}

/// Variables without those that are empty: an empty variable is not set.
fn set(variable: impl Fn(&str) -> Option<String>) -> impl Fn(&str) -> Option<String> {
    move |name| variable(name).filter(|value| !value.is_empty())
}

fn written(own: Option<serde_json::Value>, problems: &Problems) -> Written {
    let written = own.map(Written::deserialize).transpose();
    written.map_err(|error| problems.add("tidegate", error.to_string())).ok().flatten().unwrap_or_default()
}
