//! The thread that writes a snapshot at every interval, and a last one when it is stopped.

use super::{Pass, RestoreFigures, Writer, disk::DiskError};
use parking_lot::Mutex;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};
use tidegate_core::{clock::Clock, limit::Timestamp, limiter::Limiter};
use tidegate_threads::{BackgroundThread, Priority, StartError};

/// Figures of the task, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct SnapshotFigures {
    /// Snapshots written.
    pub passes: u64,
    /// Snapshots that failed.
    pub failures: u64,
    /// Bytes of all records written.
    pub bytes: u64,
    /// Time of the last snapshot; none before the first.
    pub last_at: Option<Timestamp>,
    /// Duration of the last snapshot.
    pub last_took: Duration,
    /// The restore before the first snapshot.
    pub restore: RestoreFigures,
}

/// The figures of a running task.
#[derive(Debug, Default)]
pub struct SnapshotCounts(Mutex<SnapshotFigures>);

impl SnapshotCounts {
    /// The figures so far.
    pub fn figures(&self) -> SnapshotFigures {
        *self.0.lock()
    }
}

/// The running task.
pub struct SnapshotTask {
    stop: mpsc::Sender<()>,
    /// The result of the last snapshot.
    finished: mpsc::Receiver<Result<(), DiskError>>,
    counts: Arc<SnapshotCounts>,
    progress: Arc<AtomicU64>,
    timeout: Duration,
}

/// The state of the thread.
struct Work {
    writer: Writer,
    limiter: Arc<Limiter>,
    clock: Arc<dyn Clock>,
    counts: Arc<SnapshotCounts>,
}

impl SnapshotTask {
    /// Starts the thread. It writes a snapshot every `interval`, from beginning to beginning. A crash therefore loses at most the hits of
    /// the interval and of one snapshot, or of two snapshots if they take longer than the interval.
    pub fn start(
        writer: Writer,
        limiter: &Arc<Limiter>,
        clock: &Arc<dyn Clock>,
        interval: Duration,
    ) -> Result<Self, StartError> {
        let (stop, stopped) = mpsc::channel();
        let (finish, finished) = mpsc::sync_channel(1);
        let figures = SnapshotFigures { restore: writer.restore, ..SnapshotFigures::default() };
        let counts = Arc::new(SnapshotCounts(Mutex::new(figures)));
        let (progress, timeout) = (Arc::clone(&writer.progress), writer.timeout);
        let mut work = Work {
            writer,
            limiter: Arc::clone(limiter),
            clock: Arc::clone(clock),
            counts: Arc::clone(&counts),
        };
        let run = move || {
            let mut wait = interval;
            while stopped.recv_timeout(wait) == Err(mpsc::RecvTimeoutError::Timeout) {
                wait = work.snapshot_and_wait(interval);
            }
            let result = work.snapshot();
            // Unlocks the directory before it sends the result: another process may start then.
            drop(work);
            let _ = finish.send(result);
        };
        BackgroundThread::start("snapshots", Priority::Full, run)?;
        Ok(Self { stop, finished, counts, progress, timeout })
    }

    /// The figures of the task.
    pub fn counts(&self) -> &Arc<SnapshotCounts> {
        &self.counts
    }

    /// Writes a last snapshot and ends. Call it when nothing is decided any more. An error means that what was counted since the last
    /// success is lost.
    ///
    /// Returns within the writer's timeout after the last progress, even if the disk never responds, so that the process can end. The
    /// thread is not joined.
    pub fn finish(self) -> Result<(), DiskError> {
        drop(self.stop);
        let mut seen = self.progress.load(Ordering::Relaxed);
        loop {
            let problem = match self.finished.recv_timeout(self.timeout) {
                Ok(result) => return result,
                Err(mpsc::RecvTimeoutError::Disconnected) => "the snapshot thread panicked".to_owned(),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let now = self.progress.load(Ordering::Relaxed);
                    if now != seen {
                        seen = now;
                        continue;
                    }
                    format!("no progress within {:?}; given up", self.timeout)
                }
            };
            self.counts.0.lock().failures += 1;
            let source = io::Error::new(io::ErrorKind::TimedOut, problem);
            return Err(DiskError {
                operation: "write the last snapshot to",
                path: "the data directory".into(),
                source,
            });
        }
    }
}

impl Work {
    /// Writes a snapshot. Returns the wait until the next one. A failure is logged and counted; the next snapshot may succeed.
    fn snapshot_and_wait(&mut self, interval: Duration) -> Duration {
        let began = self.clock.now();
        let _ = self.snapshot();
        interval.saturating_sub(self.clock.now().since(began))
    }

    fn snapshot(&mut self) -> Result<(), DiskError> {
        let started = self.clock.now();
        let rules = self.limiter.rules();
        let written = self.writer.pass(self.limiter.store(), rules.limits(), &*self.clock);
        let ended = self.clock.now();
        let mut figures = self.counts.0.lock();
        match written {
            Ok(Pass { afresh, pages, counters, bytes }) => {
                let took = ended.since(started);
                figures.passes += 1;
                figures.bytes += bytes;
                (figures.last_at, figures.last_took) = (Some(ended), took);
                let began_nanos = started.as_nanos();
                tracing::debug!(afresh, pages, counters, bytes, began_nanos, ?took, "snapshot written");
                Ok(())
            }
            Err(error) => {
                figures.failures += 1;
                tracing::error!(%error, "snapshot failed; still serving; the next attempt writes a full snapshot");
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SimulatedDisk, start_simulated};
    use std::sync::atomic::AtomicU64;
    use tidegate_core::{
        rules::{LoadOptions, RuleSet},
        store::{OnFull, StoreSettings},
    };

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A clock that advances by half an hour at each reading.
    struct Hasty(AtomicU64);

    impl Clock for Hasty {
        fn now(&self) -> Timestamp {
            let half_hours = self.0.fetch_add(1, Ordering::Relaxed);
            Timestamp::from_millis(1_700_000_000_000 + half_hours * 1_800_000)
        }
    }

    /// The interval was counted from the end of the snapshot before, so that the oldest lost hits were older by the snapshot's duration.
    #[test]
    fn a_snapshot_begins_an_interval_after_the_beginning_of_the_one_before() {
        let build = |seed| {
            let rules = RuleSet::parse(&[], &LoadOptions::default()).expect("no rules are valid");
            Limiter::new(rules, StoreSettings { seed, counters_max: 9, on_full: OnFull::Deny }, false)
        };
        let seed = tidegate_core::store::Seed::from_bytes([1; 16]);
        let now = Timestamp::from_millis(1_700_000_000_000);
        let started = start_simulated(&SimulatedDisk::default(), seed, build, now);
        let (limiter, writer, _) = started.unwrap_or_else(|error| panic!("{error}"));
        let clock: Arc<dyn Clock> = Arc::new(Hasty(AtomicU64::new(0)));
        let mut work = Work { writer, limiter: Arc::new(limiter), clock, counts: Arc::default() };
        // By this clock, each snapshot takes at least an hour.
        assert_eq!(work.snapshot_and_wait(HOUR), Duration::ZERO);
        assert_eq!(work.snapshot_and_wait(3 * HOUR), 3 * HOUR - work.counts.figures().last_took - HOUR);
    }
}
