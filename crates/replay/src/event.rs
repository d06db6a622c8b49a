//! The content of a log: decisions, and the changes in between on which they depend.

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

/// The place of a step in the order in which a server decided. Its number is greater than the numbers of the steps before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The process.
    pub run: u64,
    /// The number.
    pub number: u64,
    /// Number of the rules in force. The rules of a decision may already be replaced.
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
    /// The algorithm of rules that name none. By default that of the semantics.
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
    /// Its text. None if the log had it before, or only has hashes.
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
    /// The path of the rule. None if the counters are those of the descriptors or of the domain.
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
    /// Its ticket, or the ticket's hash.
    pub ticket: SmolStr,
}

impl Step {
    /// The place (none in logs without it), and the time.
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
    /// Time of receipt, at which the request was decided.
    pub time: Timestamp,
    /// The place; none in logs without it.
    pub place: Option<Place>,
    /// Whether the hits were already used. They were then counted even if they did not fit.
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
    /// The ticket of the slots and estimates that the request took, or its hash. None if it has no ticket.
    pub ticket: Option<SmolStr>,
}

/// A descriptor of a logged decision.
#[derive(Clone, PartialEq, Debug)]
pub struct EventDescriptor {
    /// Keys and values; at least one. Hashed values are their hashes.
    pub entries: Vec<(SmolStr, SmolStr)>,
    /// Its hits.
    pub hits: Hits,
    /// The limit in the request.
    pub own_limit: Option<RequestLimit>,
    /// The recorded status. None if the log only has the verdict on the whole request.
    pub recorded: Option<RecordedStatus>,
}

/// The status of a descriptor in the log.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RecordedStatus<Text = SmolStr> {
    /// The verdict on the descriptor.
    pub code: Code,
    /// Hits that would have been admitted.
    pub remaining: u32,
    /// None if there was no limit.
    pub reset: Option<Reset>,
    /// The path of the rule. None if there was no limit. Empty for a limit of the request, and if it was redacted.
    pub rule: Option<Text>,
}
