//! Background threads. Each has a name, a priority, and its own runtime if its work is asynchronous.
//!
//! A [`BackgroundThread`] runs until its work is done. Its owner may wait for that; if the owner drops it, it still runs on. A
//! [`StoppableThread`] ends when it is dropped. A panic ends only its own thread, and the log has the thread's name.

mod priority;
mod stoppable;

pub use priority::{Priority, Yields, run_at_low_priority};
pub use stoppable::StoppableThread;

use std::{
    io,
    panic::resume_unwind,
    sync::{
        Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle, Thread},
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};

/// A thread beside those that decide.
#[derive(Debug)]
pub struct BackgroundThread {
    thread: JoinHandle<()>,
    /// Receives nothing. Disconnected when the work has ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

/// A thread or its runtime cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the thread {name}: {source}")]
pub struct StartError {
    name: String,
    source: io::Error,
}

impl From<StartError> for io::Error {
    fn from(error: StartError) -> Self {
        Self::new(error.source.kind(), error)
    }
}

/// A runtime for one thread, with sockets and timers.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

impl BackgroundThread {
    /// Starts a thread with this work.
    pub fn start(
        name: impl Into<String>,
        priority: Priority,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<Self, StartError> {
        let (alive, ended) = mpsc::channel();
        let name = name.into();
        let end = End { name: name.clone(), _alive: alive };
        let run = move || {
            let _end = end;
            priority.apply();
            work();
        };
        match thread::Builder::new().name(name.clone()).spawn(run) {
            Ok(thread) => Ok(Self { thread, ended: Mutex::new(ended) }),
            Err(source) => Err(StartError { name, source }),
        }
    }

    /// Starts a thread with asynchronous work, and a runtime for it.
    pub fn start_async(
        name: &str,
        priority: Priority,
        work: impl AsyncFnOnce() + Send + 'static,
    ) -> Result<Self, StartError> {
        let runtime = runtime().map_err(|source| StartError { name: name.to_owned(), source })?;
        Self::start_on(runtime, name, priority, work)
    }

    /// Starts a thread with asynchronous work on this runtime.
    pub fn start_on(
        runtime: Runtime,
        name: &str,
        priority: Priority,
        work: impl AsyncFnOnce() + Send + 'static,
    ) -> Result<Self, StartError> {
        Self::start(name, priority, move || runtime.block_on(work()))
    }

    /// The thread, for unparking.
    pub fn handle(&self) -> &Thread {
        self.thread.thread()
    }

    /// Waits for its end.
    pub fn join(self) {
        // A panic was logged when it happened, and does not matter here.
        let _ = self.thread.join();
    }

    /// Waits for its end, at most for `time`. Returns whether it has ended. If not, it ends with the process.
    pub fn join_within(self, time: Duration) -> bool {
        let ended = self.ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        ended.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
    }

    /// Waits for its end. If it panicked, the caller panics.
    pub fn join_or_panic(self) {
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    }
}

/// Dropped when the work of a thread ends, also by a panic.
struct End {
    name: String,
    _alive: mpsc::Sender<()>,
}

impl Drop for End {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!(
                thread = self.name,
                "a thread panicked; what it does is not done until a restart"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_name_and_its_end_is_awaited() {
        let (name, named) = mpsc::channel();
        let work = async move || {
            tokio::time::sleep(Duration::ZERO).await;
            let _ = name.send(thread::current().name().map(str::to_owned));
        };
        BackgroundThread::start_async("named", Priority::Low, work).expect("a thread").join();
        assert_eq!(named.try_recv(), Ok(Some("named".to_owned())));
    }

    #[test]
    fn a_thread_that_does_not_end_is_awaited_for_a_bounded_time() {
        let (stop, stopped) = mpsc::channel::<()>();
        let start = || BackgroundThread::start("endless", Priority::Full, || ()).expect("a thread");
        let endless = BackgroundThread::start("endless", Priority::Full, move || _ = stopped.recv());
        assert!(!endless.expect("a thread").join_within(Duration::from_millis(1)));
        drop(stop);
        assert!(start().join_within(Duration::from_secs(60)));
    }

    #[test]
    fn a_panic_of_a_thread_is_its_end_and_reaches_only_who_asks_for_it() {
        let panics =
            || BackgroundThread::start("panics", Priority::Full, || panic!("at work")).expect("a thread");
        panics().join();
        assert!(panics().join_within(Duration::from_secs(60)));
        assert!(std::panic::catch_unwind(|| panics().join_or_panic()).is_err());
    }
}
