//! The data directory: a sled database for each generation, and the manifest beside them. The only module that uses sled.
//!
//! sled appends records of about 100 kB in order, and little else is needed of it:
//!
//! - It is open only while a snapshot is written or read, and is reopened now and then meanwhile, because it keeps in memory what it has
//!   read or written.
//! - It may panic on a damaged or failing disk. Every call is guarded, so that a panic becomes an error like others.
//! - It may wait forever if one of its background writes fails. Space is reserved before it writes, and a
//!   [`DeadlineDisk`](super::deadline::DeadlineDisk) bounds the time of every write.
//! - Its `flush` does not make files durable: it calls `sync_file_range`, which does not flush the device's cache, and nothing for its
//!   blobs. Files and directories are synced here before the manifest refers to them, and blobs and names before the database that refers
//!   to them.
//! - It refuses a database beside a damaged `conf` and never syncs that file, which only contains sled's defaults. The file is removed
//!   before each opening, and sled writes it again.
//! - It releases its file lock some time after it was closed. Opening waits for the release.
//! - It writes an index file beside its data when it is opened, even for reading. If a process is killed meanwhile, half an index is left,
//!   with which sled does not open; it is then removed, and the index before is read. Without an index, sled may find no page in a file
//!   whose segments it has reused. If the directory cannot be written to, a copy of file and index is read instead.
//! - After an error the database is closed and not written to again; the next snapshot begins a new generation.

mod database;

use super::{
    deadline::Permit,
    durability::{SyncCall, replace_file, sync},
    operations::{Disk, DiskError},
    private_copy::PrivateCopy,
    space::{Room, is_enough_to_read},
};
pub(super) use database::indexes;
use database::{DATABASE_FILE, OpenGeneration, guarded};
use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

const MANIFEST: &str = "manifest";
const GENERATION_PREFIX: &str = "generation-";
/// The name sled gives to the directory of records that are too long for its segments. Each is in its own file.
const BLOBS: &str = "blobs";

/// Bytes that are read or written before a database is closed to free its memory.
const BYTES_UNTIL_REOPENED: usize = 24 << 20;

/// Bytes of records that sled may buffer before it has to write them. Bounds the space to reserve.
const BYTES_UNTIL_FLUSHED: u64 = 1 << 20;

/// A data directory on a real disk.
pub(crate) struct SledDisk {
    directory: PathBuf,
    permit: Permit,
    sync: Arc<SyncCall>,
    /// Whether nothing may be written to the directory, not even by sled when it reads.
    is_read_only: bool,
    open: Option<OpenGeneration>,
    /// The copy from which a generation is read, if not in place.
    copy: Option<(u64, PrivateCopy)>,
    /// Whether space is reserved before sled writes. False in the test that shows why.
    reserves: bool,
    /// The longest known record of each generation: sled rewrites neighbours together.
    longest: HashMap<u64, u64>,
    /// Durable blobs by generation. sled never changes a blob.
    synced_blobs: HashSet<(u64, OsString)>,
}

