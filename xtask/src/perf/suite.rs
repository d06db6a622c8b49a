//! Suites: what is measured, as rows of the files in `suites/`, and the bars of the rows.

use super::results::{Bar, Series};
use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

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

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Suite {
    /// By default.
    pub(super) rounds: u32,
    /// Arguments of `cargo build`.
    pub(super) build: String,
    /// Commands of a shell before the first round.
    pub(super) setup: Option<String>,
    /// Of loads that have none of their own, and of Envoy.
    pub(super) rules: Rules,
    pub(super) loads: Vec<Load>,
    pub(super) programs: Vec<Program>,
    /// Settings of Envoy's rate limit filter.
    pub(super) settings: String,
    pub(super) filters: Vec<Filter>,
}

/// A server of `suites/servers.yaml`, which has the variables of its commands.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Server {
    pub(super) run: String,
    /// A command of a shell that finds or makes its program.
    pub(super) needs: Option<String>,
    /// Whether bars that compare with it are left out where it cannot be measured.
    pub(super) optional: bool,
    /// Whether it listens on SOCKET instead of ADDRESS.
    pub(super) has_socket: bool,
}

/// A rule file with a part for each plan, in which PLAN is its name.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Rules {
    head: String,
    plan: String,
    tail: String,
}

/// A load of `tidegate bench` for one or several servers, one after the other.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Load {
    pub(super) name: String,
    /// By default Tidegate.
    pub(super) servers: Vec<String>,
    /// Name in results, instead of the server's own.
    #[serde(rename = "as")]
    label: Option<String>,
    /// The same load without the work beside it: a scenario whose short periods alternate with those of this one.
    pub(super) without: Option<String>,
    /// Arguments of `tidegate bench`.
    pub(super) load: String,
    /// Arguments of `tidegate serve`.
    pub(super) serve: String,
    rules: Rules,
    /// Number of sibling rules in the rule file; by default ten.
    plans: Option<u32>,
    /// Whether the servers have TLS; the load then needs `--tls-insecure`.
    pub(super) tls: bool,
    /// Other work of the server during the load.
    pub(super) beside: Beside,
    /// Number of counters created before the measurement, in the order of the load's keys.
    pub(super) counters_before: u64,
    /// Number of servers on one core beside the first, each with the load. CPU and latency are those of the first.
    pub(super) further_nodes: usize,
    /// Whether the store's CPU is measured, by a second run of the load.
    pub(super) store_cpu: bool,
    /// Whether calls of the store are counted.
    pub(super) store_calls: bool,
    /// Whether a failure leaves the row without figures, and the suite goes on.
    pub(super) optional: bool,
    bars: Vec<Bar>,
}

/// Work of the server beside a load.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Beside {
    #[default]
    Nothing,
    /// The metrics of its HTTP port are scraped.
    Scrapes,
    /// Clients keep TLS handshakes open that they never complete.
    HalfHandshakes,
    /// The same clients do so with a port of this program, which accepts them and does nothing else: what is left is their own effect.
    HalfHandshakesElsewhere,
    /// The rule file changes.
    Reloads,
    /// A client runs, or has done so: a command of a shell, with the variables of the server.
    Client(String),
}

/// A program without a server, which prints figures or whose use of the machine is measured.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Program {
    pub(super) name: String,
    /// Name in results; by default that of a replay.
    server: Option<String>,
    /// The core, if it is not all of them.
    pub(super) core: Option<usize>,
    /// A command of a shell.
    pub(super) command: String,
    /// Lines `name=number` of the output: name, scenario and figure.
    pub(super) prints: Vec<(String, String, String)>,
    /// The log that it reads: its use of the machine is measured.
    pub(super) reads: Option<String>,
    /// Whether that log has a tenth of the events.
    pub(super) is_part: bool,
    /// Whether the report of a replay must have changed decisions.
    pub(super) decides: Option<Decides>,
    pub(super) optional: bool,
    bars: Vec<Bar>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Decides {
    AsLogged,
    Otherwise,
}

/// A filter of Envoy.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Filter {
    pub(super) name: String,
    /// The server that it calls.
    pub(super) calls: Option<String>,
    /// An element of Envoy's list of filters with a comma after it; SETTINGS are those of the suite, SOCKET is that of its server.
    pub(super) filter: String,
    bars: Vec<Bar>,
}

/// Name of Envoy in results.
pub(super) const ENVOY: &str = "envoy";

