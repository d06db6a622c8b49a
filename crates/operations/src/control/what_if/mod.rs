//! Decisions under proposed rules: a replay of recorded decisions, or of a decision log that a caller sent.
//!
//! Invariants: a replay runs on a thread of low priority, one at a time, within bounds on time and memory; it does not touch the rules and
//! counters of the server.

mod recorder;
#[cfg(test)]
mod tests;

pub use recorder::{BYTES_MAX as RECORDED_BYTES_MAX, Recorder, RecorderStatus};

use super::Control;
use flate2::bufread::MultiGzDecoder;
use recorder::Recorded;
use std::{
    io::{self, Read},
    sync::Arc,
    time::Duration,
};
use tidegate_core::{
    limit::Timestamp,
    rules::{LoadOptions, RuleErrors, RuleSet, Source},
};
use tidegate_replay::{
    Demand, GZIP_MAGIC, LineCounts, Replay, Report, ShareOf, Step, Steps, Suggestion, UnknownRule,
    apply_in_order, parse_line,
};
use tidegate_threads::{BackgroundThread, Priority, StartError};
use tokio::sync::oneshot;

/// The longest time of a replay. If it is exceeded, the report only has the first requests.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Number of steps between two readings of the time.
const STEPS_PER_LOOK: u64 = 1_024;
/// Number of lines between two readings of the time: they may contain no requests.
const LINES_PER_LOOK: u64 = 4_096;
/// The most bytes of a log that a caller sent, decompressed.
const LOG_BYTES_MAX: usize = 32 << 20;
/// The most counters under each set of rules. Requests of such a log need fewer, unless each has several.
const COUNTERS_MAX: usize = 1 << 18;
/// The name of proposed rules in errors.
const PROPOSED: &str = "proposed";

/// The rules to compare, and the decisions to replay.
#[derive(Clone, PartialEq, Debug)]
pub struct WhatIf {
    /// The text of a rule file, or of several, separated by lines `---`.
    pub rules: String,
    /// A decision log, plain or compressed by gzip. None for the recorded decisions.
    pub log: Option<Vec<u8>>,
    /// Only recorded decisions from this time before now.
    pub last: Option<Duration>,
    /// Whether to compare with the recorded decisions instead of decisions by the rules in force.
    pub against_recorded: bool,
    /// Limits to suggest.
    pub suggest: Suggest,
}

/// Limits to suggest.
#[derive(Clone, PartialEq, Debug)]
pub struct Suggest {
    /// The paths of proposed rules.
    pub rules: Vec<String>,
    /// The greatest share that a suggested limit may deny.
    pub share_max: f64,
    /// The kind of items of the share.
    pub of: ShareOf,
}

/// The result.
#[derive(Clone, PartialEq, Debug)]
pub struct WhatIfReport {
    /// The figures.
    pub report: Report,
    /// Notes that limit their meaning.
    pub notes: Vec<String>,
    /// Suggestions for the chosen rules.
    pub suggestions: Vec<Suggestion>,
}

/// The reason why nothing was decided.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message is its own documentation")]
pub enum WhatIfError {
    #[error("the rules are not known yet")]
    Starting,
    #[error("another comparison is running; send it again when that has ended")]
    Running,
    #[error("the proposed rules have no document")]
    NoRules,
    #[error("{0}")]
    Rules(RuleErrors),
    #[error("the rules in force cannot be read again: {0}")]
    InForce(RuleErrors),
    #[error(transparent)]
    UnknownRule(UnknownRule),
    #[error("cannot be decompressed: {0}")]
    Compression(io::Error),
    #[error("has more than {LOG_BYTES_MAX} bytes once decompressed; send a part of it")]
    LogBytes,
    #[error("no decision on a domain of the proposed rules is recorded, or in the log")]
    NoDecisions,
    #[error(
        "{0} requests of the log come after a request that was sent later; sort the log by time, and send it again"
    )]
    OutOfOrder(u64),
    #[error(transparent)]
    Thread(#[from] StartError),
    #[error("the comparison failed")]
    Failed,
}

