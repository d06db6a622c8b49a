//! The feed of files: a thread that reads rule files or files of blocks, when they change or on request, and passes them to the owner.

use super::{
    Config, Feed, ReloadRequests, load, run_by_length,
    watch::{Wake, Watch, WatchHandle, WatchMode, WatchSettings},
};
use std::{sync::Arc, thread, time::Duration};
use tidegate_core::{
    clock::Clock,
    limit::Timestamp,
    rules::{RuleError, RuleErrors, RuleFilePaths, Source},
};
use tidegate_threads::{BackgroundThread, Priority, StartError};

/// Time between two attempts to free what is no longer used.
const FREE_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two attempts while decisions still refer to replaced rules.
const FREE_INTERVAL_SHORT: Duration = Duration::from_millis(50);

/// Time after which files that could not be read are read again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

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
        let files = Files::new(config, (feed, paths), settings, clock);
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

struct Files {
    config: Arc<Config>,
    feed: Feed,
    paths: RuleFilePaths,
    settings: WatchSettings,
    clock: Arc<dyn Clock>,
    /// The logged warnings about files that are not read.
    unread: Vec<RuleError>,
    /// The errors with which the files could not be read last, and when that was.
    unreadable: Option<(RuleErrors, Timestamp)>,
}

impl Files {
    fn new(
        config: Arc<Config>,
        (feed, paths): (Feed, RuleFilePaths),
        settings: WatchSettings,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { config, feed, paths, settings, clock, unread: Vec::new(), unreadable: None }
    }

    fn run(mut self, mut watch: Watch) {
        self.load(false);
        let mut timeout = FREE_INTERVAL;
        loop {
            match watch.wait(timeout) {
                Wake::Stopped => return,
                Wake::Changed => self.load(false),
                Wake::Requested => self.load(true),
                Wake::Idle => self.retry(),
            }
            timeout = if self.config.free_unused() { FREE_INTERVAL_SHORT } else { FREE_INTERVAL };
        }
    }

    fn load(&mut self, is_requested: bool) {
        let mut errors = None;
        let read = || {
            let read = run_by_length(self.config.bytes(), || self.read());
            errors = read.as_ref().err().cloned();
            read
        };
        // `load` logs errors.
        let _ = load(&self.config, self.feed, read, &*self.clock, is_requested);
        let unread = self.paths.unread();
        for warning in unread.iter().filter(|warning| !self.unread.contains(warning)) {
            tracing::warn!("{warning}");
        }
        self.unread = unread;
        self.unreadable = errors.map(|errors| (errors, self.clock.now()));
    }

    /// Loads files that could not be read, unless reading them again has the same errors. The cause may have ended without a change of the
    /// files, for which the watch waits: too many open files, or a file system that is not available.
    fn retry(&mut self) {
        let Some((errors, at)) = &mut self.unreadable else { return };
        let now = self.clock.now();
        if self.settings.mode == WatchMode::Off || now.since(*at) < RETRY_INTERVAL {
            return;
        }
        *at = now;
        let (feed, paths) = (self.feed, &self.paths);
        let read = run_by_length(self.config.bytes(), || read_once(feed, paths));
        if read.as_ref().err() != Some(errors) {
            self.load(false);
        }
    }

    /// The files, once two readings agree: one of them may have been made while a file was being written.
    fn read(&self) -> Result<Vec<Source>, RuleErrors> {
        let read = || read_once(self.feed, &self.paths);
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

fn read_once(feed: Feed, paths: &RuleFilePaths) -> Result<Vec<Source>, RuleErrors> {
    match feed {
        Feed::Blocks => paths.read_blocks(),
        _ => paths.read(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeMap, fs};
    use tidegate_core::{
        clock::ManualClock,
        limiter::Limiter,
        rules::{LoadOptions, RuleSet},
        store::{OnFull, Seed, StoreSettings},
    };

    /// Files that could not be read for want of file descriptors were not read again until they changed or at SIGHUP.
    #[test]
    fn files_that_could_not_be_read_are_in_force_once_they_can_be_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rules.yaml");
        let options = LoadOptions::default();
        let rules = RuleSet::parse(&[], &options).expect("no rules are valid");
        let store =
            StoreSettings { seed: Seed::from_bytes([3; 16]), counters_max: 100, on_full: OnFull::Deny };
        let limiter = Arc::new(Limiter::new(rules, store, false));
        let config = Arc::new(Config::new(limiter, options, BTreeMap::new(), Timestamp::EPOCH));
        let clock = Arc::new(ManualClock::new(Timestamp::EPOCH));
        let feed = (Feed::Files, RuleFilePaths::from(vec![path.clone()]));
        let settings = WatchSettings { settle: Duration::ZERO, ..WatchSettings::default() };
        let mut files = Files::new(Arc::clone(&config), feed, settings, Arc::clone(&clock) as Arc<dyn Clock>);
        let retry_after = |files: &mut Files, wait| {
            clock.advance_to(clock.now().saturating_add(wait));
            files.retry();
            let status = config.status();
            (status.failed, status.rules)
        };
        files.load(false);
        assert_eq!(retry_after(&mut files, RETRY_INTERVAL), (1, 0), "the same errors are no other attempt");
        fs::write(&path, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 5}}]")
            .expect("written");
        assert_eq!(retry_after(&mut files, RETRY_INTERVAL / 2), (1, 0));
        assert_eq!(retry_after(&mut files, RETRY_INTERVAL / 2), (1, 1));
        // Files with errors in their content are read again when they change.
        fs::write(&path, "domain: d\nkey: x").expect("written");
        files.load(false);
        fs::write(&path, "domain: d").expect("written");
        assert_eq!(retry_after(&mut files, RETRY_INTERVAL), (2, 1));
    }
}
