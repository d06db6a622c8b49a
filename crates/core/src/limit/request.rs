//! A request with its descriptors, checked once.

use super::Unit;
use smallvec::SmallVec;
use std::num::NonZeroU64;

/// One key and its value. The key is empty only where the form of requests is that of the reference server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry<'a> {
    /// The key, e.g. `remote_address`.
    pub key: &'a str,
    /// The value; may be empty.
    pub value: &'a str,
}

/// The hits of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hits {
    /// Take this many, or none.
    Take(NonZeroU64),
    /// Whether one more would be admitted now; takes nothing.
    Peek,
    /// Give this many back, newest first; never below empty.
    GiveBack(NonZeroU64),
}

impl Hits {
    /// One hit, the default.
    pub const ONE: Self = Self::Take(NonZeroU64::MIN);

    /// The hits, each counted `weight` times.
    pub fn weighed(self, weight: NonZeroU64) -> Self {
        match self {
            Self::Take(hits) => Self::Take(hits.saturating_mul(weight)),
            Self::GiveBack(hits) => Self::GiveBack(hits.saturating_mul(weight)),
            Self::Peek => Self::Peek,
        }
    }

    /// From the wire: the descriptor's own number if present (0 is a peek), else the request's, where 0 means 1.
    pub fn new(of_descriptor: Option<u64>, of_request: u32, give_back: bool) -> Self {
        let number = of_descriptor.unwrap_or(u64::from(of_request.max(1)));
        match (NonZeroU64::new(number), give_back) {
            (None, _) => Self::Peek,
            (Some(hits), false) => Self::Take(hits),
            (Some(hits), true) => Self::GiveBack(hits),
        }
    }
}

/// A limit in the request, which replaces the rule's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestLimit {
    /// Hits per unit.
    pub requests: u32,
    /// The unit.
    pub unit: Unit,
}

/// One thing to be limited: entries from the most general to the most particular.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descriptor<'a> {
    /// At least one, unless the form of requests is that of the reference server.
    pub entries: SmallVec<[Entry<'a>; 3]>,
    /// The limit in the request.
    pub limit: Option<RequestLimit>,
    /// Its hits.
    pub hits: Hits,
}

/// One request: a domain and at least one descriptor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request<'a> {
    domain: &'a str,
    descriptors: SmallVec<[Descriptor<'a>; 4]>,
    /// Whether its hits were used already: they are counted even if they do not fit.
    is_report: bool,
    /// Whether its peeks check for one more hit, in either semantics.
    is_check: bool,
    sent_hits: Option<Box<SentHits>>,
}

/// The numbers of hits as a client sent them, which [`Hits`] does not distinguish.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SentHits {
    /// The number of the request; 0 if it has none.
    pub of_request: u32,
    /// The number of each descriptor, if it has one.
    pub of_descriptors: Vec<Option<u64>>,
}

/// Which requests are well-formed, and how they are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RequestForm {
    /// Every entry has a key.
    #[default]
    Strict,
    /// As the reference server: entries without a key match no rule, a limit in a request may be weekly, and negative hits are
    /// taken as if they were not.
    Reference,
}

/// Bounds on the size of a request. Each has a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestLimits {
    /// Descriptors in one request.
    pub descriptors_max: usize,
    /// Entries in one descriptor.
    pub entries_max: usize,
    /// Bytes of a domain, and of a key or a value before it is cut: see [`client_text`](super::client_text()).
    pub text_bytes_max: usize,
    /// Which requests are well-formed.
    pub form: RequestForm,
    /// Whether requests keep [`SentHits`], for metadata of responses.
    pub keep_sent_hits: bool,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            descriptors_max: 100,
            entries_max: 32,
            text_bytes_max: 8 * 1024,
            form: RequestForm::Strict,
            keep_sent_hits: false,
        }
    }
}

