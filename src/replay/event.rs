//! A decision of the log: the request, and how it was decided.

use crate::limit::{Code, Descriptor, Entry, Hits, Override, Request, Reset, Timestamp};
use smol_str::SmolStr;

/// A logged decision.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Time of receipt, by which the request was decided.
    pub time: Timestamp,
    /// The domain; never empty.
    pub domain: SmolStr,
    /// The descriptors; at least one.
    pub descriptors: Vec<EventDescriptor>,
    /// The recorded verdict.
    pub code: Code,
    /// The share of such requests that is in the log.
    pub sample: f64,
    /// Whether the log has a hash in the place of a value.
    pub is_hashed: bool,
}

/// A descriptor of a logged decision.
#[derive(Clone, PartialEq, Debug)]
pub struct EventDescriptor {
    /// Keys and values; at least one. A value that was hashed is its hash.
    pub entries: Vec<(SmolStr, SmolStr)>,
    /// Its hits.
    pub hits: Hits,
    /// The limit in the request.
    pub own_limit: Option<Override>,
    /// The recorded status; none in a log that has the verdict on the whole request only.
    pub recorded: Option<RecordedStatus>,
}

/// The status of a descriptor, as the log has it.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedStatus {
    /// The verdict on the descriptor.
    pub code: Code,
    /// Hits that would have been admitted.
    pub remaining: u32,
    /// None where there was no limit.
    pub reset: Option<Reset>,
    /// The path of the rule; none where there was no limit. Empty for a limit of the request, and where it was redacted.
    pub rule: Option<SmolStr>,
}

impl Event {
    /// The request.
    pub fn request(&self) -> Request<'_> {
        let mut request = Request::new(&self.domain);
        for descriptor in &self.descriptors {
            let entries = descriptor.entries.iter().map(|(key, value)| Entry { key, value }).collect();
            request.push(Descriptor { entries, limit: descriptor.own_limit, hits: descriptor.hits });
        }
        request
    }
}
