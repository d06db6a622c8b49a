//! `tidegate replay`: what other rules would have decided on the requests of a log.

mod access_log;
mod html;
mod input;
mod lines;
mod report;
mod sort;

use crate::cli::{
    Failure,
    arguments::{choice, rule_files::ReadAs},
    files,
    output::progress,
};
use crate::server;
use access_log::{AccessLogFlags, mapped};
use clap::Args;
use indicatif::ProgressBar;
use input::{Counts, Format, LogFile, Stop};
use report::Facts;
use std::{cell::RefCell, num::NonZeroUsize, path::PathBuf, process::ExitCode, rc::Rc};
use tidegate_core::{rules::RuleSet, store};
use tidegate_replay::{Demand, Log, ShareOf, apply_in_order};

/// Events between two updates of the progress bar's text.
const EVENTS_PER_MESSAGE: u64 = 1 << 16;

/// Why logs that were sorted by time cannot be replayed.
const NO_ORDER: &str = "the numbers of the decisions contradict their times by thousands of lines: no order of the logs fits both";

/// Decides the requests of logs again, under proposed rules and at the times of the log, and reports the
/// differences.
///
/// Without --against, the proposed decisions are compared with those in the log; without --rules either, the log is repeated under
/// the rules that it contains, with their changes and resets of counters. A replay starts without counters; hits before the
/// first line are unknown. With --suggest, it also reports which limits would deny a given share of keys or hits. Logs are described in docs/decision-log.md, the report in docs/replay.md.
///
/// Logs that are not in the order of time are sorted first, in temporary files.
///
/// Exit code 0: the requests were replayed, also if lines could not be read. 1: no request was, or no rule limits one.
#[derive(Args)]
pub(in crate::cli) struct Replay {
    /// A proposed rule file, or a directory of them; repeat for more. Without it, the rules in the log are those proposed.
    #[arg(long, value_name = "PATH", required_if_eq_any = mapped())]
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
    access_log: AccessLogFlags,
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

/// Limits to suggest.
#[derive(Args)]
struct Suggest {
    /// Path of a proposed rule, or the name of a limit, for which to suggest limits; repeat for more.
    #[arg(id = "suggest", long = "suggest", value_name = "RULE", requires = "rules")]
    rules: Vec<String>,
    /// Greatest share that a suggested limit may deny.
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, value_parser = share)]
    suggest_share: f64,
    /// Whether the share is of keys (denied at least once) or of hits.
    #[arg(long, default_value = "keys", value_parser = choice([("keys", "", ShareOf::Keys), ("hits", "", ShareOf::Hits)]))]
    suggest_of: ShareOf,
}

fn share(text: &str) -> Result<f64, &'static str> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or("write a share from 0 to 1, such as 0.01")
}

impl Suggest {
    /// None if no rule is chosen.
    fn demand(&self, proposed: &RuleSet) -> Result<Option<Demand>, Failure> {
        if self.rules.is_empty() {
            return Ok(None);
        }
        let demand = Demand::new(proposed, &self.rules, self.suggest_share, self.suggest_of);
        demand.map(Some).map_err(|error| Failure(format!("--suggest: {error}")))
    }
}

/// The replay of the logs.
struct Replayed {
    replay: tidegate_replay::Replay,
    counts: Counts,
    is_sorted: bool,
}

