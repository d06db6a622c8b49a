//! The overrides and blocks in force, and the file that keeps them. Changes are made one after the other.
//!
//! Invariant: readers wait for no change, since a change writes a file and builds rules.

use super::overlays::{KeptOverlaysError, OVERLAYS_MAX, OverlayError, Overlays};
use parking_lot::Mutex;
use std::{io, path::PathBuf, sync::Arc};
use tidegate_core::{limit::Timestamp, rules::RuleErrors};

/// The overrides and blocks in force, and their file.
pub(super) struct OverlayStore {
    /// Locked only to read or to replace the pointer.
    current: Mutex<Arc<Overlays>>,
    /// Locked during a whole change.
    file: Mutex<OverlayFile>,
}

/// The file, as far as it is known.
struct OverlayFile {
    /// None if overrides and blocks end with the process.
    path: Option<PathBuf>,
    /// Whether a write failed, so that the file may differ from what is in force.
    is_behind: bool,
    /// Whether the failure is in the log.
    is_logged: bool,
}

impl OverlayStore {
    /// Begins with the content of this file.
    pub(super) fn open(path: Option<PathBuf>) -> Result<Self, KeptOverlaysError> {
        let current = path.as_deref().map(Overlays::open).transpose()?.unwrap_or_default();
        let file = OverlayFile { path, is_behind: false, is_logged: false };
        Ok(Self { current: Mutex::new(Arc::new(current)), file: Mutex::new(file) })
    }

    /// The overrides and blocks in force. Returns at once, also while a change is being written.
    pub(super) fn current(&self) -> Arc<Overlays> {
        Arc::clone(&self.current.lock())
    }

    /// Puts what the file keeps in force, unless it has expired.
    pub(super) fn restore(
        &self,
        now: Timestamp,
        put_in_force: impl FnOnce(&Overlays) -> Result<(), Arc<RuleErrors>>,
    ) {
        let _file = self.file.lock();
        let mut kept = Overlays::clone(&self.current());
        kept.expire(now);
        // First, so that what is listed beside the first decisions has not expired.
        self.replace(kept.clone());
        if kept != Overlays::default() {
            // `put_in_force` logs errors.
            let _ = put_in_force(&kept);
        }
    }

    /// Changes the overrides and blocks: on disk first, so that what is in force survives a restart, then in force, or neither.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut Overlays) -> T,
        put_in_force: impl FnOnce(&Overlays) -> Result<(), Arc<RuleErrors>>,
    ) -> Result<T, OverlayError> {
        let mut file = self.file.lock();
        let current = self.current();
        let mut next = Overlays::clone(&current);
        let changed = change(&mut next);
        if next.overrides.len() > OVERLAYS_MAX || next.blocks.len() > OVERLAYS_MAX {
            return Err(OverlayError::TooMany);
        }
        if next == *current {
            return Ok(changed);
        }
        file.write(&next).map_err(|(path, source)| OverlayError::File { path, source })?;
        if let Err(errors) = put_in_force(&next) {
            // If this fails, `expire` writes it again.
            let _ = file.write(&current);
            return Err(OverlayError::Rules(errors));
        }
        self.replace(next);
        Ok(changed)
    }

    /// Drops expired overrides and blocks, whether the file can be written or not: a start drops what has expired meanwhile. Returns their
    /// ids. Writes the file if the last write failed. Call it every second.
    pub(super) fn expire(
        &self,
        now: Timestamp,
        put_in_force: impl FnOnce(&Overlays) -> Result<(), Arc<RuleErrors>>,
    ) -> Vec<String> {
        let mut file = self.file.lock();
        let current = self.current();
        let mut expired = Vec::new();
        if current.has_expired(now) {
            let mut next = Overlays::clone(&current);
            expired = next.expire(now);
            // `put_in_force` logs errors. They concern rules, which the next second may have changed.
            if put_in_force(&next).is_err() {
                return Vec::new();
            }
            self.replace(next);
            file.is_behind = true;
        }
        if file.is_behind {
            file.write_again(&self.current());
        }
        expired
    }

    fn replace(&self, next: Overlays) {
        *self.current.lock() = Arc::new(next);
    }
}

impl OverlayFile {
    /// Replaces the content. A failed write may have replaced it too.
    fn write(&mut self, overlays: &Overlays) -> Result<(), (PathBuf, io::Error)> {
        if let Some(path) = &self.path {
            self.is_behind = true;
            overlays.write(path).map_err(|error| (path.clone(), error))?;
        }
        self.is_behind = false;
        if std::mem::take(&mut self.is_logged) {
            tracing::info!("the file of overrides and blocks is written again");
        }
        Ok(())
    }

