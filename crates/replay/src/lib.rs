//! Replay: decides the requests of a log again, under proposed rules, at the times of the log. Events in, a report out.
//!
//! Invariants:
//!
//! - The result depends only on the rules and the events: there is no clock, no random secret, and every list is ordered.
//! - Numbered decisions are repeated in the order of their numbers, each at its time. Without numbers, time never runs backwards: an event
//!   older than the event before it is decided at that event's time, and counted.
//! - A replay starts without counters, as a server without a snapshot does.

mod access_log;
mod container;
mod decision;
mod event;
mod fast_line;
mod holds;
mod line;
mod line_fields;
mod logged_rules;
mod notes;
mod order;
mod report;
mod run;
mod series;
mod store_settings;
mod suggest;
mod tally;
#[cfg(test)]
mod tests;
mod tickets;
mod time_format;
mod unlimited;
mod unreached;
mod words;

pub use access_log::{
    APACHE_COMBINED, AccessLog, Columns, ENVOY_DEFAULT, FieldsSeen, FormatError, ISTIO_DEFAULT, Layout,
    Mapping, MappingError, NGINX_COMBINED, Notation, TextFormat, UnknownField,
};
pub use container::without_container_prefix;
pub use decision::{LoggedDecision, LoggedStatus};
pub use event::{
    CancelledStep, Event, EventDescriptor, LoggedSource, Place, RecordedStatus, ResetStep, RulesStep, Step,
};
pub use line::{LineContent, LineError, LineParser, parse_line};
pub use logged_rules::LoggedRulesError;
pub use notes::LineCounts;
pub use order::{Log, LogLine, StepRef, Steps, apply_in_order};
pub use report::{DeniedMinute, DomainRow, Key, KeyRow, Keys, Report, RuleRow, Samples, Share, Side};
pub use run::Replay;
pub use series::{Point, Series};
pub use suggest::{Demand, DeniedAt, Percentiles, ShareOf, Suggestion, UnknownRule};
pub use unreached::Unreached;

/// The first two bytes of a gzip-compressed log.
pub const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
