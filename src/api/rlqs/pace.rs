//! The pace at which messages of one stream are read, so that a client that reports all the time takes a bounded part of the thread that
//! divides limits from others.

use std::time::Duration;
use tidegate_core::limit::Timestamp;

/// Time for one bucket of a report, on average.
const BUCKET: Duration = Duration::from_millis(1);

/// Buckets that are read at once before the average applies: as many as a stream may have.
const BURST: Duration = BUCKET.saturating_mul(1_000);

/// What a stream has reported.
#[derive(Default)]
pub(super) struct Pace {
    /// Time at which the average would be reached.
    due: Timestamp,
}

impl Pace {
    /// Notes a message with so many buckets.
    pub(super) fn note(&mut self, buckets: usize, now: Timestamp) {
        let buckets = u32::try_from(buckets).unwrap_or(u32::MAX).max(1);
        self.due = self.due.max(now).saturating_add(BUCKET.saturating_mul(buckets));
    }

    /// Time until the next message is read.
    pub(super) fn wait(&self, now: Timestamp) -> Duration {
        self.due.since(now.saturating_add(BURST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_buckets_are_reported_at_once_and_more_at_the_average() {
        let (mut pace, now) = (Pace::default(), Timestamp::from_millis(1_000_000));
        pace.note(1_000, now);
        assert_eq!(pace.wait(now), Duration::ZERO);
        // One message counts as one bucket at least.
        pace.note(0, now);
        assert_eq!(pace.wait(now), Duration::from_millis(1));
        pace.note(4_000, now);
        assert_eq!(pace.wait(now), Duration::from_millis(4_001));
        // An interval between reports of Envoy.
        let later = now.saturating_add(Duration::from_secs(5));
        assert_eq!(pace.wait(later), Duration::ZERO);
    }
}