impl SledDisk {
    /// A directory that this process has locked.
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.into(),
            permit: Permit::default(),
            sync: Arc::new(sync),
            is_read_only: false,
            open: None,
            copy: None,
            reserves: true,
            longest: HashMap::new(),
            synced_blobs: HashSet::new(),
        }
    }

    /// A directory that is only read. Reading does not change it.
    pub(crate) fn read_only(directory: &Path) -> Self {
        let mut disk = Self::new(directory);
        disk.is_read_only = true;
        disk
    }

    /// Sets the permit that replacing the manifest needs.
    pub(crate) fn with_permit(mut self, permit: Permit) -> Self {
        self.permit = permit;
        self
    }

    /// Sets the call that makes files durable.
    #[cfg(test)]
    pub(crate) fn with_sync(mut self, sync: Arc<SyncCall>) -> Self {
        self.sync = sync;
        self
    }

    /// Reserves no space: sled itself finds that the disk is full.
    #[cfg(all(test, feature = "mount"))]
    pub(crate) fn without_reservations(mut self) -> Self {
        self.reserves = false;
        self
    }

    fn path_of(&self, generation: u64) -> PathBuf {
        self.directory.join(format!("{GENERATION_PREFIX}{generation}"))
    }

    /// Calls `work` with the database of the generation, opened at `path`, with room for a record of `record_bytes` if one is to be
    /// written. After an error, closes the database.
    fn with<T>(
        &mut self,
        generation: u64,
        path: PathBuf,
        operation: &'static str,
        record_bytes: Option<u64>,
        work: impl FnOnce(&mut OpenGeneration) -> sled::Result<T>,
    ) -> Result<T, DiskError> {
        let room = record_bytes.filter(|_| self.reserves).map(|record_bytes| {
            let longest = self.longest.entry(generation).or_default();
            *longest = record_bytes.max(*longest);
            Room { record_bytes, longest_bytes: *longest }
        });
        let fits = |open: &OpenGeneration| {
            open.number == generation && open.path == path && open.passed < BYTES_UNTIL_REOPENED
        };
        if !self.open.as_ref().is_some_and(fits) {
            self.close_database();
        }
        let open = match self.open.take() {
            Some(open) => Ok(open),
            None => guarded(|| OpenGeneration::open(generation, path.clone(), room)),
        };
        let mut open = open.map_err(|source| DiskError { operation, path: path.clone(), source })?;
        let done = guarded(|| {
            if let Some(room) = room {
                open.reserve(room)?;
            }
            work(&mut open)
        });
        self.open = Some(open);
        if done.is_err() {
            self.close_database();
        }
        done.map_err(|source| DiskError { operation, path, source })
    }

    fn read_at(&mut self, generation: u64, path: PathBuf, number: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let record = self.with(generation, path, "read", None, |open| {
            let record = open.database.get(number.to_be_bytes())?.map(|record| record.to_vec());
            open.passed += record.as_ref().map_or(0, Vec::len);
            Ok(record)
        })?;
        let longest = self.longest.entry(generation).or_default();
        *longest = record.as_ref().map_or(0, |record| record.len() as u64).max(*longest);
        Ok(record)
    }

    /// The path of a copy of the generation. Makes the copy if there is none.
    fn copy_of(&mut self, generation: u64) -> Result<PathBuf, DiskError> {
        if self.copy.as_ref().is_none_or(|(number, _)| *number != generation) {
            self.close_database();
            let path = self.path_of(generation);
            let copy = PrivateCopy::of(&path);
            let copy = copy.map_err(|source| DiskError { operation: "read", path, source })?;
            self.copy = Some((generation, copy));
        }
        let (_, copy) = self.copy.as_ref().expect("it was made above");
        Ok(copy.path().into())
    }

    fn close_database(&mut self) {
        let Some(OpenGeneration { database, reserved, .. }) = self.open.take() else { return };
        // Committed records are already durable.
        let _ = guarded(|| {
            drop(database);
            Ok(())
        });
        if let Some((file, mut reservation)) = reserved {
            let _ = reservation.release(&file);
        }
    }
}

/// Whether reading failed because sled could not write.
fn is_about_writing(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    [PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull].contains(&error.kind())
}

impl Disk for SledDisk {
    fn read_manifest(&mut self) -> Result<Option<Vec<u8>>, DiskError> {
        let path = self.directory.join(MANIFEST);
        match fs::read(&path) {
            Ok(manifest) => Ok(Some(manifest)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DiskError { operation: "read", path, source }),
        }
    }

    fn write_manifest(&mut self, manifest: &[u8]) -> Result<(), DiskError> {
        let path = self.directory.join(MANIFEST);
        let written = replace_file(&path, manifest, &*self.sync, &self.permit);
        written.map_err(|source| DiskError { operation: "write", path, source })
    }

    fn generations(&mut self) -> Result<Vec<u64>, DiskError> {
        let list = || -> io::Result<Vec<u64>> {
            let mut found = Vec::new();
            for entry in fs::read_dir(&self.directory)? {
                let name = entry?.file_name();
                let number = name.to_str().and_then(|name| name.strip_prefix(GENERATION_PREFIX));
                found.extend(number.and_then(|number| number.parse::<u64>().ok()));
            }
            Ok(found)
        };
        list().map_err(|source| DiskError { operation: "list", path: self.directory.clone(), source })
    }

