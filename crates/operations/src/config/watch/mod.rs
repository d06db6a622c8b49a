//! Watches files and directories, and reports when they have changed and settled. For rules, certificates and tokens.
//!
//! Events of the operating system are only hints. Whether something changed is decided by comparing the disk with its state at the last
//! report. The next look therefore finds a missed event, and an extra event has no effect. This also finds files replaced by rename,
//! symbolic links with a new target (the `..data` of a Kubernetes ConfigMap), and files added to and removed from directories.

mod events;
mod message;
mod snapshot;
mod thread;

pub use thread::{LastError, WatchThread};

use events::Events;
use message::{Event, Message};
use snapshot::FilesSnapshot;
use std::{sync::mpsc, time::Duration};
use tidegate_core::{clock::since_boot, rules::RuleFilePaths};

/// Detection of changed files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum WatchMode {
    /// By events of the operating system, and by occasional checks, for file systems that send none.
    #[default]
    Auto,
    /// By checks at short intervals.
    Poll,
    /// Only on request.
    Off,
}

/// Settings of a [`Watch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchSettings {
    /// Detection of changes.
    pub mode: WatchMode,
    /// Time between two checks without events.
    pub poll_interval: Duration,
    /// Changes are reported once the files have not changed for this long.
    pub settle: Duration,
}

impl Default for WatchSettings {
    fn default() -> Self {
        let (poll_interval, settle) = (Duration::from_secs(2), Duration::from_millis(100));
        Self { mode: WatchMode::default(), poll_interval, settle }
    }
}

/// If there are events, looks are this many poll intervals apart.
const LOOKS_BESIDE_EVENTS: u32 = 5;

/// Changes are reported after this many settle times at the latest, even if files change all the time.
const SETTLES_MAX: u32 = 50;

/// The same number if one of the files is known to be open for writing, so that it may be half written.
const SETTLES_WHILE_WRITTEN_MAX: u32 = 600;

/// The reason why [`Watch::wait`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// Files changed, and are complete as far as is known.
    Changed,
    /// [`WatchHandle::request`] was called.
    Requested,
    /// [`WatchHandle::stop`] was called.
    Stopped,
    /// The time has passed.
    Idle,
}

/// Watches some paths. It has no thread: it works during [`Self::wait`].
pub struct Watch {
    paths: RuleFilePaths,
    settings: WatchSettings,
    messages: mpsc::Receiver<Message>,
    sender: mpsc::Sender<Message>,
    /// None without events, by the settings or the operating system.
    events: Option<Events>,
    /// The files at the last report. None if they are to be reported at the next look, changed or not.
    seen: Option<FilesSnapshot>,
    /// Time since the last look.
    since_look: Duration,
}

/// Wakes the thread that waits for a [`Watch`].
#[derive(Clone, Debug)]
pub struct WatchHandle(mpsc::Sender<Message>);

impl WatchHandle {
    /// Requests a reload, whether files changed or not.
    pub fn request(&self) {
        // The watch may have ended.
        let _ = self.0.send(Message::Request);
    }

    /// Ends the wait.
    pub fn stop(&self) {
        let _ = self.0.send(Message::Stop);
    }
}

impl Watch {
    /// Watches these files and directories, without the hidden files. Their present state counts as reported.
    pub fn new(paths: RuleFilePaths, settings: WatchSettings) -> Self {
        let (sender, messages) = mpsc::channel();
        let events = match settings.mode {
            WatchMode::Auto => Events::new(&sender, &paths),
            WatchMode::Poll | WatchMode::Off => None,
        };
        let seen = Some(FilesSnapshot::of(&paths));
        Self { paths, settings, messages, sender, events, seen, since_look: Duration::ZERO }
    }

    /// A handle to wake the waiting thread.
    pub fn handle(&self) -> WatchHandle {
        WatchHandle(self.sender.clone())
    }

