//! Events of the operating system about files.

use super::{
    message::{Event, Message},
    snapshot::{directories, files},
};
use notify::{
    EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode, ModifyKind},
};
use std::{
    collections::{BTreeSet, HashSet},
    path::PathBuf,
    sync::mpsc,
};
use tidegate_core::rules::RuleFilePaths;

/// The most directories that are watched. If there are more, occasional looks cost less.
const DIRECTORIES_MAX: usize = 1_024;

/// Receives events of the directories of some paths.
pub(super) struct Events {
    watcher: RecommendedWatcher,
    watched: BTreeSet<PathBuf>,
    /// The files of the paths, under every name that events may have for them. Their directories also contain other files, such as logs.
    files: HashSet<PathBuf>,
    /// Files that were written to and not closed since.
    being_written: HashSet<PathBuf>,
}

impl Events {
    /// Sends the events of these paths. None if the operating system does not offer events.
    pub(super) fn new(sender: &mpsc::Sender<Message>, paths: &RuleFilePaths) -> Option<Self> {
        let sender = sender.clone();
        let watcher = notify::recommended_watcher(move |event: Event| {
            if is_change(&event) {
                // The watch may have ended.
                let _ = sender.send(Message::Event(event));
            }
        });
        let watcher = watcher.map_err(|error| tracing::warn!(%error, "no file events; polling instead"));
        let mut events = Self {
            watcher: watcher.ok()?,
            watched: BTreeSet::new(),
            files: HashSet::new(),
            being_written: HashSet::new(),
        };
        events.watch(paths).then_some(events)
    }

    /// Watches the current directories of these paths. False if that is not possible.
    pub(super) fn watch(&mut self, paths: &RuleFilePaths) -> bool {
        let wanted = directories(paths);
        self.files = files(paths);
        for former in self.watched.difference(&wanted) {
            // Fails if the directory no longer exists, which is likely.
            let _ = self.watcher.unwatch(former);
        }
        self.watched.clear();
        if wanted.len() > DIRECTORIES_MAX {
            tracing::warn!(
                directories = wanted.len(),
                "too many directories for file events; polling instead"
            );
            return false;
        }
        for directory in wanted {
            // Watches each directory again, as another directory may have taken its name.
            match self.watcher.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => _ = self.watched.insert(directory),
                Err(error) if is_missing(&error) => {}
                Err(error) => {
                    let directory = directory.display();
                    tracing::warn!(%error, %directory, "no file events; polling instead");
                    return false;
                }
            }
        }
        true
    }

    /// Notes which files are being written.
    pub(super) fn note(&mut self, event: &Event) {
        let Ok(event) = event else { return };
        let paths = event.paths.iter().cloned();
        match event.kind {
            EventKind::Modify(ModifyKind::Data(_)) => {
                self.being_written.extend(paths.filter(|path| self.files.contains(path)));
            }
            EventKind::Access(_) | EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) => {
                paths.for_each(|path| _ = self.being_written.remove(&path));
            }
            _ => {}
        }
    }

    /// Whether a file was written to and has not been closed since.
    pub(super) fn are_files_being_written(&self) -> bool {
        !self.being_written.is_empty()
    }

    /// Forgets files that are open for writing, as they may never be closed.
    pub(super) fn forget_writers(&mut self) {
        self.being_written.clear();
    }
}

/// Whether an event may mean a change. Opening and reading are no changes: looking at the files does both.
fn is_change(event: &Event) -> bool {
    match event {
        Ok(event) => match event.kind {
            EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
            _ => true,
        },
        Err(_) => true,
    }
}

fn is_missing(error: &notify::Error) -> bool {
    match &error.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(error) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}