/// The source of the requests.
enum Requests {
    Recorded(Recorded, Timestamp),
    Log(Vec<u8>),
}

impl Requests {
    /// Refuses a log of which so many requests came after a request that was sent later. The record may have some: threads decide at once.
    fn check_order(&self, late: u64) -> Result<(), WhatIfError> {
        match self {
            Self::Log(_) if late > 0 => Err(WhatIfError::OutOfOrder(late)),
            _ => Ok(()),
        }
    }
}

/// A comparison that can run on a separate thread.
struct Run {
    control: Arc<Control>,
    proposed: Vec<Source>,
    in_force: Option<Vec<Source>>,
    options: LoadOptions,
    requests: Requests,
    suggest: Suggest,
    /// Number of decisions that the record lacks.
    dropped: u64,
}

impl Control {
    /// Records decisions for a while from now on.
    pub fn record_decisions(&self) -> RecorderStatus {
        let status = self.live.recorder.keep_on(self.now(), || self.number_decisions(true));
        // While nothing is recorded, the thread sleeps longer.
        self.wake_task();
        status
    }

    /// Begins or ceases to number decisions. With a decision log, they are always numbered.
    pub(super) fn number_decisions(&self, is_numbered: bool) {
        if let Some(sources) = self.sources().filter(|sources| sources.decision_log.is_none()) {
            sources.limiter.store().number_decisions(is_numbered);
        }
    }

    /// Compares proposed rules with those in force, or with what was recorded.
    pub async fn what_if(self: &Arc<Self>, what_if: WhatIf) -> Result<WhatIfReport, WhatIfError> {
        let permit = Arc::clone(&self.comparisons).try_acquire_owned().map_err(|_| WhatIfError::Running)?;
        let run = Run::new(self, what_if)?;
        let (report, receiver) = oneshot::channel();
        let compare = move || {
            let result = run.compare(|| report.is_closed());
            drop(permit);
            // The caller may have given up.
            let _ = report.send(result);
        };
        BackgroundThread::start("what-if", Priority::Low, compare)?;
        receiver.await.unwrap_or(Err(WhatIfError::Failed))
    }
}

impl Run {
    fn new(control: &Arc<Control>, what_if: WhatIf) -> Result<Self, WhatIfError> {
        let config = control.config().ok_or(WhatIfError::Starting)?;
        let in_force = config.sources();
        let mut proposed = documents(&what_if.rules);
        if proposed.is_empty() {
            return Err(WhatIfError::NoRules);
        }
        // Overrides and blocks in force apply on both sides.
        proposed.extend(in_force.iter().filter(|source| source.id.is_overlay()).cloned());
        let (requests, dropped) = match what_if.log {
            Some(log) => (Requests::Log(log), 0),
            None => {
                let (recorded, status) = control.live.recorder.recorded();
                let from = |last: Duration| {
                    Timestamp::EPOCH
                        .saturating_add(control.now().since(Timestamp::EPOCH).saturating_sub(last))
                };
                (Requests::Recorded(recorded, what_if.last.map_or(Timestamp::EPOCH, from)), status.dropped)
            }
        };
        Ok(Self {
            control: Arc::clone(control),
            proposed,
            in_force: (!what_if.against_recorded).then(|| in_force.to_vec()),
            // In the replay, all counters are local.
            options: LoadOptions { shared_counters: false, ..config.options },
            requests,
            suggest: what_if.suggest,
            dropped,
        })
    }

