//! One process a data directory: a file that the owner holds locked, with its process id inside.
//!
//! The lock is the operating system's, so that it ends with the process however that ends; the file that stays behind
//! is no obstacle.

use super::disk::DiskError;
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{Seek, Write},
    path::Path,
};

/// The hold on a data directory; ends when dropped.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

/// Why there is no hold.
#[derive(Debug)]
pub(super) enum LockError {
    /// Somebody holds it; their process id, if they had time to write it.
    Held {
        pid: Option<u32>,
    },
    Disk(DiskError),
}

impl DirectoryLock {
    /// Takes hold of a directory that exists.
    pub(super) fn take(directory: &Path) -> Result<Self, LockError> {
        let path = directory.join("lock");
        let failed = |doing, source| LockError::Disk(DiskError { doing, path: path.clone(), source });
        let mut options = OpenOptions::new();
        // Not emptied when opened: it tells the owner's id until it is ours.
        let file = options.write(true).create(true).truncate(false).open(&path);
        let mut file = file.map_err(|error| failed("open", error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = fs::read_to_string(&path).unwrap_or_default();
                return Err(LockError::Held { pid: text.trim().parse().ok() });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", error)),
        }
        let mut write_pid = || {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write_pid().map_err(|error| failed("write", error))?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner_and_a_file_left_behind_is_no_obstacle() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("lock"), "1\n").unwrap();
        let first = DirectoryLock::take(directory.path()).unwrap();
        match DirectoryLock::take(directory.path()) {
            Err(LockError::Held { pid }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(first);
        assert!(DirectoryLock::take(directory.path()).is_ok());
    }
}
