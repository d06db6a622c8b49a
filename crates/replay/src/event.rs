//! The content of a log: decisions, and the changes between them on which they depend.

use smol_str::SmolStr;
use tidegate_core::{
    limit::{Code, Hits, RequestLimit, Reset, Timestamp},
    limiter::Compat,
    rules::{DefaultAlgorithm, Semantics, SourceId},
};

/// The content of a line, in the order of the log.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// A decision.
    Decision(Event),
    /// Rules were put in force.
    Rules(RulesStep),
    /// An operator removed counters.
    Reset(ResetStep),
    /// A request ended, because its client reset the call.
    Cancelled(CancelledStep),
}

/// The place of a step in the order in which a server decided: its number is greater than those of the steps before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The process.
    pub run: u64,
    /// The number.
    pub number: u64,
    /// Number of the rules in force; those of a decision may be replaced already.
    pub generation: u64,
}

/// Rules that were put in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RulesStep {
    /// The time.
    pub time: Timestamp,
    /// The place, with the number of these rules.
    pub place: Place,
    /// The semantics of decisions.
    pub semantics: Semantics,
    /// The algorithm of rules that name none; by default that of the semantics.
    pub default_algorithm: Option<DefaultAlgorithm>,
    /// Whether several documents may declare one domain.
    pub merge_domains: bool,
    /// Whether every request was admitted.
    pub global_shadow: bool,
    /// Options of the reference server.
    pub compat: Compat,
    /// The documents, in the order in which they are merged.
    pub sources: Vec<LoggedSource>,
}

/// A document that declares rules.
#[derive(Clone, PartialEq, Eq, Debug, serde::Deserialize)]
pub struct LoggedSource {
    /// Its name.
    #[serde(flatten)]
    pub id: SourceId,
    /// SHA-256 of its text, in hexadecimal.
    pub sha256: String,
    /// Its text; none if the log had it before, or has hashes only.
    pub text: Option<String>,
}

/// Counters that an operator removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResetStep {
    /// The time.
    pub time: Timestamp,
    /// The place.
    pub place: Place,
    /// The domain.
    pub domain: String,
    /// The path of the rule; none: the counters of the descriptors, or of the domain.
    pub rule: Option<String>,
    /// Keys and values of the descriptors.
    pub descriptors: Vec<Vec<(SmolStr, SmolStr)>>,
}

/// The end of an admitted request whose client reset the call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CancelledStep {
    /// The time.
    pub time: Timestamp,
    /// The place; none in logs without it.
    pub place: Option<Place>,
    /// Its ticket, or the hash.
    pub ticket: SmolStr,
}

impl Step {
    /// The place; none in logs without it. And the time.
    pub(super) fn in_log(&self) -> (Option<Place>, Timestamp) {
        match self {
            Self::Decision(event) => (event.place, event.time),
            Self::Rules(step) => (Some(step.place), step.time),
            Self::Reset(step) => (Some(step.place), step.time),
            Self::Cancelled(step) => (step.place, step.time),
        }
    }

    /// The time.
    pub fn time(&self) -> Timestamp {
        self.in_log().1
    }

    /// The place; none in logs without it.
    pub(super) fn place(&self) -> Option<Place> {
        self.in_log().0
    }
}

/// A logged decision.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Time of receipt, by which the request was decided.
    pub time: Timestamp,
    /// The place; none in logs without it.
    pub place: Option<Place>,
    /// Whether the hits were used already: they were counted even if they did not fit.
    pub is_report: bool,
    /// The domain; never empty.
    pub domain: SmolStr,
    /// The descriptors; at least one.
    pub descriptors: Vec<EventDescriptor>,
    /// The recorded verdict.
    pub code: Code,
    /// The share of such requests that is in the log.
    pub sample: f64,
    /// Whether the log has a hash instead of a value.
    pub is_hashed: bool,
    /// The ticket of the slots and estimates that the request took, or its hash; none if it has none.
    pub ticket: Option<SmolStr>,
}

/// A descriptor of a logged decision.
#[derive(Clone, PartialEq, Debug)]
pub struct EventDescriptor {
    /// Keys and values; at least one. A value that was hashed is its hash.
    pub entries: Vec<(SmolStr, SmolStr)>,
    /// Its hits.
    pub hits: Hits,
    /// The limit in the request.
    pub own_limit: Option<RequestLimit>,
    /// The recorded status; none in a log that has the verdict on the whole request only.
    pub recorded: Option<RecordedStatus>,
}

/// The status of a descriptor, as the log has it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RecordedStatus<Text = SmolStr> {
    /// The verdict on the descriptor.
    pub code: Code,
    /// Hits that would have been admitted.
    pub remaining: u32,
    /// None where there was no limit.
    pub reset: Option<Reset>,
    /// The path of the rule; none where there was no limit. Empty for a limit of the request, and where it was redacted.
    pub rule: Option<Text>,
}