    /// Decides the requests. Stops early if `is_cancelled`.
    fn compare(self, is_cancelled: impl Fn() -> bool) -> Result<WhatIfReport, WhatIfError> {
        let proposed = RuleSet::parse(&self.proposed, &self.options).map_err(WhatIfError::Rules)?;
        let current = self.in_force.map(|sources| RuleSet::parse(&sources, &self.options));
        let current = current.transpose().map_err(WhatIfError::InForce)?;
        let Suggest { rules, share_max, of } = &self.suggest;
        let demand = (!rules.is_empty()).then(|| Demand::new(&proposed, rules, *share_max, *of));
        let demand = demand.transpose().map_err(WhatIfError::UnknownRule)?;
        let end = self.control.now().saturating_add(TIME_MAX);
        let is_over = || self.control.now() > end || is_cancelled();
        let mut counts = LineCounts { dropped: self.dropped, ..LineCounts::default() };
        let log;
        let steps: Box<dyn Iterator<Item = Step>> = match &self.requests {
            Requests::Recorded(recorded, from) => Box::new(recorded.steps(*from)),
            Requests::Log(bytes) => {
                log = decompressed(bytes)?;
                Box::new(log_steps(&log, &mut counts, is_over))
            }
        };
        let (mut others, mut number) = (0_u64, 0_u64);
        let domains = proposed.clone();
        let declared = steps.filter(|step| {
            let Step::Decision(event) = step else { return true };
            let is_declared = domains.domain(&event.domain).is_some();
            others += u64::from(!is_declared);
            is_declared
        });
        let in_time = declared.take_while(|_| {
            number += 1;
            !number.is_multiple_of(STEPS_PER_LOOK) || !is_over()
        });
        let mut replay = Replay::new(proposed, current, COUNTERS_MAX);
        if let Some(demand) = demand {
            replay.collect_demand(demand);
        }
        let applied = apply_in_order(vec![Steps(in_time)], |step| replay.apply(step));
        applied.map_err(|_| WhatIfError::Failed)?;
        let is_partial = is_over();
        self.requests.check_order(replay.out_of_order())?;
        let no_room = replay.no_room();
        let (report, suggestions) = replay.into_report();
        if report.requests == 0 {
            return Err(WhatIfError::NoDecisions);
        }
        let mut notes = report.notes(&counts, no_room);
        notes.extend(counts.first_bad);
        if others > 0 {
            notes.push(format!(
                "{others} requests to domains that the proposed rules do not have were left out"
            ));
        }
        if is_partial {
            notes.push(format!("the time limit of {TIME_MAX:?} was reached: later requests were left out"));
        }
        Ok(WhatIfReport { report, notes, suggestions })
    }
}

/// The documents of a YAML stream. Each begins with as many empty lines as lines precede it, so that errors have the line in the whole
/// text.
fn documents(text: &str) -> Vec<Source> {
    let mut documents = vec![String::new()];
    for (number, line) in text.lines().enumerate() {
        if line.trim_end() == "---" {
            documents.push("\n".repeat(number + 1));
        } else if let Some(document) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    let has_content = |text: &String| {
        text.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    };
    documents.into_iter().filter(has_content).map(|text| Source::file(PROPOSED, text)).collect()
}

fn decompressed(log: &[u8]) -> Result<Vec<u8>, WhatIfError> {
    if !log.starts_with(&GZIP_MAGIC) {
        return Ok(log.to_vec());
    }
    let mut text = Vec::new();
    let mut bounded = MultiGzDecoder::new(log).take(LOG_BYTES_MAX as u64 + 1);
    bounded.read_to_end(&mut text).map_err(WhatIfError::Compression)?;
    if text.len() > LOG_BYTES_MAX { Err(WhatIfError::LogBytes) } else { Ok(text) }
}

/// The decisions, resets and cancellations of a log, until `is_over`. Other lines are counted. The last line may be incomplete.
fn log_steps<'l>(
    log: &'l [u8],
    counts: &'l mut LineCounts,
    is_over: impl Fn() -> bool + 'l,
) -> impl Iterator<Item = Step> + 'l {
    let lines = log.split_inclusive(|byte| *byte == b'\n').zip(1_u64..);
    let lines = lines.take_while(move |(_, number)| !number.is_multiple_of(LINES_PER_LOOK) || !is_over());
    lines.filter_map(|(line, number)| {
        match parse_line(line) {
            // Proposed rules replace those in the log.
            Ok(content) => return counts.step_of(content).filter(|step| !matches!(step, Step::Rules(_))),
            Err(_) if !line.ends_with(b"\n") || line.trim_ascii().is_empty() => {}
            Err(error) => counts.add_bad("log", number, error),
        }
        None
    })
}
