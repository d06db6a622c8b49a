//! The module's own settings: where rules come from, and what Envoy does not offer to a module.
//!
//! They are the object `tidegate` beside the fields of Envoy's message where the configuration is JSON, and variables of the
//! environment in any case: a protobuf message has no room for them.

use super::Problems;
use serde::Deserialize;
use std::path::PathBuf;

/// The module's own settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Local {
    pub(crate) rules: RuleSource,
    /// Maximum number of counters; none for the default of the machine's memory.
    pub(crate) counters_max: Option<usize>,
    /// The value of the action `source_cluster`: the `cluster` of Envoy's node, which a module cannot read.
    pub(crate) source_cluster: Option<String>,
}

/// Where rules come from.
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    rules_files: Option<Vec<PathBuf>>,
    rules: Option<serde_json::Value>,
    max_counters: Option<usize>,
    source_cluster: Option<String>,
}

impl Local {
    /// Of the filter's configuration.
    pub(super) fn read(own: Option<serde_json::Value>, problems: &Problems) -> Self {
        let written = written(own, problems);
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let rules = match written.as_ref().map(|own| (&own.rules_files, &own.rules)) {
            Some((Some(_), Some(_))) => {
                problems.add("tidegate", "has rules_files and rules; leave one of them");
                RuleSource::default()
            }
            Some((Some(files), None)) => RuleSource::Files(files.clone()),
            Some((None, Some(serde_json::Value::String(text)))) => RuleSource::Text(text.clone()),
            // JSON is YAML.
            Some((None, Some(json))) => RuleSource::Text(json.to_string()),
            Some((None, None)) | None => {
                let paths = variable("TIDEGATE_RULES").unwrap_or_default();
                RuleSource::Files(
                    std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect(),
                )
            }
        };
        if rules == RuleSource::default() {
            let remedy = "there are no rules: set the variable TIDEGATE_RULES of Envoy to rule files, separated by colons, \
                          or, in a configuration as JSON, `tidegate: {rules_files: […]}` or `tidegate: {rules: …}`";
            problems.add("", remedy);
        }
        let number = variable("TIDEGATE_MAX_COUNTERS").map(|text| text.parse());
        if let Some(Err(_)) = number {
            problems.add("", "the variable TIDEGATE_MAX_COUNTERS is not a whole number");
        }
        let counters_max = written.as_ref().and_then(|own| own.max_counters).or(number.and_then(Result::ok));
        Self { rules, counters_max, source_cluster: source_cluster(written) }
    }

    /// Of a route's configuration, which has no rules of its own.
    pub(super) fn of_route(own: Option<serde_json::Value>, problems: &Problems) -> Self {
        let written = written(own, problems);
        if written
            .as_ref()
            .is_some_and(|own| own.rules_files.is_some() || own.rules.is_some() || own.max_counters.is_some())
        {
            problems.add("tidegate", "of a route takes source_cluster only; rules are the filter's");
        }
        Self { source_cluster: source_cluster(written), ..Self::default() }
    }
}

fn source_cluster(written: Option<Written>) -> Option<String> {
    let variable = || std::env::var("TIDEGATE_SOURCE_CLUSTER").ok();
    written.and_then(|own| own.source_cluster).or_else(variable)
}

fn written(own: Option<serde_json::Value>, problems: &Problems) -> Option<Written> {
    match Written::deserialize(own?) {
        Ok(written) => Some(written),
        Err(error) => {
            problems.add("tidegate", error.to_string());
            None
        }
    }
}
