//! A disk with a timeout for writes. They run on a thread, which is abandoned if a write exceeds the timeout.
//!
//! sled 0.34 waits forever if one of its background writes fails at the wrong moment: its logger stores the error without waking the
//! threads that wait for it. A failing device can also block any system call. Neither may prevent the next snapshot, or the end of the
//! process. What always holds:
//!
//! - A write returns within the timeout. If it exceeds the timeout, its thread gets no more work, its permit to replace the manifest is
//!   revoked, and the next operation starts a new thread with a new disk. The generation of an abandoned thread is never written again: the
//!   writer begins a new generation after every error.
//! - At most [`ABANDONED_MAX`] threads are stuck at once. If as many are stuck, every write fails at once.
//! - Reads have no timeout: they happen when a server starts, before anything depends on them.

use super::operations::{Disk, DiskError};
use parking_lot::Mutex;
use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};
use tidegate_threads::{BackgroundThread, Priority, StartError};

/// A stuck thread keeps sled's buffers, about ten megabytes.
const ABANDONED_MAX: usize = 8;

/// Timeout of a write, unless another one is set.
pub(crate) const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// Runs another disk's operations on a thread.
pub(crate) struct DeadlineDisk {
    make: Box<dyn FnMut(Permit) -> Box<dyn Disk> + Send>,
    /// Path of the disk, for errors.
    path: PathBuf,
    timeout: Duration,
    worker: Option<Worker>,
    abandoned: Arc<AtomicUsize>,
}

/// The thread that owns a disk.
struct Worker {
    jobs: mpsc::Sender<Job>,
    permit: Permit,
    /// Set when the thread is abandoned. It counts as stuck until it ends.
    is_abandoned: Arc<AtomicBool>,
}

type Job = Box<dyn FnOnce(&mut dyn Disk) + Send>;

/// Permission to replace the manifest. If an abandoned thread continues later, it must not overwrite a newer manifest.
#[derive(Clone, Default)]
pub(crate) struct Permit {
    is_revoked: Arc<Mutex<bool>>,
}

impl Permit {
    /// Does the work unless the permit is revoked.
    pub(crate) fn with<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let is_revoked = self.is_revoked.lock();
        if *is_revoked {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the write was given up before"));
        }
        work()
    }

    /// Waits up to `patience` for work in progress. If that is still stuck, it is a rename in the operating system, and any later rename in
    /// the same directory waits for it.
    fn revoke(&self, patience: Duration) {
        if let Some(mut is_revoked) = self.is_revoked.try_lock_for(patience) {
            *is_revoked = true;
        }
    }
}

impl DeadlineDisk {
    /// `make` makes a disk on the same directory. It is called again whenever a thread was abandoned.
    pub(crate) fn new(
        path: impl Into<PathBuf>,
        make: impl FnMut(Permit) -> Box<dyn Disk> + Send + 'static,
    ) -> Self {
        Self {
            make: Box::new(make),
            path: path.into(),
            timeout: TIMEOUT_DEFAULT,
            worker: None,
            abandoned: Arc::default(),
        }
    }

    fn error(&self, operation: &'static str, kind: io::ErrorKind, problem: String) -> DiskError {
        DiskError { operation, path: self.path.clone(), source: io::Error::new(kind, problem) }
    }

    fn worker(&mut self, operation: &'static str) -> Result<&Worker, DiskError> {
        if self.worker.is_none() {
            let stuck = self.abandoned.load(Ordering::Relaxed);
            if stuck >= ABANDONED_MAX {
                let problem = format!("{stuck} earlier operations are stuck; restart the server");
                return Err(self.error(operation, io::ErrorKind::TimedOut, problem));
            }
            let permit = Permit::default();
            let disk = (self.make)(permit.clone());
            let worker = Worker::start(disk, permit, Arc::clone(&self.abandoned));
            self.worker = Some(worker.map_err(|error| DiskError {
                operation: "start the snapshot thread for",
                path: self.path.clone(),
                source: error.into(),
            })?);
        }
        Ok(self.worker.as_ref().expect("it was started above"))
    }

