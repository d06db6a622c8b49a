//! The thread that writes a snapshot now and then, and a last one when it is told to stop.

use super::{Pass, Writer, disk::DiskError};
use crate::{clock::Clock, limiter::Limiter};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

/// What the task has done so far, for whoever reports it.
#[derive(Debug, Default)]
pub struct SnapshotCounts {
    passes: AtomicU64,
    failures: AtomicU64,
    bytes: AtomicU64,
    last_at_nanos: AtomicU64,
    last_took_nanos: AtomicU64,
}

impl SnapshotCounts {
    /// Snapshots written.
    pub fn passes(&self) -> u64 {
        self.passes.load(Ordering::Relaxed)
    }

    /// Snapshots that could not be written.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Bytes of all records written.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// When the last snapshot was written, in nanoseconds since the Unix epoch; 0 before the first.
    pub fn last_at_nanos(&self) -> u64 {
        self.last_at_nanos.load(Ordering::Relaxed)
    }

    /// How long the last snapshot took.
    pub fn last_took(&self) -> Duration {
        Duration::from_nanos(self.last_took_nanos.load(Ordering::Relaxed))
    }
}

/// The running task.
pub struct SnapshotTask {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Result<(), DiskError>>,
    counts: Arc<SnapshotCounts>,
}

/// What the thread works with.
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
        let counts = Arc::new(SnapshotCounts::default());
        let mut work = Work {
            writer,
            limiter: Arc::clone(limiter),
            clock: Arc::clone(clock),
            counts: Arc::clone(&counts),
        };
        let thread = std::thread::Builder::new().name("snapshots".into()).spawn(move || {
            while stopped.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
                // Said in the log; the next one may succeed.
                let _ = work.snapshot();
            }
            work.snapshot()
        })?;
        Ok(Self { stop, thread, counts })
    }

    /// What it has done so far.
    pub fn counts(&self) -> &Arc<SnapshotCounts> {
        &self.counts
    }

    /// Writes a last snapshot and ends: call it when nothing is decided any more. An error says that what happened
    /// since the last success is lost.
    pub fn finish(self) -> Result<(), DiskError> {
        drop(self.stop);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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
                tracing::error!(%error, "no snapshot could be written; decisions go on, and the next try writes everything");
                Err(error)
            }
        }
    }
}
