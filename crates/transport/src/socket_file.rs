//! The files of Unix sockets.
//!
//! Invariants: a file is replaced only if its socket refuses connections, and removed with its own listener only. Servers that are started
//! and stopped at once keep to this too, as they lock the directory.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _},
        net::UnixStream as StdUnixStream,
    },
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use tokio::net::UnixListener;

/// Attempts to lock a directory, and the time between two. Servers lock it for less than a millisecond. Another program may not release it.
const LOCK_ATTEMPTS: usize = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The file of a bound socket. Removed when this is dropped, unless the path has another file by then.
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode. No other file has them while the socket is open, so that this must be dropped before the socket.
    identity: (u64, u64),
}

impl SocketFile {
    /// Binds a socket. Replaces a socket file that refuses connections, because a killed process left it behind.
    pub(super) fn bind(path: &Path) -> io::Result<(Self, UnixListener)> {
        let _lock = lock_directory(path);
        let found = fs::symlink_metadata(path).ok().map(|found| found.file_type());
        let is_socket = found.is_some_and(|found| found.is_socket());
        if found.is_some() && !is_socket {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path exists and is not a socket"));
        }
        let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if is_socket && StdUnixStream::connect(path).is_err_and(is_refused) {
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        Ok((Self { path: path.to_owned(), identity: identity(path)? }, listener))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _lock = lock_directory(&self.path);
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // If it cannot be removed, the next start replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Locks the directory of a file until the result is dropped. None if the directory cannot be locked: it may not be readable, its file
/// system may have no locks, or another program may keep it locked. The server starts and stops nevertheless.
fn lock_directory(path: &Path) -> Option<fs::File> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = fs::File::open(directory.unwrap_or(Path::new("."))).ok()?;
    for _ in 0..LOCK_ATTEMPTS {
        match directory.try_lock() {
            Ok(()) => return Some(directory),
            Err(fs::TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(fs::TryLockError::Error(_)) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::net::UnixListener as StdUnixListener, sync::Barrier};

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime")
    }

    /// The stop of a server removed the socket of the server that had replaced it.
    #[test]
    fn a_stop_leaves_the_socket_that_another_server_has_bound_to_the_path() {
        let runtime = runtime();
        let _entered = runtime.enter();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let first = SocketFile::bind(&path).expect("bound");
        fs::remove_file(&path).expect("it is there");
        let second = SocketFile::bind(&path).expect("bound");
        drop(first);
        StdUnixStream::connect(&path).expect("the second server is reached");
        drop(second);
        assert!(!path.exists());
    }

    /// Each found the socket of a killed server, and one removed the new socket of another.
    #[test]
    fn of_servers_that_start_at_once_on_a_socket_left_behind_one_is_reached() {
        const SERVERS: usize = 4;
        let runtime = runtime();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        for _ in 0..200 {
            drop(StdUnixListener::bind(&path).expect("bound"));
            let start = Barrier::new(SERVERS);
            let serve = || {
                let _entered = runtime.enter();
                start.wait();
                SocketFile::bind(&path).ok()
            };
            let servers: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> = (0..SERVERS).map(|_| scope.spawn(serve)).collect();
                threads.into_iter().filter_map(|thread| thread.join().expect("no panic")).collect()
            });
            assert_eq!(servers.len(), 1, "the others are refused");
            StdUnixStream::connect(&path).expect("it is reached");
        }
    }
}
