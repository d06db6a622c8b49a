//! One process per data directory: its owner keeps a file locked, with its process id inside.
//!
//! The lock is the operating system's and ends with the process, for whatever reason. The file that remains locks nothing.

use super::disk::DiskError;
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Seek, Write},
    path::Path,
};

/// The lock of a data directory; released when dropped.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

/// The reason why a directory cannot be locked.
#[derive(Debug)]
pub(super) enum LockError {
    /// Another process has locked it; its id, if known.
    Held {
        pid: Option<u32>,
    },
    Disk(DiskError),
}

impl DirectoryLock {
    /// Locks a directory that exists.
    pub(super) fn take(directory: &Path) -> Result<Self, LockError> {
        let path = directory.join("lock");
        let failed = |operation, source| LockError::Disk(DiskError { operation, path: path.clone(), source });
        let mut options = OpenOptions::new();
        // Not truncated when opened: until the lock is taken, it contains the owner's id.
        let file = options.write(true).create(true).truncate(false).open(&path);
        let mut file = file.map_err(|error| failed("open", error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held { pid: owner(&path) });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", error)),
        }
        let mut write_pid = || {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        match write_pid() {
            // The id is only for the message to others. A server must start on a full disk.
            Err(error) if !is_full(&error) => Err(failed("write", error)),
            _ => Ok(Self { _file: file }),
        }
    }

    /// Locks a directory against servers, shared with other readers. Writes nothing. None if no server ever used the directory.
    pub(super) fn share(directory: &Path) -> Result<Option<Self>, LockError> {
        let path = directory.join("lock");
        let failed = |operation, source| LockError::Disk(DiskError { operation, path: path.clone(), source });
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("open", error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Err(LockError::Held { pid: owner(&path) }),
            Err(TryLockError::Error(error)) => Err(failed("lock", error)),
        }
    }
}

/// The id that the owner wrote. None if there was no time or no room for it.
fn owner(lock: &Path) -> Option<u32> {
    fs::read_to_string(lock).unwrap_or_default().trim().parse().ok()
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner_and_a_remaining_file_locks_nothing() {
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