    fn run<T: Send + 'static>(
        &mut self,
        operation: &'static str,
        timeout: Option<Duration>,
        work: impl FnOnce(&mut dyn Disk) -> Result<T, DiskError> + Send + 'static,
    ) -> Result<T, DiskError> {
        let (reply, replied) = mpsc::sync_channel(1);
        let job: Job = Box::new(move |disk| drop(reply.send(work(disk))));
        // If the thread has ended, it drops the job, and with it the sender of the reply.
        let _ = self.worker(operation)?.jobs.send(job);
        let result = match timeout {
            Some(timeout) => replied.recv_timeout(timeout),
            None => replied.recv().map_err(RecvTimeoutError::from),
        };
        match result {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => {
                self.abandon();
                let problem = format!("not done within {:?}; given up", timeout.unwrap_or_default());
                Err(self.error(operation, io::ErrorKind::TimedOut, problem))
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.worker = None;
                Err(self.error(operation, io::ErrorKind::Other, "the snapshot thread panicked".into()))
            }
        }
    }

    fn write<T: Send + 'static>(
        &mut self,
        operation: &'static str,
        work: impl FnOnce(&mut dyn Disk) -> Result<T, DiskError> + Send + 'static,
    ) -> Result<T, DiskError> {
        self.run(operation, Some(self.timeout), work)
    }

    fn abandon(&mut self) {
        let Some(worker) = self.worker.take() else { return };
        tracing::warn!(
            directory = %self.path.display(),
            timeout = ?self.timeout,
            "a write to the data directory did not end in time; its thread is abandoned"
        );
        worker.permit.revoke(self.timeout.min(Duration::from_secs(1)));
        worker.is_abandoned.store(true, Ordering::Relaxed);
        self.abandoned.fetch_add(1, Ordering::Relaxed);
        // The thread ends here or later: `worker` has the sender of its jobs.
        drop(worker);
    }
}

impl Worker {
    fn start(
        mut disk: Box<dyn Disk>,
        permit: Permit,
        abandoned: Arc<AtomicUsize>,
    ) -> Result<Self, StartError> {
        let (jobs, received) = mpsc::channel::<Job>();
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_abandoned);
        let run = move || {
            for job in received {
                job(&mut *disk);
            }
            drop(disk);
            if ended.load(Ordering::Relaxed) {
                abandoned.fetch_sub(1, Ordering::Relaxed);
            }
        };
        BackgroundThread::start("snapshot-disk", Priority::Full, run)?;
        Ok(Self { jobs, permit, is_abandoned })
    }
}

impl Disk for DeadlineDisk {
    fn read_manifest(&mut self) -> Result<Option<Vec<u8>>, DiskError> {
        self.run("read", None, |disk| disk.read_manifest())
    }

    fn write_manifest(&mut self, manifest: &[u8]) -> Result<(), DiskError> {
        let manifest = manifest.to_vec();
        self.write("write the manifest of", move |disk| disk.write_manifest(&manifest))
    }

    fn generations(&mut self) -> Result<Vec<u64>, DiskError> {
        self.write("list", |disk| disk.generations())
    }

    fn remove(&mut self, generation: u64) -> Result<(), DiskError> {
        self.write("remove old snapshots from", move |disk| disk.remove(generation))
    }

    fn append(&mut self, generation: u64, number: u64, record: Vec<u8>) -> Result<(), DiskError> {
        self.write("write to", move |disk| disk.append(generation, number, record))
    }

    fn cut(&mut self, generation: u64, from: u64) -> Result<(), DiskError> {
        self.run("write to", None, move |disk| disk.cut(generation, from))
    }

    fn read(&mut self, generation: u64, number: u64) -> Result<Option<Vec<u8>>, DiskError> {
        self.run("read", None, move |disk| disk.read(generation, number))
    }

    fn sync(&mut self, generation: u64) -> Result<(), DiskError> {
        self.write("flush", move |disk| disk.sync(generation))
    }

    fn close(&mut self) {
        if self.worker.is_none() {
            return;
        }
        // If a thread is stuck here, it is abandoned and replaced. What has to be kept is already durable.
        let _ = self.write("close", |disk| {
            disk.close();
            Ok(())
        });
    }

    fn bytes(&mut self) -> Result<u64, DiskError> {
        self.write("measure", |disk| disk.bytes())
    }

    fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }
}

impl Drop for DeadlineDisk {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::clock::{Clock, SystemClock};

    type Manifests = Arc<Mutex<Vec<Vec<u8>>>>;

