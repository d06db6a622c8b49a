//! The thread that writes a snapshot at every interval, and a last one when it is stopped.

use super::{Pass, RestoreFigures, Writer, disk::DiskError};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};
use tidegate_core::{clock::Clock, limiter::Limiter};

/// Counts of what the task has done so far, for metrics.
#[derive(Debug, Default)]
pub struct SnapshotCounts {
    passes: AtomicU64,
    failures: AtomicU64,
    bytes: AtomicU64,
    last_at_nanos: AtomicU64,
    last_took_nanos: AtomicU64,
    restore: RestoreFigures,
}

impl SnapshotCounts {
    /// Snapshots written.
    pub fn passes(&self) -> u64 {
        self.passes.load(Ordering::Relaxed)
    }

    /// Snapshots that failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Bytes of all records written.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Time of the last snapshot, in nanoseconds since the Unix epoch; 0 before the first.
    pub fn last_at_nanos(&self) -> u64 {
        self.last_at_nanos.load(Ordering::Relaxed)
    }

    /// The restore before the first snapshot.
    pub fn restore(&self) -> RestoreFigures {
        self.restore
    }

    /// Duration of the last snapshot.
    pub fn last_took(&self) -> Duration {
        Duration::from_nanos(self.last_took_nanos.load(Ordering::Relaxed))
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
    /// Starts the thread: a snapshot every `interval`, counted from the end of the one before.
    pub fn start(
        writer: Writer,
        limiter: &Arc<Limiter>,
        clock: &Arc<dyn Clock>,
        interval: Duration,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let (finish, finished) = mpsc::sync_channel(1);
        let counts = Arc::new(SnapshotCounts { restore: writer.restore(), ..SnapshotCounts::default() });
        let (progress, timeout) = (writer.progress(), writer.timeout());
        let mut work = Work {
            writer,
            limiter: Arc::clone(limiter),
            clock: Arc::clone(clock),
            counts: Arc::clone(&counts),
        };
        std::thread::Builder::new().name("snapshots".into()).spawn(move || {
            while stopped.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
                // A failure is logged and counted; the next one may succeed.
                let _ = work.snapshot();
            }
            let result = work.snapshot();
            // Unlocks the directory before the end is known: another process may start then.
            drop(work);
            let _ = finish.send(result);
        })?;
        Ok(Self { stop, finished, counts, progress, timeout })
    }

    /// Counts of what it has done so far.
    pub fn counts(&self) -> &Arc<SnapshotCounts> {
        &self.counts
    }

    /// Writes a last snapshot and ends: to be called when nothing is decided any more. An error means that what was
    /// counted since the last success is lost.
    ///
    /// Returns within the writer's timeout after the last sign of progress, even if the disk never answers: the process
    /// can end then. The thread is not joined.
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
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
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
    fn snapshot(&mut self) -> Result<(), DiskError> {
        let started = self.clock.now();
        let rules = self.limiter.rules();
        let written = self.writer.pass(self.limiter.store(), rules.limits(), &*self.clock);
        let ended = self.clock.now();
        let counts = &self.counts;
        match written {
            Ok(Pass { afresh, pages, counters, bytes }) => {
                let took = ended.since(started);
                counts.passes.fetch_add(1, Ordering::Relaxed);
                counts.bytes.fetch_add(bytes, Ordering::Relaxed);
                counts.last_at_nanos.store(ended.as_nanos(), Ordering::Relaxed);
                counts.last_took_nanos.store(took.as_nanos() as u64, Ordering::Relaxed);
                let began_nanos = started.as_nanos();
                tracing::debug!(afresh, pages, counters, bytes, began_nanos, ?took, "snapshot written");
                Ok(())
            }
            Err(error) => {
                counts.failures.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "snapshot failed; still serving; the next attempt writes a full snapshot");
                Err(error)
            }
        }
    }
}
