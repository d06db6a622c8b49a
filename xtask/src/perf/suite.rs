//! Suites: what is measured, as rows of the files in `suites/`, and the bars of the rows.

use super::{
    results::{Bar, Series},
    server::Server,
};
use crate::Failure;
use clap::ValueEnum;
use serde::Deserialize;
use std::fmt::Write as _;

/// The measurements of one subject.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Subject {
    /// A decision, beside servers that return a constant.
    Server,
    /// Counters in a store, beside the reference server.
    Shared,
    /// A request through Envoy, by the module and by the ratelimit filter.
    Envoy,
    /// A replay of logs, beside programs that read them.
    Replay,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Suite {
    /// By default.
    pub(super) rounds: u32,
    /// Arguments of `cargo build`.
    pub(super) build: String,
    /// Commands of a shell before the first round, in a folder that is removed after the last.
    pub(super) setup: Option<String>,
    #[serde(default)]
    pub(super) loads: Vec<Load>,
    #[serde(default)]
    pub(super) programs: Vec<Program>,
    /// Settings of Envoy's rate limit filter.
    #[serde(default)]
    pub(super) settings: String,
    #[serde(default)]
    pub(super) filters: Vec<Filter>,
}

/// A load of `tidegate bench` for one or several servers, one after the other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Load {
    pub(super) name: String,
    #[serde(default = "tidegate")]
    pub(super) servers: Vec<Server>,
    /// Name in results, instead of the server's own.
    #[serde(rename = "as")]
    label: Option<String>,
    /// The same load without the work beside it: a scenario whose short periods alternate with those of this one.
    pub(super) without: Option<String>,
    /// Arguments of `tidegate bench`.
    pub(super) load: String,
    /// Arguments of `tidegate serve`; STORE is the address of a store.
    #[serde(default)]
    pub(super) serve: String,
    /// The rule file, instead of one with `plans`.
    rules: Option<String>,
    /// Number of sibling rules in the rule file.
    #[serde(default = "ten")]
    pub(super) plans: u32,
    /// A limit of each plan in a file of limits, instead of a rule file: its condition, with the plan as `PLAN`.
    condition: Option<String>,
    /// Whether the servers have TLS; the load then needs `--tls-insecure`.
    #[serde(default)]
    pub(super) tls: bool,
    /// Other work of the server during the load.
    #[serde(default)]
    pub(super) beside: Beside,
    /// Number of counters created before the measurement, in the order of the load's keys.
    #[serde(default)]
    pub(super) counters_before: u64,
    /// Number of servers on one core, each with the load. CPU and latency are those of the first.
    #[serde(default = "one")]
    pub(super) nodes: usize,
    /// Whether the store's CPU is measured, by a second run of the load.
    #[serde(default)]
    pub(super) store_cpu: bool,
    /// Whether calls of the store are counted.
    #[serde(default)]
    pub(super) store_calls: bool,
    /// Whether a failure leaves the row without figures, and the suite goes on.
    #[serde(default)]
    pub(super) optional: bool,
    #[serde(default)]
    bars: Vec<Bar>,
}

/// Work of the server beside a load.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Beside {
    #[default]
    Nothing,
    /// It has an HTTP port, whose metrics are scraped.
    Scrapes,
    /// Clients keep TLS handshakes open that they never complete.
    HalfHandshakes,
    /// The same clients do so with a port of this program, which accepts them and does nothing else: what is left is their own effect.
    HalfHandshakesElsewhere,
    /// The rule file changes.
    Reloads,
    /// A program reads the stream of decisions, with these arguments of `tidegate ctl tail`.
    Tail(String),
    /// Decisions are recorded for What-if.
    Recording,
}

