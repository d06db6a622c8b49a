//! A thread that reads files again when they have changed.

use super::{Wake, Watch, WatchHandle};
use crate::config::ReloadRequests;
use std::{fmt::Display, time::Duration};
use tidegate_threads::{BackgroundThread, Priority, StartError};

/// Interval of a [`Watch`]'s own checks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The running thread.
pub struct WatchThread {
    watch: WatchHandle,
    thread: BackgroundThread,
}

impl WatchThread {
    /// Starts a thread that calls `on_wake` when the files have changed, on request, and about every second while nothing happens.
    ///
    /// `on_wake` returns false if the operating system could not read the files: they are reported again at the next look. Start the watch
    /// before the files are read for the first time, so that no change between the two is missed.
    pub fn start(
        name: &str,
        mut watch: Watch,
        requests: &ReloadRequests,
        mut on_wake: impl FnMut(Wake) -> bool + Send + 'static,
    ) -> Result<Self, StartError> {
        let handle = watch.handle();
        requests.register(handle.clone());
        let run = move || {
            loop {
                match watch.wait(LOOK_INTERVAL) {
                    Wake::Stopped => return,
                    wake if on_wake(wake) => {}
                    _ => watch.forget(),
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

/// The last error of files that are read again. It is logged once, however often it occurs.
#[derive(Debug, Default)]
pub struct LastError(Option<String>);

impl LastError {
    /// Notes the result of an attempt. Returns whether its error is to be logged: it differs from the last, or the attempt was requested.
    pub fn is_to_log<T>(&mut self, wake: Wake, result: &Result<T, impl Display>) -> bool {
        let error = result.as_ref().err().map(ToString::to_string);
        let is_known = error == self.0;
        self.0 = error;
        !is_known || wake == Wake::Requested
    }
}
