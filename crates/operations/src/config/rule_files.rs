//! The feed of files: a thread that reads rule files or files of blocks, when they change or on request, and passes them to the owner.

use super::{
    Config, Feed, ReloadRequests, RulesStatus, load, run_by_length,
    watch::{Wake, Watch, WatchHandle, WatchSettings},
};
use std::{sync::Arc, thread, time::Duration};
use tidegate_core::{
    clock::Clock,
    rules::{RuleError, RuleErrors, RuleFilePaths, Source},
};
use tidegate_threads::{BackgroundThread, Priority, StartError};

/// Time between two attempts to free what is no longer used.
const FREE_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two attempts while decisions still refer to replaced rules.
const FREE_INTERVAL_SHORT: Duration = Duration::from_millis(50);

/// Time in which an idle thread has to end if a drain has left none.
const WAKE_MAX: Duration = Duration::from_millis(200);

/// The most readings of the files until two agree. If files change all the time, the last reading is used.
const READINGS_MAX: usize = 20;

/// The running feed.
pub struct RuleFiles {
    watch: WatchHandle,
    thread: BackgroundThread,
}

impl RuleFiles {
    /// Reads the files again, as they may have changed since the start, and from then on when they change. The feed is [`Feed::Files`] or
    /// [`Feed::Blocks`].
    pub fn start(
        config: &Arc<Config>,
        (feed, paths): (Feed, RuleFilePaths),
        settings: WatchSettings,
        clock: &Arc<dyn Clock>,
        requests: &ReloadRequests,
    ) -> Result<Self, StartError> {
        let (config, clock) = (Arc::clone(config), Arc::clone(clock));
        let watch = Watch::new(paths.clone(), settings);
        let handle = watch.handle();
        requests.register(handle.clone());
        let name = if feed == Feed::Blocks { "blocks" } else { "rules" };
        let files = Files { config, feed, paths, settings, clock, control_plane: 0, unread: Vec::new() };
        let thread = BackgroundThread::start(name, Priority::Low, move || files.run(watch))?;
        Ok(Self { watch: handle, thread })
    }

    /// Ends the thread. A load in progress is finished within the timeout, or 200 ms if that is longer. Otherwise it ends with the process,
    /// and the rules stay.
    pub fn stop(self, timeout: Duration) {
        self.watch.stop();
        if !self.thread.join_within(timeout.max(WAKE_MAX)) {
            tracing::warn!("stopping without the rules that are being loaded");
        }
    }
}

/// Generation of the rules that a control plane put in force last; 0 if there are none.
fn control_plane(status: &RulesStatus) -> u64 {
    status.by_feed.get(&Feed::Xds).map_or(0, |loads| loads.generation)
}

struct Files {
    config: Arc<Config>,
    feed: Feed,
    paths: RuleFilePaths,
    settings: WatchSettings,
    clock: Arc<dyn Clock>,
    /// Generation of the control plane's rules when the files were loaded last.
    control_plane: u64,
    /// The logged warnings about files that are not read.
    unread: Vec<RuleError>,
}

impl Files {
    fn run(mut self, mut watch: Watch) {
        let (mut is_done, mut timeout) = (self.load(false), FREE_INTERVAL);
        loop {
            if !is_done {
                watch.forget();
            }
            is_done = match watch.wait(timeout) {
                Wake::Stopped => return,
                Wake::Changed => self.load(false),
                Wake::Requested => self.load(true),
                Wake::Idle => !self.are_refused_beside_former(),
            };
            timeout = if self.config.free_unused() { FREE_INTERVAL_SHORT } else { FREE_INTERVAL };
        }
    }

    /// Whether the files were refused, and the control plane has other rules since: the files may be valid beside these.
    fn are_refused_beside_former(&self) -> bool {
        let status = self.config.status();
        status.failing.contains_key(&self.feed) && control_plane(&status) != self.control_plane
    }

    /// Returns whether the files could be read, also if they have errors.
    fn load(&mut self, is_requested: bool) -> bool {
        self.control_plane = control_plane(&self.config.status());
        let mut are_read = true;
        let read = || {
            let read = run_by_length(self.config.bytes(), || self.read());
            are_read = read.is_ok();
            read
        };
        // `load` logs errors.
        let _ = load(&self.config, self.feed, read, &*self.clock, is_requested);
        let unread = self.paths.unread();
        for warning in unread.iter().filter(|warning| !self.unread.contains(warning)) {
            tracing::warn!("{warning}");
        }
        self.unread = unread;
        are_read
    }

    /// The files, once two readings agree: one of them may have been made while a file was being written.
    fn read(&self) -> Result<Vec<Source>, RuleErrors> {
        let read = || match self.feed {
            Feed::Blocks => self.paths.read_blocks(),
            _ => self.paths.read(),
        };
        let mut sources = read();
        for _ in 1..READINGS_MAX {
            thread::sleep(self.settings.settle / 4);
            let again = read();
            if again == sources {
                break;
            }
            sources = again;
        }
        sources
    }
}