/// Reason why a request is malformed. The message is the status message of the call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message is its own documentation")]
pub enum RequestError {
    #[error("domain is empty; name the domain of a loaded rule set")]
    EmptyDomain,
    #[error("domain is {bytes} bytes long; at most {max} are accepted")]
    LongDomain { bytes: usize, max: usize },
    #[error("descriptors is empty; send at least one descriptor")]
    NoDescriptors,
    #[error("descriptors has {count} items; at most {max} are accepted")]
    ManyDescriptors { count: usize, max: usize },
    #[error("descriptors[{descriptor}].entries has {count} items; at most {max} are accepted")]
    ManyEntries { descriptor: usize, count: usize, max: usize },
    #[error("descriptors[{descriptor}].entries[{entry}].key is empty; every entry needs a key")]
    EmptyKey { descriptor: usize, entry: usize },
    #[error(
        "descriptors[{descriptor}].limit.unit is {number}; send 1 (SECOND), 2 (MINUTE), 3 (HOUR), 4 (DAY), 5 (MONTH) or 6 (YEAR)"
    )]
    UnknownUnit { descriptor: usize, number: i32 },
}

impl<'a> Request<'a> {
    /// A request to the domain without descriptors. [`Request::checked`] completes it.
    pub fn new(domain: &'a str) -> Self {
        Self { domain, descriptors: SmallVec::new(), sent_hits: None, is_report: false, is_check: false }
    }

    /// Changes the domain.
    pub fn set_domain(&mut self, domain: &'a str) {
        self.domain = domain;
    }

    /// Adds a descriptor.
    pub fn push(&mut self, descriptor: Descriptor<'a>) {
        self.descriptors.push(descriptor);
    }

    /// Keeps the numbers of hits as they were sent.
    pub fn set_sent_hits(&mut self, sent: SentHits) {
        self.sent_hits = Some(Box::new(sent));
    }

    /// The numbers of hits as they were sent, if they were kept.
    pub fn sent_hits(&self) -> Option<&SentHits> {
        self.sent_hits.as_deref()
    }

    /// The request as a peek at one more hit for each descriptor, which takes nothing: even with the semantics of the reference server, in
    /// which other peeks are admitted at exactly the limit.
    pub fn checking(mut self) -> Self {
        self.descriptors.iter_mut().for_each(|descriptor| descriptor.hits = Hits::Peek);
        Self { is_check: true, ..self }
    }

    /// Whether its peeks check for one more hit, in either semantics.
    #[inline]
    pub fn is_check(&self) -> bool {
        self.is_check
    }

    /// The request as a report of hits that were used: they are counted even if they do not fit, and never queued.
    pub fn reporting(self) -> Self {
        Self { is_report: true, ..self }
    }

    /// Whether it is a report of hits that were used.
    #[inline]
    pub fn is_report(&self) -> bool {
        self.is_report
    }

    /// The request, if it is complete and within `limits`.
    pub fn checked(self, limits: &RequestLimits) -> Result<Self, RequestError> {
        self.check(limits).map(|()| self)
    }

    /// As [`Request::checked`], without moving the request.
    pub fn check(&self, limits: &RequestLimits) -> Result<(), RequestError> {
        let max = limits.text_bytes_max;
        if self.domain.is_empty() {
            return Err(RequestError::EmptyDomain);
        }
        if self.domain.len() > max {
            return Err(RequestError::LongDomain { bytes: self.domain.len(), max });
        }
        if self.descriptors.is_empty() {
            return Err(RequestError::NoDescriptors);
        }
        if self.descriptors.len() > limits.descriptors_max {
            let count = self.descriptors.len();
            return Err(RequestError::ManyDescriptors { count, max: limits.descriptors_max });
        }
        for (index, descriptor) in self.descriptors.iter().enumerate() {
            descriptor.check(index, limits)?;
        }
        Ok(())
    }

    /// The domain; never empty.
    pub fn domain(&self) -> &'a str {
        self.domain
    }

    /// The descriptors; at least one.
    pub fn descriptors(&self) -> &[Descriptor<'a>] {
        &self.descriptors
    }
}

impl Descriptor<'_> {
    fn check(&self, descriptor: usize, limits: &RequestLimits) -> Result<(), RequestError> {
        let is_strict = limits.form == RequestForm::Strict;
        if self.entries.len() > limits.entries_max {
            let count = self.entries.len();
            return Err(RequestError::ManyEntries { descriptor, count, max: limits.entries_max });
        }
        match self.entries.iter().position(|entry| entry.key.is_empty()) {
            Some(entry) if is_strict => Err(RequestError::EmptyKey { descriptor, entry }),
            _ => Ok(()),
        }
    }
}