impl Replay {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let load = |paths: &[PathBuf]| match paths {
            [] => Ok(None),
            paths => self.read_as.load(paths).map(Some),
        };
        let (proposed, current) = (load(&self.rules)?, load(&self.against)?);
        let format = self.access_log.format(proposed.as_ref())?;
        let bar = progress::bar("replaying");
        let replayed = self.replayed(&format, &bar, || self.new_replay(proposed.clone(), current.clone()))?;
        bar.finish_and_clear();
        self.report(replayed, &format, proposed.as_ref())
    }

    /// Replays the logs; they are sorted first if they are not in the order of time.
    fn replayed(
        &self,
        format: &Format,
        bar: &ProgressBar,
        new_replay: impl Fn() -> Result<tidegate_replay::Replay, Failure>,
    ) -> Result<Replayed, Failure> {
        let counts = Rc::<RefCell<Counts>>::default();
        match apply(self.open(format, bar, &counts)?, new_replay()?, bar) {
            Ok(replay) => Ok(Replayed { replay, counts: counts.take(), is_sorted: false }),
            Err(Stop::Failed(failure)) => Err(failure),
            Err(Stop::OutOfOrder) => {
                self.check_readable_again()?;
                counts.take();
                bar.reset();
                let sorted = sort::sorted(self.open(format, bar, &counts)?)?;
                match apply(vec![sorted], new_replay()?, bar) {
                    Ok(replay) => Ok(Replayed { replay, counts: counts.take(), is_sorted: true }),
                    Err(Stop::Failed(failure)) => Err(failure),
                    Err(Stop::OutOfOrder) => Err(Failure(NO_ORDER.into())),
                }
            }
        }
    }

    fn report(
        &self,
        Replayed { replay, counts, is_sorted }: Replayed,
        format: &Format,
        proposed: Option<&RuleSet>,
    ) -> Result<ExitCode, Failure> {
        let mut warnings = match format {
            Format::Decisions => Vec::new(),
            Format::Access(log) => counts.fields.warnings(log.mapping()),
            Format::Csv(mapping) => counts.fields.warnings(mapping),
        };
        let (no_room, without_rules) = (replay.no_room(), replay.without_rules());
        let (result, suggestions) = replay.into_report();
        warnings.extend(counts.lines.warnings(result.requests));
        if without_rules > 0 {
            warnings.push(format!(
                "{without_rules} requests are not replayed: the log lacks the line of the rules that decided them; name rules with --rules"
            ));
        }
        counts.lines.first_bad.iter().for_each(|line| eprintln!("{line}"));
        if result.requests == 0 {
            warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
            return Err(Failure("the logs have no decision that can be replayed".into()));
        }
        let unreached = proposed.map(|rules| result.unreached(rules)).unwrap_or_default();
        warnings.extend(unreached.warnings);
        let facts = Facts { suggestions, counts: counts.lines, no_room, warnings, is_sorted };
        if let Some(path) = &self.html {
            let page = html::page(&result, &facts);
            std::fs::write(path, page).map_err(Failure::at(path))?;
        }
        report::print(&result, &facts, self.json);
        if unreached.is_all {
            return Err(Failure("no rule of --rules limits a request of the logs".into()));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn new_replay(
        &self,
        proposed: Option<RuleSet>,
        current: Option<RuleSet>,
    ) -> Result<tidegate_replay::Replay, Failure> {
        let demand = proposed.as_ref().map(|proposed| self.suggest.demand(proposed)).transpose()?.flatten();
        let mut replay = match proposed {
            Some(proposed) => tidegate_replay::Replay::new(proposed, current, self.counters_max()),
            None => tidegate_replay::Replay::as_logged(self.counters_max()),
        };
        if let Some(demand) = demand {
            replay.collect_demand(demand);
        }
        Ok(replay)
    }

    fn open(
        &self,
        format: &Format,
        bar: &ProgressBar,
        counts: &Rc<RefCell<Counts>>,
    ) -> Result<Vec<LogFile>, Failure> {
        if self.logs.iter().filter(|path| files::is_standard(path)).count() > 1 {
            return Err(Failure("- stands for standard input, which can be read once".into()));
        }
        let open = |path: &PathBuf| LogFile::open(path, format, bar, Rc::clone(counts));
        self.logs.iter().map(open).collect()
    }

    /// Refuses standard input and pipes: sorting reads a log twice.
    fn check_readable_again(&self) -> Result<(), Failure> {
        let is_file = |path: &PathBuf| !files::is_standard(path) && path.is_file();
        match self.logs.iter().find(|path| !is_file(path)) {
            None => Ok(()),
            Some(path) => Err(Failure(format!(
                "{}: the requests are not in the order of time; write them to a file, which can be sorted",
                path.display()
            ))),
        }
    }

    fn counters_max(&self) -> usize {
        let memory = || server::available_memory().map_or(0, |(bytes, _)| bytes);
        self.max_counters.map_or_else(|| store::default_counters_max(memory() / 2, 0), NonZeroUsize::get)
    }
}

/// Decides the steps of logs, until one is out of order.
fn apply<L: Log<Error = Stop>>(
    logs: Vec<L>,
    mut replay: tidegate_replay::Replay,
    bar: &ProgressBar,
) -> Result<tidegate_replay::Replay, Stop> {
    apply_in_order(logs, |step| {
        replay.apply(step).map_err(Failure::from)?;
        if replay.decided().is_multiple_of(EVENTS_PER_MESSAGE) {
            bar.set_message(format!("{} requests", replay.decided()));
        }
        if replay.out_of_order() > 0 { Err(Stop::OutOfOrder) } else { Ok(()) }
    })?;
    Ok(replay)
}
