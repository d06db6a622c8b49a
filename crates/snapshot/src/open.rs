//! Starting with a data directory: it is locked, read and restored, or refused with a remedy.

use super::{
    Progress, ReadError, RestoreError, Restored, Writer,
    disk::{self, DiskError},
    lock::{DirectoryLock, LockError},
    restore::restore,
};
use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};
use tidegate_core::{limit::Timestamp, limiter::Limiter, store::Seed};

/// Action on a snapshot that is damaged or of a newer format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnBadSnapshot {
    /// Do not start.
    #[default]
    Refuse,
    /// Move it aside and start with no counters.
    Discard,
}

/// The reason why a server cannot start with a data directory.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses it.
    #[error("{} is in use by {}: stop that process, or choose another directory", directory.display(), owner(*pid))]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// The other process's id, if known.
        pid: Option<u32>,
    },
    /// It cannot be accessed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The snapshot cannot be read.
    #[error("the snapshot in {} cannot be read: {source}", directory.display())]
    Read {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        source: ReadError,
    },
    /// The snapshot cannot be restored.
    #[error("the snapshot in {} cannot be restored: {source}{}", directory.display(), remedy(source))]
    Restore {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        source: RestoreError,
    },
}

fn owner(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".into(), |pid| format!("process {pid}"))
}

fn remedy(error: &RestoreError) -> &'static str {
    match error {
        RestoreError::Read(ReadError::Damaged(_)) => {
            "; restore the directory from a backup, or start with --on-bad-snapshot discard, which moves it aside"
        }
        _ => "",
    }
}

/// A limiter started from a data directory.
pub struct Started {
    /// The limiter, with the counters of the snapshot.
    pub limiter: Limiter,
    /// Continues the snapshot.
    pub writer: Writer,
    /// The result of restoring.
    pub restored: Restored,
    /// Path to which a bad snapshot was moved.
    pub moved_aside: Option<PathBuf>,
}

/// Starts with a data directory, which is created if it is missing. `build` makes the limiter with the secret of the keys: that of the
/// snapshot, or `fresh_seed` if there is none. Once all rules are in force, [`Limiter::drop_ended_bans`] must follow.
pub fn start(
    directory: &Path,
    on_bad: OnBadSnapshot,
    fresh_seed: Seed,
    mut build: impl FnMut(Seed) -> Limiter,
    now: Timestamp,
    mut progress: impl FnMut(Progress),
) -> Result<Started, OpenError> {
    let lock = lock(directory)?;
    let started = restore(
        disk::of_directory(directory),
        Some(lock),
        fresh_seed.clone(),
        &mut build,
        now,
        &mut progress,
    );
    let (restored, moved_aside) = match started {
        Err(RestoreError::Read(error @ (ReadError::Damaged(_) | ReadError::Newer(_))))
            if on_bad == OnBadSnapshot::Discard =>
        {
            let lock = self::lock(directory)?;
            let aside = move_aside(directory, now)?;
            tracing::error!(%error, moved_to = %aside.display(), "the snapshot cannot be read; moved aside, starting without counters");
            (
                restore(disk::of_directory(directory), Some(lock), fresh_seed, build, now, progress),
                Some(aside),
            )
        }
        restored => (restored, None),
    };
    let (limiter, writer, restored) =
        restored.map_err(|source| OpenError::Restore { directory: directory.into(), source })?;
    Ok(Started { limiter, writer, restored, moved_aside })
}

/// Creates the directory if missing, and locks it.
pub(super) fn lock(directory: &Path) -> Result<DirectoryLock, OpenError> {
    // It may contain values of requests.
    let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    created.map_err(|source| DiskError {
        operation: "make the data directory",
        path: directory.into(),
        source: match source.kind() {
            io::ErrorKind::AlreadyExists => io::Error::new(source.kind(), "a file has this name"),
            _ => source,
        },
    })?;
    if let Some(parent) = directory.parent() {
        // A power cut must not lose the directory itself. If its parent cannot be opened, it was not created here.
        let _ = disk::sync(parent);
    }
    DirectoryLock::take(directory).map_err(|error| refused(directory, error))
}

/// Locks the directory against servers, shared with other readers.
pub(super) fn share(directory: &Path) -> Result<Option<DirectoryLock>, OpenError> {
    DirectoryLock::share(directory).map_err(|error| refused(directory, error))
}

fn refused(directory: &Path, error: LockError) -> OpenError {
    match error {
        LockError::Held { pid } => OpenError::InUse { directory: directory.into(), pid },
        LockError::Disk(error) => OpenError::Disk(error),
    }
}

/// Moves everything except the lock into a new directory inside this one.
fn move_aside(directory: &Path, now: Timestamp) -> Result<PathBuf, DiskError> {
    let aside = directory.join(format!("bad-{}", now.as_nanos()));
    let move_all = || -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(&aside)?;
        for entry in fs::read_dir(directory)? {
            let name = entry?.file_name();
            let is_ours =
                name.to_str().is_some_and(|name| name == "manifest" || name.starts_with("generation-"));
            if is_ours {
                fs::rename(directory.join(&name), aside.join(&name))?;
            }
        }
        Ok(())
    };
    move_all().map_err(|source| DiskError {
        operation: "move the bad snapshot to",
        path: aside.clone(),
        source,
    })?;
    Ok(aside)
}
