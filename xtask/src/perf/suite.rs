//! Suites: what is measured, as rows of the files in `suites/`, and the bars of the rows.

use super::results::Bar;
use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The suites, by the name of what they measure.
pub(super) const SUITES: [(&str, &str); 4] = [
    // A decision, beside servers that return a constant.
    ("server", include_str!("suites/server.yaml")),
    // Counters in a store, beside the reference server.
    ("shared", include_str!("suites/shared.yaml")),
    // A request through Envoy, by the module and by the ratelimit filter.
    ("envoy", include_str!("suites/envoy.yaml")),
    // A replay of logs, beside programs that read them.
    ("replay", include_str!("suites/replay.yaml")),
];

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Suite {
    /// Number of rounds by default.
    pub(super) rounds: u32,
    /// Arguments of `cargo build`.
    pub(super) build: String,
    /// Commands of a shell before the first round.
    pub(super) setup: Option<String>,
    /// Rules of rows that have no rules of their own.
    rules: Rules,
    /// Name in results of rows that have no name of their own.
    #[serde(rename = "as")]
    label: Option<String>,
    /// Settings of Envoy's rate limit filter.
    pub(super) settings: String,
    pub(super) rows: Vec<Row>,
}

/// A server of `suites/servers.yaml`, with the variables of its commands.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Server {
    pub(super) run: String,
    /// A command of a shell that finds or makes the server's program.
    pub(super) needs: Option<String>,
    /// Whether bars that compare with this server are left out if it cannot be measured.
    pub(super) optional: bool,
    /// Whether it listens on SOCKET instead of ADDRESS.
    pub(super) has_socket: bool,
}

/// A rule file with a part for each plan, in which PLAN stands for the plan's name.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Rules {
    head: String,
    plan: String,
    tail: String,
}

/// A load of `tidegate bench` for one or several servers, one after the other, a program, or a filter of Envoy.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Row {
    pub(super) name: String,
    /// Name in results, instead of the server's own.
    #[serde(rename = "as")]
    label: Option<String>,
    /// The servers of a load, by default Tidegate; or the server that a filter calls.
    pub(super) servers: Vec<String>,
    /// Whether a failure leaves the row without figures, and the suite goes on.
    pub(super) optional: bool,
    bars: Vec<Bar>,
    rules: Rules,
    /// Number of sibling rules in the rule file; by default ten.
    plans: Option<u32>,

    /// Arguments of `tidegate bench`.
    pub(super) load: Option<String>,
    /// Arguments of `tidegate serve`.
    pub(super) serve: String,
    /// Whether the servers have TLS; the load then needs `--tls-insecure`.
    pub(super) tls: bool,
    /// The same load without the work beside it: a scenario whose short periods alternate with the periods of this scenario.
    pub(super) without: Option<String>,
    /// Other work of the server during the load, and in the periods without it: commands of a shell.
    pub(super) beside: Option<String>,
    pub(super) beside_without: Option<String>,
    /// Number of counters created before the measurement, in the order of the load's keys.
    pub(super) counters_before: u64,
    /// Number of servers on one core beside the first, each with the load. CPU and latency are those of the first server.
    pub(super) further_nodes: usize,
    /// Whether the store's CPU is measured, by a second run of the load.
    pub(super) store_cpu: bool,
    /// Whether calls of the store are counted.
    pub(super) store_calls: bool,

    /// The command of a program, which prints its figures, or for which the use of the machine is measured.
    pub(super) command: Option<String>,
    /// The core that the program runs on; by default all cores.
    pub(super) core: Option<usize>,
    /// Lines `name=number` of the output: name, scenario and figure.
    pub(super) prints: Vec<(String, String, String)>,
    /// The share of the events that the program reads; its use of the machine is then measured.
    pub(super) share: Option<f64>,
    /// Whether the report of a replay must have changed decisions, or none.
    pub(super) changes_decisions: Option<bool>,

    /// An element of Envoy's list of filters with a comma after it; SETTINGS are the suite's settings, SOCKET is the socket of the filter's
    /// server.
    pub(super) filter: Option<String>,
}

pub(super) fn servers() -> Result<BTreeMap<String, Server>> {
    serde_saphyr::from_str(include_str!("suites/servers.yaml")).context("servers.yaml")
}

