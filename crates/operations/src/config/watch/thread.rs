//! A thread that reads files again when they have changed.

use super::{Wake, Watch, WatchHandle, WatchSettings};
use crate::config::ReloadRequests;
use std::{path::PathBuf, time::Duration};
use tidegate_core::rules::RuleFilePaths;
use tidegate_threads::{BackgroundThread, Priority, StartError};

/// Interval of a [`Watch`]'s own checks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The running thread.
pub struct WatchThread {
    watch: WatchHandle,
    thread: BackgroundThread,
}

impl WatchThread {
    /// Starts a thread that calls `reload` when the files have changed, and on request.
    pub fn start(
        name: &str,
        paths: Vec<PathBuf>,
        settings: WatchSettings,
        requests: &ReloadRequests,
        reload: impl Fn() + Send + 'static,
    ) -> Result<Self, StartError> {
        let mut watch = Watch::new(RuleFilePaths { paths, ..RuleFilePaths::default() }, settings);
        let handle = watch.handle();
        requests.register(handle.clone());
        let run = move || {
            loop {
                match watch.wait(LOOK_INTERVAL) {
                    Wake::Stopped => return,
                    Wake::Changed | Wake::Requested => reload(),
                    Wake::Idle => {}
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