    /// Writes what is already in force. A failure is logged once, until a write succeeds again.
    fn write_again(&mut self, overlays: &Overlays) {
        let Err((path, error)) = self.write(overlays) else { return };
        if !std::mem::replace(&mut self.is_logged, true) {
            let path = path.display();
            tracing::error!(
                %error,
                %path,
                "the file of overrides and blocks cannot be written; they expire nevertheless, and the file is written as soon as it can be"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Stored;
    use std::{fs, sync::mpsc, thread, time::Duration};
    use tidegate_core::rules::{Block, BlockedValues};

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn block(expires: Option<Timestamp>) -> Stored<Block> {
        let values = BlockedValues::of_text("mallory").expect("a value");
        let declared = Block { id: "b".into(), domain: None, key: "user".into(), values, is_in_file: false };
        Stored {
            declared,
            expires_ns: expires.map(Timestamp::as_nanos),
            reason: String::new(),
            actor: String::new(),
            created_ns: 0,
        }
    }

    fn set(expires: Option<Timestamp>) -> impl FnOnce(&mut Overlays) {
        move |overlays| _ = overlays.blocks.insert("b".into(), block(expires))
    }

    /// Decisions of a worker waited for the disk while it served `ListOverrides` during a change.
    #[test]
    fn a_reader_does_not_wait_for_a_change_in_the_middle_of_its_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("overrides.json");
        // Opening it to write waits for a reader.
        let next = path.with_extension("next");
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &next, fifo, rustix::fs::Mode::RWXU, 0).expect("a pipe");
        let store = Arc::new(OverlayStore::open(Some(path)).expect("no file yet"));
        let (changing, is_changing) = mpsc::channel();
        let of_writer = Arc::clone(&store);
        let writer = thread::spawn(move || {
            let change = |overlays: &mut Overlays| {
                set(None)(overlays);
                changing.send(()).expect("the test waits");
            };
            of_writer.change(change, |_| Ok(())).map(drop)
        });
        is_changing.recv().expect("a change begins");
        let (read, is_read) = mpsc::channel();
        let of_reader = Arc::clone(&store);
        thread::spawn(move || read.send(of_reader.current().blocks.len()));
        assert_eq!(is_read.recv_timeout(Duration::from_secs(10)), Ok(0));
        fs::read(&next).expect("the writer's text");
        // A pipe cannot be synchronized with a disk.
        assert!(matches!(writer.join().expect("no panic"), Err(OverlayError::File { .. })));
    }

    #[test]
    fn a_block_that_expired_before_the_start_is_not_listed_once_the_others_are_in_force() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("overrides.json");
        let store = OverlayStore::open(Some(path.clone())).expect("no file yet");
        let two = |overlays: &mut Overlays| {
            overlays.blocks.extend([("b".into(), block(None)), ("c".into(), block(Some(NOW)))]);
        };
        store.change(two, |_| Ok(())).expect("written");
        let started = OverlayStore::open(Some(path)).expect("the file");
        let mut listed = 0;
        started.restore(NOW, |_| {
            listed = started.current().blocks.len();
            Ok(())
        });
        assert_eq!(listed, 1);
    }

    /// A block stayed in force beyond its time, without a word, as long as the disk was full.
    #[test]
    fn a_block_expires_while_its_file_cannot_be_written_and_the_file_follows() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("overrides.json");
        let store = OverlayStore::open(Some(path.clone())).expect("no file yet");
        store.change(set(Some(NOW)), |_| Ok(())).expect("written");
        let is_kept = || fs::read_to_string(&path).expect("a file").contains("mallory");
        assert!(is_kept());
        // A directory in the way of the next content.
        let next = path.with_extension("next");
        fs::create_dir(&next).expect("a directory");
        assert!(matches!(store.change(set(None), |_| Ok(())), Err(OverlayError::File { .. })));
        let mut in_force = None;
        let expired = store.expire(NOW, |overlays| {
            in_force = Some(overlays.clone());
            Ok(())
        });
        assert_eq!((expired, in_force), (vec!["b".to_owned()], Some(Overlays::default())));
        assert!(is_kept() && store.current().blocks.is_empty() && store.file.lock().is_logged);
        fs::remove_dir(&next).expect("removed");
        assert!(store.expire(NOW, |_| panic!("nothing is due")).is_empty());
        assert!(!is_kept() && !store.file.lock().is_logged);
    }
}