    /// Waits until files have changed and settled, a reload is requested, the watch is stopped, or the time has passed.
    pub fn wait(&mut self, timeout: Duration) -> Wake {
        match self.messages.recv_timeout(timeout) {
            Ok(Message::Stop) => Wake::Stopped,
            Ok(Message::Request) => self.requested(),
            Ok(Message::Event(event)) => {
                self.note(&event);
                self.settle()
            }
            Err(_) if self.is_look_due(timeout) => self.look(),
            Err(_) => Wake::Idle,
        }
    }

    /// Counts the present files as reported.
    fn requested(&mut self) -> Wake {
        self.seen = Some(self.look_anew());
        Wake::Requested
    }

    /// Reports the files at the next look even if they have not changed. The operating system could not read them, as there were too many
    /// open files or a network file system did not respond; or the rules beside which they were refused have changed.
    pub fn forget(&mut self) {
        self.seen = None;
    }

    fn is_look_due(&mut self, waited: Duration) -> bool {
        self.since_look = self.since_look.saturating_add(waited);
        let intervals = if self.events.is_some() { LOOKS_BESIDE_EVENTS } else { 1 };
        let due = self.settings.mode != WatchMode::Off
            && self.since_look >= self.settings.poll_interval * intervals;
        if due {
            self.since_look = Duration::ZERO;
        }
        due
    }

    fn look(&mut self) -> Wake {
        if Some(FilesSnapshot::of(&self.paths)) == self.seen { Wake::Idle } else { self.settle() }
    }

    fn note(&mut self, event: &Event) {
        if let Some(events) = &mut self.events {
            events.note(event);
        }
    }

    /// Waits until two looks a settle time apart agree and no file is known to be open for writing. Waits at most a number of settle times,
    /// since the end of the writing may go unnoticed, and files may change all the time.
    fn settle(&mut self) -> Wake {
        let mut last = self.look_anew();
        for settles in 0..SETTLES_WHILE_WRITTEN_MAX {
            let is_being_written = self.are_files_being_written();
            if settles >= SETTLES_MAX && !is_being_written {
                break;
            }
            if settles == SETTLES_MAX {
                let wait_max = self.settings.settle * SETTLES_WHILE_WRITTEN_MAX;
                tracing::warn!(
                    ?wait_max,
                    "a changed file is still open for writing; it is read when it is closed, or after wait_max, or at SIGHUP"
                );
            }
            if let Some(wake) = self.receive_for(self.settings.settle) {
                return wake;
            }
            let next = self.look_anew();
            let is_settled = next == last;
            last = next;
            if is_settled && !self.are_files_being_written() {
                break;
            }
        }
        if let Some(events) = &mut self.events {
            events.forget_writers();
        }
        let last = Some(last);
        let changed = last != self.seen;
        self.seen = last;
        if changed { Wake::Changed } else { Wake::Idle }
    }

    /// Receives messages until the time has passed. Events neither shorten nor prolong it; a request and a stop end it.
    fn receive_for(&mut self, time: Duration) -> Option<Wake> {
        let start = Duration::from_nanos(since_boot());
        let mut left = time;
        loop {
            match self.messages.recv_timeout(left) {
                Ok(Message::Stop) => return Some(Wake::Stopped),
                Ok(Message::Request) => return Some(self.requested()),
                Ok(Message::Event(event)) => self.note(&event),
                Err(_) => return None,
            }
            let passed = Duration::from_nanos(since_boot()).saturating_sub(start);
            left = time.saturating_sub(passed);
            if left.is_zero() {
                return None;
            }
        }
    }

    fn are_files_being_written(&self) -> bool {
        self.events.as_ref().is_some_and(Events::are_files_being_written)
    }

    /// Watches all directories, and then reads the state of the files.
    fn look_anew(&mut self) -> FilesSnapshot {
        let is_lost = self.events.as_mut().is_some_and(|events| !events.watch(&self.paths));
        if is_lost {
            self.events = None;
        }
        FilesSnapshot::of(&self.paths)
    }
}

#[cfg(test)]
mod tests;
