//! Observers of decisions as they are made: the stream for watchers, the keys with the most hits, and the record of recent decisions.

use super::{tail::Tail, top_keys::TopKeys, what_if::Recorder};
use tidegate_core::limit::{Request, Timestamp};
use tidegate_service::{Cancellation, DecisionReader, Event};

/// The observer of decisions.
#[derive(Default)]
pub struct Live {
    /// The stream of decisions.
    pub tail: Tail,
    /// The keys with the most hits.
    pub top_keys: TopKeys,
    /// The record of recent decisions.
    pub recorder: Recorder,
}

impl DecisionReader for Live {
    #[inline]
    fn read(&self, event: &Event<'_, '_, '_>) {
        self.tail.read(event);
        self.top_keys.read(event);
        self.recorder.read(event);
    }

    #[inline]
    fn passes_over(&self, decisions: usize, received: Timestamp) -> bool {
        !self.tail.is_watched() && !self.recorder.is_on() && self.top_keys.passes_over(decisions, received)
    }

    fn follows(&self, request: &Request<'_>) -> bool {
        self.recorder.follows(request)
    }

    fn read_cancelled(&self, cancellation: &Cancellation<'_>) {
        self.recorder.read_cancelled(cancellation);
    }
}
