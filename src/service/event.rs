//! A sent decision, as its readers receive it.

use super::{Assignment, Bucket, QuotaPeer, TraceContext};
use std::{sync::Arc, time::Duration};
use tidegate_core::{
    clock::Clock,
    limit::{Decision, Request, Timestamp},
};

/// The call that a request arrived in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallOrigin<'c> {
    /// The other end of the connection, for operators; empty if it is unknown.
    pub peer: &'c str,
    /// The trace context that the caller sent.
    pub trace: Option<TraceContext>,
}

/// A sent decision.
pub struct Event<'e, 't, 'r> {
    /// The request.
    pub request: &'e Request<'t>,
    /// The decision.
    pub decision: &'e Decision<'r>,
    /// The call.
    pub origin: CallOrigin<'e>,
    /// The time at which the request was received.
    pub received: Timestamp,
    /// Number of the rules by which it was decided.
    pub generation: u64,
    pub(super) clock: &'e dyn Clock,
}

impl Event<'_, '_, '_> {
    /// The time since the request was received. Reads the clock.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().since(self.received)
    }
}

/// An assignment that a client of quotas was sent, and that differs from the last one of the bucket.
#[derive(Clone, Debug)]
pub struct AssignmentEvent {
    /// The time at which it was sent.
    pub sent: Timestamp,
    /// The domain.
    pub domain: Arc<str>,
    /// Number of the stream of the client since the start.
    pub stream: u64,
    /// The client.
    pub peer: QuotaPeer,
    /// The bucket.
    pub bucket: Bucket,
    /// The assignment.
    pub assignment: Assignment,
}

/// Reads sent decisions, on the thread that sends them. It must not block, and should not allocate.
pub trait DecisionReader: Send + Sync + 'static {
    /// Reads a decision.
    fn read(&self, event: &Event<'_, '_, '_>);

    /// Reads an assignment.
    fn read_assignment(&self, _event: AssignmentEvent) {}

    /// Whether the next decisions of this thread, so many of them on requests received at this time, need not be read. If so, the
    /// reader has counted them as read.
    fn passes_over(&self, _decisions: usize, _received: Timestamp) -> bool {
        false
    }
}
