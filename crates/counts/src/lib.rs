//! Counts of events by label, and histograms of durations, for metrics.
//!
//! [`labels!`](crate::labels) declares an enum of events with the label of each, [`Counts`] counts them, and [`Histogram`] counts
//! durations by bucket. Each thread adds to cells of its own ([`PerThread`]): no lock, no atomic read-modify-write operation, no cache line
//! that threads share. Readers add up the threads. [`CountsByText`] counts by texts of requests. [`LogTimes`] bounds the log lines about
//! events.

mod by_text;
mod histogram;
mod label;
mod last_attempt;
mod log_times;
mod thread_index;

pub use by_text::{CountsByText, ThreadCounts};
pub use histogram::{BoundsError, DurationBounds, Histogram, HistogramSums};
pub use label::Label;
pub use last_attempt::LastAttempt;
pub use log_times::LogTimes;
pub use thread_index::{PerThread, ThreadIndex};

use std::{fmt, sync::atomic::Ordering};

/// Counts of events by label.
pub struct Counts<L: Label>(PerThread<L::Cells>);

impl<L: Label> Default for Counts<L> {
    fn default() -> Self {
        Self(PerThread::default())
    }
}

impl<L: Label> fmt::Debug for Counts<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(L::ALL.iter().map(|label| (label.name(), self.sum(*label)))).finish()
    }
}

impl<L: Label> Counts<L> {
    /// Counts one event.
    #[inline]
    pub fn count(&self, label: L) {
        self.add(label, 1);
    }

    /// Counts so many events.
    #[inline]
    pub fn add(&self, label: L, more: u64) {
        self.add_at(ThreadIndex::current(), label, more);
    }

    /// Adds by the index of this thread, which several counts look up once.
    #[inline]
    pub fn add_at(&self, thread: ThreadIndex, label: L, more: u64) {
        thread.add(&self.0.of(thread).as_ref()[label.index()], more);
    }

    /// The number of events that all threads have counted.
    pub fn sum(&self, label: L) -> u64 {
        let of_threads = self.0.iter().map(|cells| cells.as_ref()[label.index()].load(Ordering::Relaxed));
        // Wrapping: a number that grows in one thread may shrink in another.
        of_threads.fold(0, u64::wrapping_add)
    }

    /// The number of events of all labels.
    pub fn total(&self) -> u64 {
        L::ALL.iter().map(|label| self.sum(*label)).sum()
    }
}

labels! {
    /// The result of an attempt.
    pub enum Attempt {
        /// It succeeded.
        Succeeded = "succeeded",
        /// It failed.
        Failed = "failed",
    }
}

impl From<bool> for Attempt {
    fn from(has_succeeded: bool) -> Self {
        if has_succeeded { Self::Succeeded } else { Self::Failed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_many_threads_are_not_lost() {
        let counts = Counts::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..100).for_each(|_| counts.count(Attempt::Succeeded));
                    counts.add(Attempt::Failed, 7);
                });
            }
        });
        assert_eq!(Attempt::ALL.iter().map(|label| counts.sum(*label)).collect::<Vec<_>>(), [400, 28]);
        assert_eq!(format!("{counts:?}"), r#"{"succeeded": 400, "failed": 28}"#);
    }

    #[test]
    fn a_number_may_shrink_in_another_thread_than_it_grew_in() {
        let counts = Counts::default();
        counts.add(Attempt::Succeeded, 3);
        let shrinks = || counts.add(Attempt::Succeeded, 2_u64.wrapping_neg());
        std::thread::scope(|scope| _ = scope.spawn(shrinks));
        assert_eq!(counts.sum(Attempt::Succeeded), 1);
    }
}
