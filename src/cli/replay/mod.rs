//! `tidegate replay`: what other rules would have decided on the requests of a decision log.

mod input;
mod report;

use super::{Failure, progress, rule_files::ReadAs};
use crate::{replay, server, store};
use clap::Args;
use indicatif::ProgressBar;
use input::{LineCounts, LogFile};
use std::{cell::RefCell, num::NonZeroUsize, path::PathBuf, process::ExitCode, rc::Rc};

/// Events between two updates of the progress bar's text.
const EVENTS_PER_MESSAGE: u64 = 1 << 16;

/// Decides the requests of decision logs again, under proposed rules and at the times of the log, and reports the
/// differences.
///
/// Without --against, the proposed decisions are compared with those in the log. A replay starts without counters; hits before the
/// first line are unknown. Logs are described in docs/decision-log.md, the report in docs/replay.md.
///
/// Exit code 0: the requests were replayed, also if lines could not be read. 1: no request was.
#[derive(Args)]
pub(super) struct Replay {
    /// A proposed rule file, or a directory of them; repeat for more.
    #[arg(long, value_name = "PATH", required = true)]
    rules: Vec<PathBuf>,
    /// A current rule file, or a directory of them, to compare with instead of the log; repeat for more.
    #[arg(long, value_name = "PATH")]
    against: Vec<PathBuf>,
    #[command(flatten)]
    read_as: ReadAs,
    /// Maximum number of live counters under each set of rules; by default as many as fit in a quarter of the memory.
    #[arg(long, env = "TIDEGATE_MAX_COUNTERS", value_name = "N")]
    max_counters: Option<NonZeroUsize>,
    /// Decision logs, plain or compressed by gzip, in any order; - is standard input.
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let proposed = self.read_as.load(&self.rules)?;
        let current = match &*self.against {
            [] => None,
            paths => Some(self.read_as.load(paths)?),
        };
        let (bar, counts) = (progress::bar("replaying"), Rc::<RefCell<LineCounts>>::default());
        let logs = self.open(&bar, &counts)?;
        let mut replay = replay::Replay::new(proposed, current, self.counters_max());
        for event in replay::in_order_of_time(logs) {
            replay.decide(&event?);
            if replay.decided().is_multiple_of(EVENTS_PER_MESSAGE) {
                bar.set_message(format!("{} requests", replay.decided()));
            }
        }
        bar.finish_and_clear();
        let (no_room, counts) = (replay.no_room(), counts.borrow());
        let result = replay.into_report();
        for line in &counts.first_bad {
            eprintln!("{line}");
        }
        if result.requests == 0 {
            return Err(Failure("the logs have no decision that can be replayed".into()));
        }
        report::print(&result, &counts, no_room, self.json);
        Ok(ExitCode::SUCCESS)
    }

    fn open(&self, bar: &ProgressBar, counts: &Rc<RefCell<LineCounts>>) -> Result<Vec<LogFile>, Failure> {
        if self.logs.iter().filter(|path| input::is_standard(path)).count() > 1 {
            return Err(Failure("- stands for standard input, which can be read once".into()));
        }
        self.logs.iter().map(|path| LogFile::open(path, bar, Rc::clone(counts))).collect()
    }

    fn counters_max(&self) -> usize {
        let memory = || server::available_memory().map_or(0, |(bytes, _)| bytes);
        self.max_counters.map_or_else(|| store::default_counters_max(memory() / 2), NonZeroUsize::get)
    }
}