    fn remove(&mut self, generation: u64) -> Result<(), DiskError> {
        self.close_database();
        self.longest.remove(&generation);
        self.synced_blobs.retain(|(number, _)| *number != generation);
        let path = self.path_of(generation);
        // An abandoned thread may keep the file open: truncating frees its space anyway.
        if let Ok(file) = OpenOptions::new().write(true).open(path.join(DATABASE_FILE)) {
            let _ = file.set_len(0);
        }
        match fs::remove_dir_all(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(DiskError { operation: "remove", path, source })
            }
            _ => Ok(()),
        }
    }

    fn append(&mut self, generation: u64, number: u64, record: Vec<u8>) -> Result<(), DiskError> {
        let path = self.path_of(generation);
        self.with(generation, path, "write to", Some(record.len() as u64), |open| {
            open.database.insert(number.to_be_bytes(), record.as_slice())?;
            open.unflushed += record.len() as u64;
            open.passed += record.len();
            if open.unflushed >= BYTES_UNTIL_FLUSHED { open.flush() } else { Ok(()) }
        })
    }

    fn cut(&mut self, generation: u64, from: u64) -> Result<(), DiskError> {
        let path = self.path_of(generation);
        if self.is_read_only {
            return Err(DiskError {
                operation: "write to",
                path,
                source: io::ErrorKind::PermissionDenied.into(),
            });
        }
        self.with(generation, path, "write to", Some(0), |open| {
            let numbers =
                open.database.range(from.to_be_bytes()..).keys().collect::<sled::Result<Vec<_>>>()?;
            for number in numbers {
                open.database.remove(number)?;
            }
            open.flush()
        })
    }

    fn read(&mut self, generation: u64, number: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let path = self.path_of(generation);
        if !path.is_dir() {
            return Ok(None);
        }
        let has_copy = self.copy.as_ref().is_some_and(|(number, _)| *number == generation);
        let is_open = self.open.as_ref().is_some_and(|open| open.number == generation && open.path == path);
        let has_room = is_open || is_enough_to_read(&path).unwrap_or(false);
        if !self.is_read_only && !has_copy && has_room {
            match self.read_at(generation, path, number) {
                Err(error) if is_about_writing(&error.source) => {
                    tracing::warn!(%error, "cannot open the snapshot in place; reading a copy of it");
                }
                read => return read,
            }
        }
        let copy = self.copy_of(generation)?;
        self.read_at(generation, copy, number)
    }

    fn sync(&mut self, generation: u64) -> Result<(), DiskError> {
        let (path, directory) = (self.path_of(generation), self.directory.clone());
        let (sync, mut synced) = (Arc::clone(&self.sync), std::mem::take(&mut self.synced_blobs));
        let (_, synced) = self.with(generation, path, "flush", None, |open| {
            open.flush()?;
            // Nothing is being written: sled writes only what it was given.
            if let Some((file, reservation)) = &mut open.reserved {
                reservation.release(file)?;
            }
            // Blobs and their names first, then the database that refers to them: a file system may keep the content of the database and
            // lose newer names.
            let blobs = open.path.join(BLOBS);
            for entry in fs::read_dir(&blobs)? {
                let name = entry?.file_name();
                if !synced.contains(&(generation, name.clone())) {
                    sync(&blobs.join(&name))?;
                    synced.insert((generation, name));
                }
            }
            sync(&blobs)?;
            sync(&open.path)?;
            sync(&directory)?;
            Ok((sync(&open.path.join(DATABASE_FILE))?, synced))
        })?;
        self.synced_blobs = synced;
        Ok(())
    }

    fn close(&mut self) {
        self.close_database();
        self.copy = None;
    }

    fn bytes(&mut self) -> Result<u64, DiskError> {
        bytes_below(&self.directory).map_err(|source| DiskError {
            operation: "measure",
            path: self.directory.clone(),
            source,
        })
    }
}

impl Drop for SledDisk {
    fn drop(&mut self) {
        self.close();
    }
}

fn bytes_below(directory: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { bytes_below(&entry.path())? } else { metadata.len() };
    }
    Ok(sum)
}