/// A program without a server, which prints figures or whose use of the machine is measured.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Program {
    pub(super) name: String,
    /// Name in results.
    #[serde(default = "replay")]
    pub(super) server: String,
    /// The core, if it is not all of them.
    pub(super) core: Option<usize>,
    /// A command of a shell. STORE is the address of a store, MEASURE_SECONDS the length of a measurement, READS the file.
    pub(super) command: String,
    /// USER_FIELD and ADDRESS_FIELD of the command.
    #[serde(default)]
    pub(super) fields: Option<[String; 2]>,
    /// Lines `name=number` of the output: name, scenario and figure.
    #[serde(default)]
    pub(super) prints: Vec<(String, String, String)>,
    /// The log that it reads: its use of the machine is measured.
    pub(super) reads: Option<String>,
    /// Whether that log has a tenth of the events.
    #[serde(default)]
    pub(super) is_part: bool,
    /// Whether the report of a replay must have changed decisions.
    pub(super) decides: Option<Decides>,
    #[serde(default)]
    pub(super) optional: bool,
    #[serde(default)]
    bars: Vec<Bar>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Decides {
    AsLogged,
    Otherwise,
}

/// A filter of Envoy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    pub(super) name: String,
    /// The server that it calls.
    pub(super) calls: Option<Server>,
    /// An element of Envoy's list of filters with a comma after it; SETTINGS are those of the suite, SOCKET is that of Tidegate.
    pub(super) filter: String,
    #[serde(default)]
    bars: Vec<Bar>,
}

/// Name of Envoy in results.
pub(super) const ENVOY: &str = "envoy";

fn tidegate() -> Vec<Server> {
    vec![Server::Tidegate]
}

fn ten() -> u32 {
    10
}

fn one() -> usize {
    1
}

fn replay() -> String {
    "replay".to_owned()
}

impl Subject {
    pub(super) fn suite(self) -> Result<Suite, Failure> {
        let text = match self {
            Self::Server => include_str!("suites/server.yaml"),
            Self::Shared => include_str!("suites/shared.yaml"),
            Self::Envoy => include_str!("suites/envoy.yaml"),
            Self::Replay => include_str!("suites/replay.yaml"),
        };
        serde_saphyr::from_str(text).map_err(|error| format!("the suite {}: {error}", self.prefix()))
    }

    /// How the names of its files of results begin.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Server => "",
            Self::Shared => "shared-",
            Self::Envoy => "envoy-",
            Self::Replay => "replay-",
        }
    }
}

impl Suite {
    /// Leaves the rows whose names contain one of these texts.
    pub(super) fn keep(&mut self, names: &[String]) {
        let is_kept = |name: &str| names.iter().any(|text| name.contains(text.as_str()));
        self.loads.retain(|row| is_kept(&row.name));
        self.programs.retain(|row| is_kept(&row.name));
        self.filters.retain(|row| is_kept(&row.name));
    }

    /// The bars of all rows, each with its series.
    pub(super) fn bars(&self) -> Vec<Bar> {
        let loads = self
            .loads
            .iter()
            .map(|row| ((row.name.clone(), row.label(row.servers[0])), &row.bars, row.without.is_some()));
        let programs =
            self.programs.iter().map(|row| ((row.name.clone(), row.server.clone()), &row.bars, false));
        let filters = self.filters.iter().map(|row| ((row.name.clone(), ENVOY.to_owned()), &row.bars, false));
        let rows = loads.chain(programs).chain(filters);
        rows.flat_map(|(series, bars, is_pair): (Series, _, _)| {
            bars.iter().map(move |bar| Bar {
                of: bar.of.clone().or(Some(series.clone())),
                has_control: is_pair,
                ..bar.clone()
            })
        })
        .collect()
    }
}

impl Beside {
    /// The work beside the periods without it, and beside those of the control: nothing, unless its clients alone delay the load. Those
    /// of an attack are on other machines, where they do not.
    pub(super) fn of_clients(&self) -> Self {
        match self {
            Self::HalfHandshakes => Self::HalfHandshakesElsewhere,
            _ => Self::Nothing,
        }
    }
}

impl Load {
    pub(super) fn label(&self, server: Server) -> String {
        self.label.clone().unwrap_or_else(|| server.name().to_owned())
    }

