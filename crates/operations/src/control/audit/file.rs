//! The file of the audit log: locked, repaired after an interrupted write, and reopened after it was moved.
//!
//! Invariant: between two calls the file ends with a complete line, or `is_torn` is set and nothing is appended.

use super::{
    chain::{AuditEntry, VerifiedChain, verify},
    error::AuditError,
};
use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, BufReader, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

pub(super) struct AuditFile {
    pub(super) path: PathBuf,
    file: File,
    /// Bytes of complete lines.
    length: u64,
    /// Whether a write was cut off and its remains could not be removed.
    is_torn: bool,
}

impl AuditFile {
    /// Opens a log, verifies its chain, and removes an incomplete line at its end.
    pub(super) fn open(
        path: &Path,
        read: impl FnMut(AuditEntry),
    ) -> Result<(Self, VerifiedChain), AuditError> {
        let failed = |source| AuditError::File { path: path.to_owned(), source };
        let other = |reason: String| failed(io::Error::other(reason));
        // The data directory may not exist yet.
        let create = |directory: &Path| DirBuilder::new().recursive(true).mode(0o700).create(directory);
        path.parent().filter(|path| !path.as_os_str().is_empty()).map_or(Ok(()), create).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        // Does not wait for the other end of a pipe.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        let file = options.open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(other("is not a regular file; name one with --audit-log".into()));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(other("another process writes it; give each server a file of its own".into()));
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        let chain = verify(BufReader::new(&file), read).map_err(failed)?;
        let chain =
            chain.map_err(|broken| other(format!("{broken}; move the file away to begin another")))?;
        if chain.torn_bytes > 0 {
            let (bytes, path) = (chain.torn_bytes, path.display());
            tracing::warn!(bytes, %path, "audit log: the last line was cut off; its beginning is removed");
            file.set_len(chain.bytes).map_err(failed)?;
        }
        Ok((Self { path: path.to_owned(), file, length: chain.bytes, is_torn: false }, chain))
    }

    /// Prepares an append: reopens the file if it was deleted, follows a truncation, and removes the remains of a failed write. Returns
    /// whether the file is empty.
    pub(super) fn prepare(&mut self) -> io::Result<bool> {
        if self.is_torn {
            self.file.set_len(self.length)?;
            self.is_torn = false;
        }
        let metadata = self.file.metadata()?;
        if metadata.nlink() == 0 {
            self.reopen()?;
        } else if metadata.len() == 0 {
            // The file was truncated after a copy, as logrotate's copytruncate does.
            self.length = 0;
        } else if metadata.len() != self.length {
            return Err(io::Error::other("another program changed it; move it away and send SIGHUP"));
        }
        Ok(self.length == 0)
    }

    /// Appends complete lines durably. After an error, none of them is in the file.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(lines).and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.length += lines.len() as u64,
            Err(_) => self.is_torn = self.file.set_len(self.length).is_err(),
        }
        written
    }

    /// Opens the file of this name if it is another file now. It is used only if it is empty, and continues the chain.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let (old, new) = (self.file.metadata()?, fs::metadata(&self.path));
        let is_same = |new: fs::Metadata| (new.dev(), new.ino()) == (old.dev(), old.ino());
        if new.is_ok_and(is_same) {
            return Ok(());
        }
        let (next, chain) = Self::open(&self.path, |_| {}).map_err(io::Error::other)?;
        if chain.lines > 0 {
            return Err(io::Error::other("the new file has lines of another log; move it away"));
        }
        *self = next;
        Ok(())
    }
}
