//! One open sled database: a generation, the space reserved for it, and sled's errors and panics as I/O errors.

use crate::disk::space::{Reservation, Room};
use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::DirBuilderExt as _,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::Duration,
};

/// The name sled gives to the file with its data.
pub(super) const DATABASE_FILE: &str = "db";

/// The name sled gives to the file with its settings, which are all defaults.
const CONFIGURATION_FILE: &str = "conf";

/// Size of sled's own cache. Records are read once and written once.
const CACHE_BYTES: u64 = 8 << 20;

/// Wait before another attempt to open a database that was just closed, and number of attempts.
const RELEASE_WAIT: Duration = Duration::from_millis(5);
const RELEASE_WAITS_MAX: u32 = 2000;

pub(super) struct OpenGeneration {
    pub(super) number: u64,
    /// Path of the open database: in place, or a copy.
    pub(super) path: PathBuf,
    pub(super) database: sled::Db,
    /// Bytes read and written since it was opened.
    pub(super) passed: usize,
    /// The file with the data, and the space reserved in it. None before the first write.
    pub(super) reserved: Option<(File, Reservation)>,
    /// Bytes of records that sled may not have written yet.
    pub(super) unflushed: u64,
}

impl OpenGeneration {
    /// Opens a generation. If a record is to be written, reserves room first: sled writes as soon as it has made its files.
    pub(super) fn open(number: u64, path: PathBuf, room: Option<Room>) -> sled::Result<Self> {
        let mut reserved = None;
        if let Some(room) = room {
            // It contains the secret of the keys, and others may be able to read the data directory.
            DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            let file =
                OpenOptions::new().write(true).create(true).truncate(false).open(path.join(DATABASE_FILE))?;
            let mut reservation = Reservation::default();
            reservation.ensure(&file, room)?;
            reserved = Some((file, reservation));
        }
        let database = open_database(&path)?;
        Ok(Self { number, path, database, passed: 0, reserved, unflushed: 0 })
    }

    /// Reserves room for records that will be appended.
    pub(super) fn reserve(&mut self, room: Room) -> io::Result<()> {
        let (file, reservation) = match &mut self.reserved {
            Some(reserved) => reserved,
            None => {
                let file = OpenOptions::new().write(true).open(self.path.join(DATABASE_FILE))?;
                self.reserved.insert((file, Reservation::default()))
            }
        };
        reservation.ensure(file, Room { record_bytes: self.unflushed + room.record_bytes, ..room })
    }

    pub(super) fn flush(&mut self) -> sled::Result<()> {
        self.database.flush()?;
        self.unflushed = 0;
        Ok(())
    }
}

/// Opens the database once the process has released the lock of the database that it closed before. No other process has the lock: the
/// directory is locked.
fn open_database(path: &Path) -> sled::Result<sled::Db> {
    let mut waits_left = RELEASE_WAITS_MAX;
    loop {
        match try_open_database(path) {
            Err(sled::Error::Io(error)) if waits_left > 0 && is_locked(&error) => {
                waits_left -= 1;
                std::thread::sleep(RELEASE_WAIT);
            }
            Err(error @ sled::Error::Corruption { .. }) => {
                if !remove_newest_index(path)? {
                    return Err(error);
                }
            }
            opened => return opened,
        }
    }
}

/// The names of the index files beside sled's file, from the oldest to the newest. sled reads the newest index, and removes the others once
/// it is complete.
pub(in crate::disk) fn indexes(path: &Path) -> io::Result<Vec<OsString>> {
    let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name()));
    let mut names = names.collect::<io::Result<Vec<OsString>>>()?;
    names.retain(|name| name.to_string_lossy().starts_with("snap."));
    names.sort();
    Ok(names)
}

/// Removes the newest index, which a killed process has not completed, and returns whether there was an index. sled then reads the index
/// before, which it keeps until the newest is complete. Without an index, sled may find no page in a file whose segments it has reused.
fn remove_newest_index(path: &Path) -> io::Result<bool> {
    let Some(newest) = indexes(path)?.pop() else { return Ok(false) };
    fs::remove_file(path.join(newest))?;
    Ok(true)
}

/// Whether sled could not acquire the lock, for which it has no error kind.
fn is_locked(error: &io::Error) -> bool {
    error.to_string().contains("could not acquire lock")
}

fn try_open_database(path: &Path) -> sled::Result<sled::Db> {
    match fs::remove_file(path.join(CONFIGURATION_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    sled::Config::new()
        .path(path)
        .cache_capacity(CACHE_BYTES)
        .mode(sled::Mode::HighThroughput)
        // `sync` makes records durable, all records of a pass together.
        .flush_every_ms(None)
        .open()
}

/// Converts a panic in sled, and sled's own kind of error, into an I/O error. `InvalidData` means that the files are damaged, not the disk.
pub(super) fn guarded<T>(work: impl FnOnce() -> sled::Result<T>) -> io::Result<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(sled::Error::Io(error))) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(io::Error::new(io::ErrorKind::InvalidData, error))
        }
        Ok(Err(sled::Error::Io(error))) => Err(error),
        Ok(Err(error)) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the database panicked on its files; the message is above",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All were removed, so that a start after a kill at that moment found no record.
    #[test]
    fn an_index_that_is_not_complete_is_removed_and_the_one_before_is_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        for name in
            ["snap.00000000000000A0.generating", "snap.0000000000000009", "db", "snap.00000000000000A0"]
        {
            fs::write(directory.path().join(name), "").expect("it can be written");
        }
        assert!(remove_newest_index(directory.path()).expect("it can be removed"));
        assert_eq!(
            indexes(directory.path()).expect("names"),
            ["snap.0000000000000009", "snap.00000000000000A0"]
        );
        for is_left in [true, true, false] {
            assert_eq!(remove_newest_index(directory.path()).expect("it can be removed"), is_left);
        }
    }
}
