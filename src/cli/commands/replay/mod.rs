//! `tidegate replay`: what other rules would have decided on the requests of a log.

mod html;
mod input;
mod lines;
mod report;

use crate::cli::{Failure, arguments::rule_files::ReadAs, output::progress};
use crate::server;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use input::{Format, LogFile};
use std::{cell::RefCell, num::NonZeroUsize, path::PathBuf, process::ExitCode, rc::Rc};
use tidegate_core::{rules::RuleSet, store};
use tidegate_replay::{Demand, LineCounts, Mapping, ShareOf};

/// Events between two updates of the progress bar's text.
const EVENTS_PER_MESSAGE: u64 = 1 << 16;

/// Decides the requests of logs again, under proposed rules and at the times of the log, and reports the
/// differences.
///
/// Without --against, the proposed decisions are compared with those in the log; without --rules either, the log is repeated under
/// the rules that it contains, with their changes and resets of counters. A replay starts without counters; hits before the
/// first line are unknown. With --suggest, it also reports which limits would deny a given share of keys or hits. Logs are described in docs/decision-log.md, the report in docs/replay.md.
///
/// Exit code 0: the requests were replayed, also if lines could not be read. 1: no request was.
#[derive(Args)]
pub(in crate::cli) struct Replay {
    /// A proposed rule file, or a directory of them; repeat for more. Without it, the rules in the log are those proposed.
    #[arg(long, value_name = "PATH", required_if_eq_any = [("format", "json"), ("format", "csv")])]
    rules: Vec<PathBuf>,
    /// A current rule file, or a directory of them, to compare with instead of the log; repeat for more.
    #[arg(long, value_name = "PATH", requires = "rules")]
    against: Vec<PathBuf>,
    #[command(flatten)]
    read_as: ReadAs,
    /// Maximum number of live counters under each set of rules; by default as many as fit in a quarter of the memory.
    #[arg(long, env = "TIDEGATE_MAX_COUNTERS", value_name = "N")]
    max_counters: Option<NonZeroUsize>,
    #[command(flatten)]
    access_log: AccessLog,
    #[command(flatten)]
    suggest: Suggest,
    /// Logs, plain or compressed by gzip, in any order; - is standard input.
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Write a page with plots to this file; it needs no other file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Formats of logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum LogFormat {
    /// The decision log.
    Decisions,
    /// JSON lines, such as the access log of Envoy.
    Json,
    /// CSV with the names of the columns in the first line.
    Csv,
}

/// How requests are made of the fields of an access log.
#[derive(Args)]
struct AccessLog {
    /// Format of the logs.
    #[arg(long, value_enum, default_value_t = LogFormat::Decisions)]
    format: LogFormat,
    /// Domain of the requests of an access log.
    #[arg(long, value_name = "NAME", required_if_eq_any = [("format", "json"), ("format", "csv")])]
    domain: Option<String>,
    /// A descriptor, as KEY=FIELD or KEY="VALUE", separated by commas; repeat for more. It is left out of requests without the field.
    #[arg(long = "descriptor", value_name = "ENTRIES", required_if_eq_any = [("format", "json"), ("format", "csv")])]
    descriptors: Vec<String>,
    /// Field with the time: RFC 3339, or seconds since 1970.
    #[arg(long, value_name = "FIELD", default_value = "start_time")]
    time_field: String,
    /// Field with the number of hits; without it each request is one hit.
    #[arg(long, value_name = "FIELD")]
    hits_field: Option<String>,
    /// Field and value of requests that were denied.
    #[arg(long, value_name = "FIELD=VALUE", default_value = "response_code=429")]
    denied: String,
}

/// Limits to suggest.
#[derive(Args)]
struct Suggest {
    /// Path of a proposed rule, as in the report, for which to suggest limits; repeat for more.
    #[arg(id = "suggest", long = "suggest", value_name = "RULE", requires = "rules")]
    rules: Vec<String>,
    /// Greatest share that a suggested limit may deny.
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, value_parser = share)]
    suggest_share: f64,
    /// Whether the share is of keys (denied at least once) or of hits.
    #[arg(long, value_enum, default_value_t = SuggestOf::Keys)]
    suggest_of: SuggestOf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum SuggestOf {
    Keys,
    Hits,
}

fn share(text: &str) -> Result<f64, &'static str> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or("write a share from 0 to 1, such as 0.01")
}

