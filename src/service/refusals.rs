//! Counts of requests that were refused without a decision.

use super::lines::{LINES, ThreadLine};
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_core::limit::RequestError;

/// The reason why a request was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// INVALID_ARGUMENT: the domain is empty.
    EmptyDomain,
    /// INVALID_ARGUMENT: the domain is too long.
    LongDomain,
    /// INVALID_ARGUMENT: there is no descriptor.
    NoDescriptors,
    /// INVALID_ARGUMENT: there are too many descriptors.
    ManyDescriptors,
    /// INVALID_ARGUMENT: a descriptor has no entry.
    NoEntries,
    /// INVALID_ARGUMENT: a descriptor has too many entries.
    ManyEntries,
    /// INVALID_ARGUMENT: an entry has no key.
    EmptyKey,
    /// INVALID_ARGUMENT: a key or a value is too long.
    LongText,
    /// INVALID_ARGUMENT: the request's own limit has an unknown unit.
    UnknownUnit,
    /// INVALID_ARGUMENT: `grpc-timeout` is malformed.
    MalformedTimeout,
    /// INVALID_ARGUMENT: the precision is unknown.
    UnknownPrecision,
    /// OUT_OF_RANGE: the message is too long.
    LongMessage,
    /// INTERNAL or UNIMPLEMENTED by tonic: the message cannot be decoded, or its compression is not supported.
    UndecodableMessage,
    /// UNIMPLEMENTED: there is no such method.
    UnknownMethod,
    /// HTTP status 415 or 405: not a gRPC call.
    NotGrpc,
    /// RESOURCE_EXHAUSTED: too many open streaming calls.
    StreamingCalls,
    /// UNAVAILABLE: the counters are being restored.
    NotReady,
    /// UNAVAILABLE: there are no rules yet.
    NoRules,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::EmptyDomain,
        Self::LongDomain,
        Self::NoDescriptors,
        Self::ManyDescriptors,
        Self::NoEntries,
        Self::ManyEntries,
        Self::EmptyKey,
        Self::LongText,
        Self::UnknownUnit,
        Self::MalformedTimeout,
        Self::UnknownPrecision,
        Self::LongMessage,
        Self::UndecodableMessage,
        Self::UnknownMethod,
        Self::NotGrpc,
        Self::StreamingCalls,
        Self::NotReady,
        Self::NoRules,
    ];

    /// The value of the label `reason`.
    pub fn label(self) -> &'static str {
        match self {
            Self::EmptyDomain => "empty_domain",
            Self::LongDomain => "long_domain",
            Self::NoDescriptors => "no_descriptors",
            Self::ManyDescriptors => "many_descriptors",
            Self::NoEntries => "no_entries",
            Self::ManyEntries => "many_entries",
            Self::EmptyKey => "empty_key",
            Self::LongText => "long_text",
            Self::UnknownUnit => "unknown_unit",
            Self::MalformedTimeout => "malformed_timeout",
            Self::UnknownPrecision => "unknown_precision",
            Self::LongMessage => "long_message",
            Self::UndecodableMessage => "undecodable_message",
            Self::UnknownMethod => "unknown_method",
            Self::NotGrpc => "not_grpc",
            Self::StreamingCalls => "streaming_calls",
            Self::NotReady => "not_ready",
            Self::NoRules => "no_rules",
        }
    }
}

impl From<&RequestError> for Refusal {
    fn from(error: &RequestError) -> Self {
        match error {
            RequestError::EmptyDomain => Self::EmptyDomain,
            RequestError::LongDomain { .. } => Self::LongDomain,
            RequestError::NoDescriptors => Self::NoDescriptors,
            RequestError::ManyDescriptors { .. } => Self::ManyDescriptors,
            RequestError::NoEntries { .. } => Self::NoEntries,
            RequestError::ManyEntries { .. } => Self::ManyEntries,
            RequestError::EmptyKey { .. } => Self::EmptyKey,
            RequestError::LongText { .. } => Self::LongText,
            RequestError::UnknownUnit { .. } => Self::UnknownUnit,
        }
    }
}

/// Counts of refused requests, by reason.
pub struct Refusals(Box<[Line]>);

/// The counts of one thread.
#[derive(Default)]
#[repr(align(128))]
struct Line([AtomicU64; Refusal::ALL.len()]);

impl Default for Refusals {
    fn default() -> Self {
        Self((0..LINES).map(|_| Line::default()).collect())
    }
}

impl Refusals {
    pub(super) fn count(&self, refusal: Refusal) {
        let thread = ThreadLine::current();
        thread.add(&thread.of(&self.0).0[refusal as usize], 1);
    }

    /// Requests that were refused for this reason.
    pub fn sum(&self, refusal: Refusal) -> u64 {
        self.0.iter().map(|line| line.0[refusal as usize].load(Ordering::Relaxed)).sum()
    }
}
