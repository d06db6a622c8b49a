//! What is read from decisions as they are made: the stream for watchers, and the keys with most hits.

use super::{tail::Tail, top_keys::TopKeys};
use crate::service::{DecisionReader, Event};

/// The observer of decisions.
#[derive(Default)]
pub struct Live {
    /// The stream of decisions.
    pub tail: Tail,
    /// The keys with most hits.
    pub top_keys: TopKeys,
}

impl DecisionReader for Live {
    #[inline]
    fn read(&self, event: &Event<'_, '_, '_>) {
        self.tail.read(event);
        self.top_keys.read(event);
    }
}
