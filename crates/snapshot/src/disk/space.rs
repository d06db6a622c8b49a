//! Space on the disk, reserved before sled writes: sled may wait forever if a background write fails.

use rustix::fs::{FallocateFlags, fallocate, fstatvfs, statvfs};
use std::{fs::File, io, path::Path};

/// Bytes kept free beside the reservation, for the manifest and sled's small files.
const MARGIN_BYTES: u64 = 64 << 10;

/// Bytes that sled may write beside the records: it writes segments of half a megabyte.
const AHEAD_BYTES: u64 = 1 << 20;

/// Number of times that sled may write a record to its file: alone, and with its neighbours when their node is rewritten.
const WRITES_OF_A_RECORD: u64 = 3;

/// Number of records that sled may write to their own files for one appended record: a node has up to 17, is rewritten, and then split into
/// two, which are also written.
const RECORDS_BESIDE: u64 = 34;

/// The sizes of data that will be written.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// Bytes of all records that may not be written yet.
    pub(super) record_bytes: u64,
    /// Bytes of the longest record in the database.
    pub(super) longest_bytes: u64,
}

/// The space reserved for one file, beyond its length.
#[derive(Default)]
pub(super) struct Reservation {
    /// The file's blocks below this offset are allocated.
    until: u64,
}

impl Reservation {
    /// Reserves room to append records. An error of the kind `StorageFull` or `QuotaExceeded` means that there is no room; nothing was
    /// written then.
    pub(super) fn ensure(&mut self, file: &File, room: Room) -> io::Result<()> {
        let length = file.metadata()?.len();
        let end = length + AHEAD_BYTES + room.record_bytes * WRITES_OF_A_RECORD;
        let mut needed = MARGIN_BYTES + room.longest_bytes * RECORDS_BESIDE;
        if end > self.until {
            // At first from the start of the file, so that gaps that sled left in its segments are reserved too.
            match allocate(file, self.until, end - self.until) {
                Ok(()) => self.until = end,
                // The file system cannot reserve: compares with the free space, which others may take.
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => needed += end - length,
                Err(error) => return Err(error.into()),
            }
        }
        let status = fstatvfs(file)?;
        let free = status.f_bavail.saturating_mul(status.f_frsize);
        if free < needed {
            let problem = format!("{free} bytes are free, {needed} are needed");
            return Err(io::Error::new(io::ErrorKind::StorageFull, problem));
        }
        Ok(())
    }

    /// Frees space that is reserved beyond the file's length. Nothing may be writing to the file.
    pub(super) fn release(&mut self, file: &File) -> io::Result<()> {
        if std::mem::take(&mut self.until) == 0 {
            return Ok(());
        }
        file.set_len(file.metadata()?.len())
    }
}

/// Whether a database in the directory can be opened for reading. sled rewrites nodes even then, and may wait forever if there is no space
/// for them.
pub(super) fn is_enough_to_read(directory: &Path) -> io::Result<bool> {
    /// The longest record of a snapshot.
    const RECORD_BYTES_MAX: u64 = 128 << 10;
    let status = statvfs(directory)?;
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    Ok(free >= MARGIN_BYTES + AHEAD_BYTES + RECORD_BYTES_MAX * RECORDS_BESIDE)
}

fn allocate(file: &File, from: u64, bytes: u64) -> Result<(), rustix::io::Errno> {
    loop {
        match fallocate(file, FallocateFlags::KEEP_SIZE, from, bytes) {
            Err(rustix::io::Errno::INTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn reserved_room_is_allocated_and_freed_and_the_file_keeps_its_length() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1000).unwrap();
        let mut reservation = Reservation::default();
        reservation.ensure(&file, Room { record_bytes: 100_000, longest_bytes: 0 }).unwrap();
        let reserved = file.metadata().unwrap();
        assert_eq!(reserved.len(), 1000);
        // A file system that cannot reserve allocates nothing.
        if reservation.until > 0 {
            assert!(reserved.blocks() * 512 >= AHEAD_BYTES + 300_000, "{reserved:?}");
        }
        reservation.release(&file).unwrap();
        let released = file.metadata().unwrap();
        assert_eq!(released.len(), 1000);
        assert!(released.blocks() * 512 < AHEAD_BYTES, "{released:?}");
    }

    #[test]
    fn room_that_does_not_exist_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        let error = Reservation::default()
            .ensure(&file, Room { record_bytes: 1 << 60, longest_bytes: 0 })
            .expect_err("no disk is that large");
        let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::FileTooLarge];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
}