    /// Blocks in `append` of record 0 until the gate is opened; counts manifests.
    struct Stuck {
        gate: Arc<Mutex<()>>,
        manifests: Manifests,
        permit: Permit,
    }

    impl Disk for Stuck {
        fn read_manifest(&mut self) -> Result<Option<Vec<u8>>, DiskError> {
            Ok(None)
        }
        fn write_manifest(&mut self, manifest: &[u8]) -> Result<(), DiskError> {
            let manifest = manifest.to_vec();
            drop(self.gate.lock());
            let replaced = self.permit.with(|| {
                self.manifests.lock().push(manifest);
                Ok(())
            });
            replaced.map_err(|source| DiskError { operation: "write", path: "memory".into(), source })
        }
        fn generations(&mut self) -> Result<Vec<u64>, DiskError> {
            Ok(Vec::new())
        }
        fn remove(&mut self, _: u64) -> Result<(), DiskError> {
            Ok(())
        }
        fn append(&mut self, _: u64, number: u64, _: Vec<u8>) -> Result<(), DiskError> {
            if number == 0 {
                drop(self.gate.lock());
            }
            Ok(())
        }
        fn cut(&mut self, _: u64, _: u64) -> Result<(), DiskError> {
            Ok(())
        }
        fn read(&mut self, _: u64, _: u64) -> Result<Option<Vec<u8>>, DiskError> {
            Ok(None)
        }
        fn sync(&mut self, _: u64) -> Result<(), DiskError> {
            Ok(())
        }
        fn close(&mut self) {}
        fn bytes(&mut self) -> Result<u64, DiskError> {
            Ok(0)
        }
    }

    fn stuck(timeout: Duration) -> (DeadlineDisk, Arc<Mutex<()>>, Manifests) {
        let (gate, manifests) = (Arc::<Mutex<()>>::default(), Manifests::default());
        let shared = (Arc::clone(&gate), Arc::clone(&manifests));
        let mut disk = DeadlineDisk::new("memory", move |permit| {
            let (gate, manifests) = (Arc::clone(&shared.0), Arc::clone(&shared.1));
            Box::new(Stuck { gate, manifests, permit })
        });
        disk.set_timeout(timeout);
        (disk, gate, manifests)
    }

    fn kind<T>(result: Result<T, DiskError>) -> io::ErrorKind {
        result.err().expect("it fails").source.kind()
    }

    #[test]
    fn a_stuck_write_is_given_up_and_the_next_one_runs() {
        let (mut disk, gate, _) = stuck(Duration::from_millis(20));
        let closed = gate.lock();
        let clock = SystemClock::new();
        let began = clock.now();
        assert_eq!(kind(disk.append(1, 0, Vec::new())), io::ErrorKind::TimedOut);
        assert!(clock.now().since(began) < Duration::from_secs(5));
        disk.set_timeout(Duration::from_secs(60));
        disk.append(2, 1, Vec::new()).expect("a new thread takes over");
        drop(closed);
    }

    #[test]
    fn stuck_threads_are_bounded_and_counted_until_they_end() {
        let (mut disk, gate, _) = stuck(Duration::from_millis(5));
        let closed = gate.lock();
        for _ in 0..ABANDONED_MAX {
            assert_eq!(kind(disk.append(1, 0, Vec::new())), io::ErrorKind::TimedOut);
        }
        let refused = disk.append(1, 1, Vec::new()).expect_err("no further thread is started");
        assert!(refused.to_string().contains("8 earlier operations are stuck"), "{refused}");
        drop(closed);
        while disk.abandoned.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        // A new thread starts within the timeout, even on a loaded machine.
        disk.set_timeout(Duration::from_secs(60));
        disk.append(1, 1, Vec::new()).expect("the stuck threads have ended");
    }

    #[test]
    fn an_abandoned_thread_does_not_replace_a_newer_manifest() {
        let (mut disk, gate, manifests) = stuck(Duration::from_millis(20));
        let closed = gate.lock();
        assert_eq!(kind(disk.write_manifest(b"old")), io::ErrorKind::TimedOut);
        drop(closed);
        disk.set_timeout(Duration::from_secs(10));
        disk.write_manifest(b"new").expect("the gate is open");
        while disk.abandoned.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(*manifests.lock(), [b"new".to_vec()]);
    }
}
