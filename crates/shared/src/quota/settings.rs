//! Times and bounds of quota.

use std::time::Duration;
use tidegate_core::limit::Timestamp;

/// A time that is not reached.
pub(super) const NEVER: Timestamp = Timestamp::from_nanos(u64::MAX);

/// The life of a server's part in a store, from its request on: that of an assignment with its round trip, and a reserve. During the
/// reserve the store may be away, or requests may be lost, while assignments can still be renewed.
pub const PART_LIFE: Duration = Duration::from_secs(20);

/// Times and bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The life of an assignment: three intervals between reports, and at least ten seconds. In whole seconds, because Envoy reads no
    /// fractions. With the round trip, less than 65 seconds.
    pub ttl: Duration,
    /// The longest time in which a message is received, acted on, and responded to.
    pub round_trip: Duration,
    /// Reports without a request after which a bucket is abandoned.
    pub idle_reports: u8,
    /// The most buckets of a stream.
    pub buckets_of_stream_max: usize,
    /// The most bytes of all buckets and clients together; one peer may have half of them.
    pub memory_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(15),
            round_trip: Duration::from_secs(1),
            idle_reports: 12,
            buckets_of_stream_max: 1_000,
            memory_max: usize::MAX,
        }
    }
}

impl Settings {
    /// Time from which no assignment of a former process is in force, if this process began at `began`.
    pub fn learned(&self, began: Timestamp) -> Timestamp {
        began.saturating_add(self.ttl + self.round_trip)
    }

    /// The least time between two divisions of a bucket with so many clients, as each client takes time.
    pub(super) fn spacing(&self, clients: usize) -> Duration {
        (Duration::from_micros(100) * clients as u32).min(self.round_trip)
    }
}
