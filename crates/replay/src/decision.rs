//! A logged decision that borrows its texts from the line of a log, so that most lines are decided without a copy, or from an [`Event`].

use super::{Event, EventDescriptor, Place, RecordedStatus};
use smallvec::SmallVec;
use tidegate_core::limit::{Code, Descriptor, Entry, Request, Timestamp};

/// A logged decision.
#[derive(Clone, PartialEq, Debug)]
pub struct LoggedDecision<'l> {
    /// Time of receipt, at which the request was decided.
    pub time: Timestamp,
    /// The place; none in logs without it.
    pub place: Option<Place>,
    /// The request. Hashed values are their hashes.
    pub request: Request<'l>,
    /// The recorded verdict.
    pub code: Code,
    /// The recorded status of each descriptor. None if the log only has the verdict on the whole request.
    pub statuses: SmallVec<[Option<LoggedStatus<'l>>; 4]>,
    /// The share of such requests that is in the log.
    pub sample: f64,
    /// Whether the log has a hash instead of a value.
    pub is_hashed: bool,
    /// The ticket of the slots and estimates that the request took, or its hash. None if it has no ticket.
    pub ticket: Option<&'l str>,
}

/// The status of a descriptor. Borrows a text of the line.
pub type LoggedStatus<'l> = RecordedStatus<&'l str>;

impl Default for LoggedDecision<'_> {
    /// An admission without descriptors, to read into.
    #[inline]
    fn default() -> Self {
        Self {
            time: Timestamp::EPOCH,
            place: None,
            request: Request::new(""),
            code: Code::Ok,
            statuses: SmallVec::new(),
            sample: 1.0,
            is_hashed: false,
            ticket: None,
        }
    }
}

impl LoggedDecision<'_> {
    /// The decision with its own texts.
    pub fn to_event(&self) -> Event {
        let descriptors = self.request.descriptors().iter().zip(&self.statuses);
        let descriptors = descriptors.map(|(descriptor, status)| EventDescriptor {
            entries: descriptor.entries.iter().map(|entry| (entry.key.into(), entry.value.into())).collect(),
            hits: descriptor.hits,
            own_limit: descriptor.limit,
            recorded: status.map(|LoggedStatus { code, remaining, reset, rule }| RecordedStatus {
                code,
                remaining,
                reset,
                rule: rule.map(Into::into),
            }),
        });
        Event {
            time: self.time,
            place: self.place,
            is_report: self.request.is_report(),
            domain: self.request.domain().into(),
            descriptors: descriptors.collect(),
            code: self.code,
            sample: self.sample,
            is_hashed: self.is_hashed,
            ticket: self.ticket.map(Into::into),
        }
    }
}

impl Event {
    /// The request.
    pub fn request(&self) -> Request<'_> {
        let mut request = Request::new(&self.domain);
        for descriptor in &self.descriptors {
            let entries = descriptor.entries.iter().map(|(key, value)| Entry { key, value }).collect();
            request.push(Descriptor { entries, limit: descriptor.own_limit, hits: descriptor.hits });
        }
        if self.is_report { request.reporting() } else { request }
    }

    /// The decision, with the texts of this event.
    pub fn decision(&self) -> LoggedDecision<'_> {
        let statuses = self.descriptors.iter().map(|descriptor| {
            let RecordedStatus { code, remaining, reset, rule } = descriptor.recorded.as_ref()?;
            let rule = rule.as_deref();
            Some(LoggedStatus { code: *code, remaining: *remaining, reset: *reset, rule })
        });
        LoggedDecision {
            time: self.time,
            place: self.place,
            request: self.request(),
            code: self.code,
            statuses: statuses.collect(),
            sample: self.sample,
            is_hashed: self.is_hashed,
            ticket: self.ticket.as_deref(),
        }
    }
}