impl Suite {
    pub(super) fn named(name: &str) -> Result<Self> {
        let (_, text) = SUITES.iter().find(|(suite, _)| *suite == name).context("no such suite")?;
        let mut suite: Self = serde_saphyr::from_str(text).with_context(|| name.to_owned())?;
        for row in &mut suite.rows {
            if row.servers.is_empty() && row.load.is_some() {
                row.servers = vec!["tidegate".to_owned()];
            }
            if row.rules == Rules::default() {
                row.rules = suite.rules.clone();
            }
            row.label = row.label.take().or(suite.label.clone());
        }
        Ok(suite)
    }

    /// Keeps only the rows whose names contain one of these texts.
    pub(super) fn keep(&mut self, names: &[String]) {
        self.rows.retain(|row| names.iter().any(|text| row.name.contains(text.as_str())));
    }

    /// The servers of the rows.
    pub(super) fn server_names(&self) -> BTreeSet<&str> {
        self.rows.iter().flat_map(|row| row.servers.iter().map(String::as_str)).collect()
    }

    /// The bars of all rows, each with its series.
    pub(super) fn bars(&self) -> Vec<Bar> {
        let of_row = |row: &Row, bar: &Bar| {
            let server = row.servers.first().map_or("", String::as_str);
            let of = bar.of.clone().unwrap_or_else(|| (row.name.clone(), row.label(server).to_owned()));
            Bar { of: Some(of), has_control: row.without.is_some(), ..bar.clone() }
        };
        self.rows.iter().flat_map(|row| row.bars.iter().map(move |bar| of_row(row, bar))).collect()
    }
}

impl Row {
    pub(super) fn label<'s>(&'s self, server: &'s str) -> &'s str {
        self.label.as_deref().unwrap_or(server)
    }

    /// The rule file. No request is denied, as the comparators deny none.
    pub(super) fn rules(&self) -> String {
        let Rules { head, plan, tail } = &self.rules;
        let plans =
            (0..self.plans.unwrap_or(10)).map(|number| plan.replace("PLAN", &format!("plan-{number}")));
        [head.clone()].into_iter().chain(plans).chain([tail.clone()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::results::{FIGURES, Series};

    /// The series that a run of the suite measures, each once by a row.
    fn measured(suite: &Suite) -> BTreeSet<Series> {
        let mut measured = BTreeSet::new();
        for row in &suite.rows {
            let kinds = [&row.load, &row.command, &row.filter];
            assert_eq!(kinds.into_iter().flatten().count(), 1, "{} is of one kind", row.name);
            let printed: BTreeSet<&String> = row.prints.iter().map(|(_, scenario, _)| scenario).collect();
            let own = (row.command.is_none() || row.share.is_some()).then_some(&row.name);
            let labels: Vec<&str> = match &row.load {
                Some(_) => row.servers.iter().map(|server| row.label(server)).collect(),
                None => vec![row.label("")],
            };
            for scenario in printed.into_iter().chain(own).chain(&row.without) {
                for label in &labels {
                    let series = (scenario.clone(), (*label).to_owned());
                    assert!(measured.insert(series.clone()), "{series:?} is measured twice");
                }
            }
        }
        measured
    }

    #[test]
    fn bars_and_programs_have_figures_and_servers_that_exist_and_series_that_rows_measure() {
        let is_figure = |figure: &str| FIGURES.iter().any(|(name, ..)| *name == figure);
        let servers = servers().expect("servers");
        for suite in SUITES.map(|(name, _)| Suite::named(name).expect("a suite")) {
            assert!(suite.server_names().into_iter().all(|name| servers.contains_key(name)));
            let (measured, bars) = (measured(&suite), suite.bars());
            assert!(!bars.is_empty());
            for bar in bars {
                assert!(is_figure(&bar.figure), "{}: {}", bar.about, bar.figure);
                assert!(bar.at_most.is_none() || bar.at_least.is_none(), "{}: two bounds", bar.about);
                for series in [&bar.of, &bar.less, &bar.over, &bar.over_less].into_iter().flatten() {
                    assert!(measured.contains(series), "{}: {series:?}", bar.about);
                }
            }
            for (printed, _, figure) in suite.rows.iter().flat_map(|row| &row.prints) {
                assert!(is_figure(figure), "{printed}: {figure}");
            }
        }
    }
}