impl AccessLog {
    fn format(&self) -> Result<Format, Failure> {
        if self.format == LogFormat::Decisions {
            return Ok(Format::Decisions);
        }
        let domain = self.domain.as_deref().unwrap_or_default();
        let mut mapping = Mapping::new(domain.into(), (&*self.time_field).into());
        mapping.hits = self.hits_field.as_deref().map(Into::into);
        let (field, value) = self
            .denied
            .split_once('=')
            .ok_or_else(|| Failure(format!("--denied {:?} is not FIELD=VALUE", self.denied)))?;
        mapping.denied = (!field.is_empty()).then(|| (field.into(), value.into()));
        for descriptor in &self.descriptors {
            mapping.add_descriptor(descriptor).map_err(|error| Failure(format!("--descriptor {error}")))?;
        }
        let mapping = Rc::new(mapping);
        Ok(if self.format == LogFormat::Json { Format::Json(mapping) } else { Format::Csv(mapping) })
    }
}

impl Suggest {
    /// None if no rule is chosen.
    fn demand(&self, proposed: &RuleSet) -> Result<Option<Demand>, Failure> {
        if self.rules.is_empty() {
            return Ok(None);
        }
        let of = match self.suggest_of {
            SuggestOf::Keys => ShareOf::Keys,
            SuggestOf::Hits => ShareOf::Hits,
        };
        let demand = Demand::new(proposed, &self.rules, self.suggest_share, of);
        demand.map(Some).map_err(|error| Failure(format!("--suggest: {error}")))
    }
}

impl Replay {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let proposed = match &*self.rules {
            [] => None,
            paths => Some(self.read_as.load(paths)?),
        };
        let current = match &*self.against {
            [] => None,
            paths => Some(self.read_as.load(paths)?),
        };
        let demand = proposed.as_ref().map(|proposed| self.suggest.demand(proposed)).transpose()?.flatten();
        let (bar, counts) = (progress::bar("replaying"), Rc::<RefCell<LineCounts>>::default());
        let logs = self.open(&bar, &counts)?;
        let mut replay = match proposed {
            Some(proposed) => tidegate_replay::Replay::new(proposed, current, self.counters_max()),
            None => tidegate_replay::Replay::as_logged(self.counters_max()),
        };
        if let Some(demand) = demand {
            replay.collect_demand(demand);
        }
        tidegate_replay::apply_in_order(logs, |step| {
            replay.apply_ref(step).map_err(|error| Failure(error.to_string()))?;
            if replay.decided().is_multiple_of(EVENTS_PER_MESSAGE) {
                bar.set_message(format!("{} requests", replay.decided()));
            }
            Ok(())
        })?;
        bar.finish_and_clear();
        let (no_room, counts) = (replay.no_room(), counts.borrow());
        if replay.without_rules() > 0 {
            eprintln!(
                "{} requests are not replayed: the log has no rules before them; name rules with --rules",
                replay.without_rules()
            );
        }
        let (result, suggestions) = replay.into_report();
        for line in &counts.first_bad {
            eprintln!("{line}");
        }
        if result.requests == 0 {
            return Err(Failure("the logs have no decision that can be replayed".into()));
        }
        if let Some(path) = &self.html {
            let page = html::page(&result, &suggestions, &result.notes(&counts, no_room));
            std::fs::write(path, page).map_err(|error| Failure(format!("{}: {error}", path.display())))?;
        }
        report::print(&result, &suggestions, &counts, no_room, self.json);
        Ok(ExitCode::SUCCESS)
    }

    fn open(&self, bar: &ProgressBar, counts: &Rc<RefCell<LineCounts>>) -> Result<Vec<LogFile>, Failure> {
        if self.logs.iter().filter(|path| input::is_standard(path)).count() > 1 {
            return Err(Failure("- stands for standard input, which can be read once".into()));
        }
        let format = self.access_log.format()?;
        let open = |path: &PathBuf| LogFile::open(path, &format, bar, Rc::clone(counts));
        self.logs.iter().map(open).collect()
    }

    fn counters_max(&self) -> usize {
        let memory = || server::available_memory().map_or(0, |(bytes, _)| bytes);
        self.max_counters.map_or_else(|| store::default_counters_max(memory() / 2), NonZeroUsize::get)
    }
}