pub(super) fn servers() -> Result<BTreeMap<String, Server>> {
    serde_saphyr::from_str(include_str!("suites/servers.yaml")).context("servers.yaml")
}

impl Subject {
    pub(super) fn suite(self) -> Result<Suite> {
        let text = match self {
            Self::Server => include_str!("suites/server.yaml"),
            Self::Shared => include_str!("suites/shared.yaml"),
            Self::Envoy => include_str!("suites/envoy.yaml"),
            Self::Replay => include_str!("suites/replay.yaml"),
        };
        let mut suite: Suite = serde_saphyr::from_str(text).with_context(|| self.prefix())?;
        for load in &mut suite.loads {
            if load.servers.is_empty() {
                load.servers = vec!["tidegate".to_owned()];
            }
            if load.rules == Rules::default() {
                load.rules = suite.rules.clone();
            }
        }
        Ok(suite)
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

    /// The servers of the rows.
    pub(super) fn server_names(&self) -> BTreeSet<&str> {
        let called = self.filters.iter().filter_map(|row| row.calls.as_deref());
        self.loads.iter().flat_map(|row| row.servers.iter().map(String::as_str)).chain(called).collect()
    }

    /// The bars of all rows, each with its series.
    pub(super) fn bars(&self) -> Vec<Bar> {
        let loads = self.loads.iter().map(|row| {
            ((row.name.clone(), row.label(&row.servers[0]).to_owned()), &row.bars, row.without.is_some())
        });
        let programs =
            self.programs.iter().map(|row| ((row.name.clone(), row.server().to_owned()), &row.bars, false));
        let filters = self.filters.iter().map(|row| ((row.name.clone(), ENVOY.to_owned()), &row.bars, false));
        let rows = loads.chain(programs).chain(filters);
        rows.flat_map(|(series, bars, has_control): (Series, _, _)| {
            bars.iter().map(move |bar| {
                let of = bar.of.clone().or(Some(series.clone()));
                Bar { of, has_control, ..bar.clone() }
            })
        })
        .collect()
    }
}

impl Program {
    pub(super) fn server(&self) -> &str {
        self.server.as_deref().unwrap_or("replay")
    }
}

impl Rules {
    pub(super) fn text(&self, plans: u32) -> String {
        let plans = (0..plans).map(|plan| self.plan.replace("PLAN", &format!("plan-{plan}")));
        [self.head.clone()].into_iter().chain(plans).chain([self.tail.clone()]).collect()
    }
}

impl Load {
    pub(super) fn label<'s>(&'s self, server: &'s str) -> &'s str {
        self.label.as_deref().unwrap_or(server)
    }

    /// The rule file. No request is denied, as the comparators deny none.
    pub(super) fn rules(&self) -> String {
        self.rules.text(self.plans.unwrap_or(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::results::FIGURES;

    /// The series that a run of the suite measures, each once by a row.
    fn measured(suite: &Suite) -> BTreeSet<Series> {
        let series = |name: &str, server: &str| (name.to_owned(), server.to_owned());
        let loads = suite.loads.iter().flat_map(|row| {
            let names = [Some(&row.name), row.without.as_ref()].into_iter().flatten();
            names.flat_map(|name| row.servers.iter().map(|server| series(name, row.label(server))))
        });
        let programs = suite.programs.iter().flat_map(|row| {
            let printed = row.prints.iter().map(|(_, scenario, _)| scenario);
            let names: BTreeSet<_> = printed.chain(row.reads.iter().map(|_| &row.name)).collect();
            names.into_iter().map(|name| series(name, row.server()))
        });
        let filters = suite.filters.iter().map(|row| series(&row.name, ENVOY));
        let mut measured = BTreeSet::new();
        for series in loads.chain(programs).chain(filters) {
            assert!(measured.insert(series.clone()), "{series:?} is measured twice");
        }
        measured
    }

    #[test]
    fn bars_and_programs_have_figures_and_servers_that_exist_and_series_that_rows_measure() {
        let is_figure = |figure: &str| FIGURES.iter().any(|(name, ..)| *name == figure);
        let servers = servers().expect("servers");
        for suite in Subject::value_variants().iter().map(|subject| subject.suite().expect("a suite")) {
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
            for (printed, _, figure) in suite.programs.iter().flat_map(|row| &row.prints) {
                assert!(is_figure(figure), "{printed}: {figure}");
            }
        }
    }
}
