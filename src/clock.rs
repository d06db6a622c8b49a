//! Where time comes from. Everything else takes time as an argument.

use crate::limit::Timestamp;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Instant, SystemTime},
};

/// A source of time. It never runs backwards within a process.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock: the wall clock read once at the start, carried on by the monotonic clock.
///
/// Setting the machine's wall clock while the process runs changes nothing here: no window jumps.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
    started_at: Timestamp,
}

impl SystemClock {
    /// Reads the wall clock, for the only time.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the OS clock")]
    pub fn new() -> Self {
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let nanos = u64::try_from(epoch.as_nanos()).unwrap_or(u64::MAX);
        Self { started: Instant::now(), started_at: Timestamp::from_nanos(nanos) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.started_at.saturating_add_nanos(elapsed)
    }
}

/// A clock that moves when told to, for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Stands at `start`.
    pub fn new(start: Timestamp) -> Self {
        Self(AtomicU64::new(start.as_nanos()))
    }

    /// Moves the hands forward to `now`, or leaves them where they are if that is in the past.
    pub fn advance_to(&self, now: Timestamp) {
        self.0.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
