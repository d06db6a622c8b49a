//! Figures of the connection to a control plane, for metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidegate_core::limit::Timestamp;
use tidegate_counts::{Attempt, Counts, labels};

labels! {
    /// A response of the control plane.
    pub enum Update {
        /// Its rules were put in force (ACK).
        Accepted = "accepted",
        /// It was refused (NACK).
        Refused = "refused",
    }
}

/// Figures of the connection to a control plane.
#[derive(Debug, Default)]
pub struct ControlPlaneCounts {
    /// Attempts to connect.
    pub connects: Counts<Attempt>,
    /// Responses.
    pub updates: Counts<Update>,
    /// Whether there is a connection.
    pub is_connected: AtomicBool,
    /// Time of the last accepted response, in nanoseconds.
    accepted_at: AtomicU64,
}

impl ControlPlaneCounts {
    /// Counts an attempt to connect.
    pub fn connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Relaxed);
        self.connects.count(is_connected.into());
    }

    /// Counts a response that was put in force.
    pub fn accepted(&self, now: Timestamp) {
        self.accepted_at.store(now.as_nanos(), Ordering::Relaxed);
        self.updates.count(Update::Accepted);
    }

    /// Time of the last accepted response; zero before the first.
    pub fn accepted_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.accepted_at.load(Ordering::Relaxed))
    }
}
