//! A sent decision, as its readers get it.

use super::{Assignment, BucketName, QuotaPeer, TraceContext};
use std::{sync::Arc, time::Duration};
use tidegate_core::{
    clock::Clock,
    limit::{Decision, Request, Timestamp},
};

/// The call that contained a request.
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
    /// Number of the rules that decided it.
    pub generation: u64,
    pub(super) clock: &'e dyn Clock,
}

impl Event<'_, '_, '_> {
    /// The time since the request was received. Reads the clock.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().since(self.received)
    }
}

/// An assignment that a client of quotas was sent and that differs from the last one of the bucket.
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
    pub bucket: BucketName,
    /// The assignment.
    pub assignment: Assignment,
}

/// The end of an admitted request whose client reset the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cancellation<'e> {
    /// The domain.
    pub domain: &'e str,
    /// The ticket of the slots and estimates, which are released.
    pub ticket: &'e str,
    /// The time of the release.
    pub at: Timestamp,
    /// Its number among decisions, see [`Decision::number`].
    pub number: u64,
    /// Number of the rules in force.
    pub generation: u64,
}

/// Reads sent decisions, on the thread that sends them. Must not block, and should not allocate.
pub trait DecisionReader: Send + Sync + 'static {
    /// Reads a decision.
    fn read(&self, event: &Event<'_, '_, '_>);

    /// Reads an assignment.
    fn read_assignment(&self, _event: AssignmentEvent) {}

    /// Whether the reader skips the next `_decisions` of this thread, whose requests were received at `_received`. If so, it has counted
    /// them as read.
    fn passes_over(&self, _decisions: usize, _received: Timestamp) -> bool {
        false
    }

    /// Whether the reader is notified if the client resets the call of this admitted request.
    fn follows(&self, _request: &Request<'_>) -> bool {
        false
    }

    /// Reads that a call was reset. The reader follows its request.
    fn read_cancelled(&self, _cancellation: &Cancellation<'_>) {}
}

/// The values that select a request for a sample. For an end or a renewal they are the values of its start, without the ticket, so that the
/// sample has all of them or none. The ticket counts only if there are no other values.
pub fn sampled_values<'t>(
    entries: impl Iterator<Item = (&'t str, &'t str)> + Clone,
) -> impl Iterator<Item = &'t str> {
    let is_ticket =
        |(key, value): (&str, &str)| matches!(key, "slot" | "renew") && value.starts_with("slot-");
    let has_others = entries.clone().any(|entry| !is_ticket(entry));
    entries.filter(move |entry| !(has_others && is_ticket(*entry))).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_sampled_by_the_values_of_its_start() {
        let of = |entries: &[(&'static str, &'static str)]| -> Vec<_> {
            sampled_values(entries.iter().copied()).collect()
        };
        let end = [("user", "ann"), ("slot", "slot-1"), ("path", "/")];
        assert_eq!(of(&end), of(&[("user", "ann"), ("path", "/")]));
        assert_eq!(of(&[("user", "ann"), ("renew", "slot-1")]), ["ann"]);
        assert_eq!(of(&[("slot", "slot-1")]), ["slot-1"]);
        assert_eq!(of(&[("slot", "7"), ("user", "ann")]), ["7", "ann"], "no ticket");
    }
}
