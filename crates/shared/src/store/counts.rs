//! Figures of the calls to a store.

use super::Failure;
use crate::script::Verdict;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Upper bounds of the classes of batch sizes; the last class has none.
pub const BATCH_BOUNDS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Upper bounds of the buckets of round trips, in microseconds; the last bucket has none.
pub const ROUND_TRIP_BOUNDS: [u64; 10] = [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000];

/// Figures of the calls to a store.
#[derive(Debug, Default)]
pub struct Counts {
    verdicts: AtomicU64,
    unavailable: AtomicU64,
    timeouts: AtomicU64,
    failed: AtomicU64,
    disagreements: AtomicU64,
    outages: AtomicU64,
    round_trips: AtomicU64,
    repeated: AtomicU64,
    redirected: AtomicU64,
    undone: [AtomicU64; 2],
    batches: [AtomicU64; BATCH_BOUNDS.len() + 1],
    round_trip_buckets: [AtomicU64; ROUND_TRIP_BOUNDS.len() + 1],
    round_trip_nanos: AtomicU64,
    replicas: AtomicU64,
    replication_lag_bytes: AtomicU64,
    /// The bits of a number of seconds.
    clock_offset: AtomicU64,
}

/// The figures at one moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CountsNow {
    /// Decisions of the store.
    pub verdicts: u64,
    /// Calls that failed at once, because the store was unavailable.
    pub unavailable: u64,
    /// Calls without a response in time.
    pub timeouts: u64,
    /// Calls that failed otherwise.
    pub failed: u64,
    /// Replies from which no decision follows.
    pub disagreements: u64,
    /// Times that the store became unavailable.
    pub outages: u64,
    /// Calls of the script.
    pub round_trips: u64,
    /// Calls of the script repeated with its text, because the store did not know it.
    pub repeated: u64,
    /// Calls of the script that a node of a cluster redirected.
    pub redirected: u64,
    /// Charges of requests that were taken back: denied elsewhere, or decided without the store.
    pub undone: u64,
    /// Those that could not be taken back.
    pub not_undone: u64,
    /// Calls of the script by number of decisions: see [`BATCH_BOUNDS`].
    pub batches: [u64; BATCH_BOUNDS.len() + 1],
    /// Calls of the scripts with a response, by its time: see [`ROUND_TRIP_BOUNDS`].
    pub round_trip_buckets: [u64; ROUND_TRIP_BOUNDS.len() + 1],
    /// Sum of these times, in nanoseconds.
    pub round_trip_nanos: u64,
    /// Replicas of all nodes, when last known.
    pub replicas: u64,
    /// Bytes that the replica furthest behind its node has not received, when last known.
    pub replication_lag_bytes: u64,
    /// Seconds by which the store's clock is ahead of this server's, when last known.
    pub clock_offset: f64,
}

impl Counts {
    pub(super) fn decided(&self, result: &Result<Verdict, Failure>) {
        add(match result {
            Ok(_) => &self.verdicts,
            Err(Failure::Unavailable) => &self.unavailable,
            Err(Failure::Timeout) => &self.timeouts,
            Err(Failure::Failed | Failure::Learning | Failure::Damaged | Failure::TooLarge) => &self.failed,
        });
    }

    pub(super) fn disagreed(&self) {
        add(&self.disagreements);
    }

    pub(super) fn became_unavailable(&self) {
        add(&self.outages);
    }

    pub(super) fn sent(&self, decisions: usize) {
        add(&self.round_trips);
        let class = BATCH_BOUNDS.iter().position(|&bound| decisions as u64 <= bound);
        add(&self.batches[class.unwrap_or(BATCH_BOUNDS.len())]);
    }

    /// Counts a response, which took this long.
    pub(super) fn responded(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = ROUND_TRIP_BOUNDS.iter().position(|&bound| micros <= bound);
        add(&self.round_trip_buckets[bucket.unwrap_or(ROUND_TRIP_BOUNDS.len())]);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(super) fn set_replication(&self, replicas: u64, lag_bytes: u64) {
        self.replicas.store(replicas, Ordering::Relaxed);
        self.replication_lag_bytes.store(lag_bytes, Ordering::Relaxed);
    }

    pub(super) fn set_clock_offset(&self, seconds: f64) {
        self.clock_offset.store(seconds.to_bits(), Ordering::Relaxed);
    }

    pub(super) fn repeated(&self) {
        add(&self.repeated);
    }

    pub(super) fn redirected(&self) {
        add(&self.redirected);
    }

    pub(super) fn undone(&self, is_done: bool) {
        add(&self.undone[usize::from(is_done)]);
    }

    /// The figures now.
    pub fn now(&self) -> CountsNow {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CountsNow {
            verdicts: read(&self.verdicts),
            unavailable: read(&self.unavailable),
            timeouts: read(&self.timeouts),
            failed: read(&self.failed),
            disagreements: read(&self.disagreements),
            outages: read(&self.outages),
            round_trips: read(&self.round_trips),
            repeated: read(&self.repeated),
            redirected: read(&self.redirected),
            undone: read(&self.undone[1]),
            not_undone: read(&self.undone[0]),
            batches: std::array::from_fn(|class| read(&self.batches[class])),
            round_trip_buckets: std::array::from_fn(|bucket| read(&self.round_trip_buckets[bucket])),
            round_trip_nanos: read(&self.round_trip_nanos),
            replicas: read(&self.replicas),
            replication_lag_bytes: read(&self.replication_lag_bytes),
            clock_offset: f64::from_bits(read(&self.clock_offset)),
        }
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
