//! The feed of rule files: a thread that reads them when they change or on request, and hands them to the owner.

use super::{
    Config, Feed, ReloadRequests,
    watch::{Wake, Watch, WatchHandle, WatchSettings},
};
use crate::{
    clock::Clock,
    rules::{self, RuleChanges, RuleErrors, Source},
};
use std::{
    io,
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between two attempts to free what is not used any more.
const FREE_INTERVAL: Duration = Duration::from_secs(1);
/// The same, while decisions still refer to replaced rules.
const FREE_INTERVAL_SHORT: Duration = Duration::from_millis(50);

/// Added to the nice value of the thread: where cores are scarce, decisions have them first.
const NICE: i32 = 10;

/// Readings of the files at most until two agree. Files that change all the time are taken as the last reading has them.
const READINGS_MAX: usize = 20;

/// Names in one log line; the others are counted.
const NAMES_LOGGED_MAX: usize = 20;

/// Errors of one load in the log.
const ERRORS_LOGGED_MAX: usize = 100;

/// The running feed.
pub struct RuleFiles {
    watch: WatchHandle,
    thread: JoinHandle<()>,
}

impl RuleFiles {
    /// Reads the files once more, since they may have changed after the start, and from then on when they change.
    pub fn start(
        config: &Arc<Config>,
        paths: Vec<PathBuf>,
        settings: WatchSettings,
        clock: &Arc<dyn Clock>,
        requests: &ReloadRequests,
    ) -> io::Result<Self> {
        let (config, clock) = (Arc::clone(config), Arc::clone(clock));
        let watch = Watch::new(paths.clone(), settings);
        let handle = watch.handle();
        requests.register(handle.clone());
        let feed = Files { config, paths, settings, clock };
        let thread = thread::Builder::new().name("rules".into()).spawn(move || feed.run(watch))?;
        Ok(Self { watch: handle, thread })
    }

    /// Ends the thread; a load that is under way is finished.
    pub fn stop(self) {
        self.watch.stop();
        // A panic was reported where it occurred.
        let _ = self.thread.join();
    }
}

struct Files {
    config: Arc<Config>,
    paths: Vec<PathBuf>,
    settings: WatchSettings,
    clock: Arc<dyn Clock>,
}

impl Files {
    fn run(self, mut watch: Watch) {
        // On Linux a priority belongs to a thread. Without it, building rules competes with decisions.
        let _ = rustix::process::setpriority_process(None, NICE);
        self.load(false);
        let mut timeout = FREE_INTERVAL;
        loop {
            match watch.wait(timeout) {
                Wake::Stopped => return,
                Wake::Changed => self.load(false),
                Wake::Requested => self.load(true),
                Wake::Idle => {}
            }
            timeout = if self.config.free_unused() { FREE_INTERVAL_SHORT } else { FREE_INTERVAL };
        }
    }

    fn load(&self, is_requested: bool) {
        let started = self.clock.now();
        let generation = self.config.status().generation;
        let result = match self.read() {
            Ok(sources) => self.config.replace(Feed::Files, sources, self.clock.now()),
            Err(errors) => Err(self.config.failed(Feed::Files, errors, self.clock.now())),
        };
        let status = self.config.status();
        match result {
            Ok(changes) if status.generation != generation => {
                let took = self.clock.now().since(started);
                let RuleChanges { added, removed, changed } = &changes;
                let [added, removed, changed] = [added, removed, changed].map(|names| listed(names));
                let (generation, rules, limits) = (status.generation, status.rules, status.limits);
                tracing::info!(generation, rules, limits, added, removed, changed, ?took, "rules reloaded");
            }
            Ok(_) if is_requested => tracing::info!(generation, "rules unchanged"),
            Ok(_) => {}
            Err(errors) => log_errors(&errors, generation),
        }
    }

    /// The files, once two readings agree: one of them may have been made while a file was being written.
    fn read(&self) -> Result<Vec<Source>, RuleErrors> {
        let mut sources = rules::read(&self.paths);
        for _ in 1..READINGS_MAX {
            thread::sleep(self.settings.settle / 4);
            let again = rules::read(&self.paths);
            if again == sources {
                break;
            }
            sources = again;
        }
        sources
    }
}

fn log_errors(errors: &RuleErrors, generation: u64) {
    let count = errors.iter().count();
    tracing::error!(errors = count, generation, "rules not reloaded; those in force stay");
    for error in errors.iter().take(ERRORS_LOGGED_MAX) {
        tracing::error!("{error}");
    }
    if count > ERRORS_LOGGED_MAX {
        tracing::error!("{} more errors; `tidegate check` prints all", count - ERRORS_LOGGED_MAX);
    }
}

/// `edge: a, edge: b and 3 more`.
fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMES_LOGGED_MAX)].join(", ");
    match names.len().saturating_sub(NAMES_LOGGED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_names_are_cut() {
        let names = |count: usize| (0..count).map(|number| format!("d: {number}")).collect::<Vec<_>>();
        assert_eq!(listed(&names(0)), "");
        assert_eq!(listed(&names(2)), "d: 0, d: 1");
        assert!(listed(&names(30)).ends_with("d: 19 and 10 more"));
    }
}
