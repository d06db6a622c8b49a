//! Figures of the calls to a store.

use super::failure::Failure;
use crate::script::Verdict;
use std::sync::atomic::{AtomicI64, AtomicU64};
use tidegate_counts::{Attempt, Counts, DurationBounds, Histogram, Label, labels};

labels! {
    /// The result of a call for a decision.
    pub enum CallResult {
        /// The store decided.
        Decided = "decided",
        /// The call failed at once, because the store was unavailable.
        Unavailable = "unavailable",
        /// There was no response in time.
        Timeout = "timeout",
        /// The call failed otherwise.
        Failed = "failed",
        /// No decision follows from the reply. Counted as `Decided` too.
        Unusable = "unusable",
    }
}

labels! {
    /// Number of decisions in one call of the script: at most that of the label.
    pub enum BatchSize {
        /// One.
        One = "1",
        /// Two.
        Two = "2",
        /// Three or four.
        Four = "4",
        /// Five to eight.
        Eight = "8",
        /// 9 to 16.
        Sixteen = "16",
        /// 17 to 32.
        ThirtyTwo = "32",
        /// 33 to 64.
        SixtyFour = "64",
        /// More than 64.
        More = "more",
    }
}

labels! {
    /// An event at a store.
    pub enum StoreEvent {
        /// The store became unavailable.
        Outage = "outage",
        /// A call was repeated with the text of the script, which the store did not have.
        ScriptLoad = "script_load",
        /// A node of a cluster redirected a call of the script.
        Redirection = "redirection",
        /// A release of slots or an end of reservations did not reach the store. The slots or reservations end at their deadlines.
        LostRelease = "lost_release",
        /// A reservation had passed its deadline when its counter was used again.
        LostReservation = "lost_reservation",
    }
}

/// Figures of the calls to a store.
pub struct StoreCounts {
    /// Calls for a decision.
    pub calls: Counts<CallResult>,
    /// Events.
    pub events: Counts<StoreEvent>,
    /// Attempts to take back charges of requests that were denied elsewhere, or decided without the store.
    pub undone: Counts<Attempt>,
    /// Calls of the script.
    pub batches: Counts<BatchSize>,
    /// Times of the calls of scripts that had a response.
    pub round_trips: Histogram,
    /// Replicas of all nodes, when last known.
    pub replicas: AtomicU64,
    /// Bytes that the most delayed replica has not received from its node, when last known.
    pub replication_lag_bytes: AtomicU64,
    /// Microseconds by which the store's clock is ahead of this server's, when last known.
    pub clock_offset_micros: AtomicI64,
}

impl Default for StoreCounts {
    fn default() -> Self {
        let bounds = [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000];
        Self {
            calls: Counts::default(),
            events: Counts::default(),
            undone: Counts::default(),
            batches: Counts::default(),
            round_trips: Histogram::new(DurationBounds::of_micros(bounds)),
            replicas: AtomicU64::default(),
            replication_lag_bytes: AtomicU64::default(),
            clock_offset_micros: AtomicI64::default(),
        }
    }
}

impl StoreCounts {
    pub(super) fn count_call(&self, result: &Result<Verdict, Failure>) {
        self.calls.count(match result {
            Ok(_) => CallResult::Decided,
            Err(Failure::Unavailable) => CallResult::Unavailable,
            Err(Failure::Timeout) => CallResult::Timeout,
            Err(
                Failure::Failed | Failure::Learning | Failure::Damaged | Failure::Clocks | Failure::TooLarge,
            ) => CallResult::Failed,
        });
    }

    pub(super) fn lost(&self, reservations: u64) {
        if reservations > 0 {
            self.events.add(StoreEvent::LostReservation, reservations);
        }
    }

    pub(super) fn sent(&self, decisions: usize) {
        let class = decisions.next_power_of_two().ilog2() as usize;
        self.batches.count(BatchSize::ALL[class.min(BatchSize::More.index())]);
    }
}
