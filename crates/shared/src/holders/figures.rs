//! Figures of leases, and of decisions by them.

use std::sync::atomic::AtomicU64;
use tidegate_core::limit::Code;
use tidegate_counts::{Counts, labels};

labels! {
    /// An event of leases.
    pub enum LeaseEvent {
        /// A request was admitted by credits in hand.
        Admitted = "admitted",
        /// A request was denied by a kept denial.
        Denied = "denied",
        /// A request for credits was sent.
        Request = "request",
        /// A credit expired unspent.
        Wasted = "wasted",
    }
}

impl From<Code> for LeaseEvent {
    fn from(code: Code) -> Self {
        match code {
            Code::Ok => Self::Admitted,
            Code::OverLimit => Self::Denied,
        }
    }
}

/// Figures of leases, and of decisions by them.
#[derive(Debug, Default)]
pub struct LeaseCounts {
    /// Events.
    pub events: Counts<LeaseEvent>,
    /// Leases with credits now.
    pub held: AtomicU64,
}
