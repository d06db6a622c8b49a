//! A thread that reads files again when they have changed.

use super::{Wake, Watch, WatchHandle};
use crate::config::ReloadRequests;
use std::time::Duration;
use tidegate_threads::{BackgroundThread, Priority, StartError};

/// Interval of a [`Watch`]'s own checks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The running thread.
pub struct WatchThread {
    watch: WatchHandle,
    thread: BackgroundThread,
}

impl WatchThread {
    /// Starts a thread that calls `on_wake` when the files have changed, on request, and about every second while nothing happens. Start the
    /// watch before the files are read for the first time, so that no change between the two is missed.
    pub fn start(
        name: &str,
        mut watch: Watch,
        requests: &ReloadRequests,
        mut on_wake: impl FnMut(Wake) + Send + 'static,
    ) -> Result<Self, StartError> {
        let handle = watch.handle();
        requests.register(handle.clone());
        let run = move || {
            loop {
                match watch.wait(LOOK_INTERVAL) {
                    Wake::Stopped => return,
                    wake => on_wake(wake),
                }
            }
        };
        Ok(Self { watch: handle, thread: BackgroundThread::start(name, Priority::Full, run)? })
    }

    /// Ends the thread.
    pub fn stop(self) {
        self.watch.stop();
        self.thread.join();
    }
}
