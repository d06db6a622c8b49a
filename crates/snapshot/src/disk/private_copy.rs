//! A copy of a sled database for reading: sled writes to its files even if it only reads.
//!
//! The copy is in the directory for temporary files. Its content is in a file without a name, as a snapshot contains the secret of the
//! keys. The operating system frees such a file whenever the process ends, for whatever reason.

use super::{sled_disk::indexes, space::is_enough_to_read};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, OpenOptionsExt, symlink},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Directories that are tried in this order.
fn places() -> [PathBuf; 2] {
    [std::env::temp_dir(), "/dev/shm".into()]
}

/// The copy. It is removed when dropped.
pub(super) struct PrivateCopy {
    path: PathBuf,
    /// Open while the copy is used: the database in it is a link to this file.
    _content: File,
}

impl PrivateCopy {
    /// Copies the database in a directory.
    pub(super) fn of(database: &Path) -> io::Result<Self> {
        let mut problems = Vec::new();
        for place in places() {
            match Self::within(&place, database) {
                Ok(copy) => return Ok(copy),
                Err(error) => problems.push(format!("in {}: {error}", place.display())),
            }
        }
        let problem = format!(
            "it has to be copied to be read without writing to it, and cannot be: {}; set TMPDIR to a directory with room",
            problems.join(", ")
        );
        Err(io::Error::other(problem))
    }

    fn within(place: &Path, database: &Path) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = place.join(format!("tidegate-read-{}-{number}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        let filled = Self::fill(&path, database);
        if filled.is_err() {
            let _ = fs::remove_dir_all(&path);
        }
        Ok(Self { path, _content: filled? })
    }

    fn fill(path: &Path, database: &Path) -> io::Result<File> {
        let link = path.join("db");
        let mut content =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&link)?;
        fs::remove_file(&link)?;
        io::copy(&mut File::open(database.join("db"))?, &mut content)?;
        if !is_enough_to_read(path)? {
            return Err(io::ErrorKind::StorageFull.into());
        }
        symlink(format!("/proc/{}/fd/{}", std::process::id(), content.as_raw_fd()), &link)?;
        fs::copy(database.join("conf"), path.join("conf")).map(drop).or_else(or_missing)?;
        // Without an index, sled may find no page in a file whose segments it has reused.
        for index in indexes(database)? {
            fs::copy(database.join(&index), path.join(&index))?;
        }
        // Blobs are only read, so that links to those in place suffice.
        DirBuilder::new().mode(0o700).create(path.join("blobs"))?;
        for entry in fs::read_dir(database.join("blobs")).into_iter().flatten() {
            let entry = entry?;
            symlink(fs::canonicalize(entry.path())?, path.join("blobs").join(entry.file_name()))?;
        }
        Ok(content)
    }

    /// The directory to open.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// sled writes this file anew.
fn or_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

impl Drop for PrivateCopy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