    /// Whether the server has the control API, which needs somebody who could call it: a token.
    pub(super) fn has_control(&self) -> bool {
        self.serve.contains("--control")
    }

    /// The rule file: a plan per sibling, and a rule for each further descriptor. No request is denied, as the comparators deny
    /// none.
    pub(super) fn rules(&self) -> String {
        if let Some(rules) = &self.rules {
            return rules.clone();
        }
        let plans = (0..self.plans).map(|plan| format!("plan-{plan}"));
        if let Some(condition) = &self.condition {
            let limit = |plan: String| {
                format!(
                    "- {{ namespace: edge, max_value: 4000000000, seconds: 86400, conditions: ['{}'], \
                     variables: ['descriptors[0].remote_address'] }}\n",
                    condition.replace("PLAN", &plan)
                )
            };
            return plans.map(limit).collect();
        }
        let further = [("method", "GET"), ("region", "north"), ("route", "checkout")];
        let further = further.map(|(key, value)| (key, value.to_owned()));
        let mut yaml = "domain: edge\ndescriptors:\n".to_owned();
        for (key, value) in plans.map(|plan| ("plan", plan)).chain(further) {
            let limit = "rate_limit: { unit: day, requests_per_unit: 4000000000 }";
            writeln!(
                yaml,
                "  - key: {key}\n    value: {value}\n    descriptors:\n      - key: remote_address\n        {limit}"
            )
            .expect("writing to a string cannot fail");
        }
        yaml
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::results::FIGURES;
    use std::collections::BTreeSet;

    /// The series that a run of the suite measures.
    fn measured(suite: &Suite) -> BTreeSet<Series> {
        let loads = suite.loads.iter().flat_map(|row| {
            let names = [Some(&row.name), row.without.as_ref()].into_iter().flatten();
            names.flat_map(|name| row.servers.iter().map(|server| (name.clone(), row.label(*server))))
        });
        let programs = suite.programs.iter().flat_map(|row| {
            let printed = row.prints.iter().map(|(_, scenario, _)| (scenario.clone(), row.server.clone()));
            printed.chain(row.reads.iter().map(|_| (row.name.clone(), row.server.clone())))
        });
        let filters = suite.filters.iter().map(|row| (row.name.clone(), ENVOY.to_owned()));
        loads.chain(programs).chain(filters).collect()
    }

    #[test]
    fn bars_are_of_figures_that_rows_measure() {
        for subject in Subject::value_variants() {
            let suite = subject.suite().unwrap_or_else(|failure| panic!("{failure}"));
            let (measured, bars) = (measured(&suite), suite.bars());
            assert!(!bars.is_empty());
            for bar in bars {
                assert!(
                    FIGURES.iter().any(|(name, ..)| *name == bar.figure),
                    "{}: {}",
                    bar.about,
                    bar.figure
                );
                assert!(bar.at_most.is_none() || bar.at_least.is_none(), "{}: two bounds", bar.about);
                for series in [&bar.of, &bar.less, &bar.over, &bar.over_less].into_iter().flatten() {
                    assert!(measured.contains(series), "{}: {series:?}", bar.about);
                }
            }
        }
    }

    #[test]
    fn programs_print_figures_that_exist() {
        let suites = Subject::value_variants().iter().map(|subject| subject.suite().expect("a suite"));
        for (name, _, figure) in suites.flat_map(|suite| suite.programs).flat_map(|row| row.prints) {
            assert!(FIGURES.iter().any(|(known, ..)| *known == figure), "{name}: {figure}");
        }
    }

    #[test]
    fn a_series_is_measured_by_one_row() {
        for suite in Subject::value_variants().iter().map(|subject| subject.suite().expect("a suite")) {
            let labels = suite
                .loads
                .iter()
                .flat_map(|row| row.servers.iter().map(|server| (&row.name, row.label(*server))));
            let all: Vec<_> = labels.collect();
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        }
    }
}
