//! The data directory: a sled database for each generation, and the manifest beside them. The only place that uses
//! sled.
//!
//! sled is used for what it is good at, adding records of about 100 kB in order, and asked for little else:
//!
//! - It is open only while a snapshot is written or read, and reopened now and then meanwhile: it keeps in memory what
//!   has passed through it.
//! - It may panic on a damaged or failing disk. Every call is fenced, so that a panic is an error like others.
//! - It lets go of its files some time after it was closed. Opening waits for that.
//! - It notes beside its file how far it has read that; killed while it does, it leaves half a note that it refuses to
//!   open with. The notes only save time: without them it reads its whole file.
//! - After an error the database is closed and not written to again; the next snapshot begins a generation of its own.

use super::disk::{Disk, DiskError};
use std::{
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::Duration,
};

const MANIFEST: &str = "manifest";
const GENERATION_PREFIX: &str = "generation-";

/// sled's own cache; the records are read once and written once.
const CACHE_BYTES: u64 = 8 << 20;

/// Bytes that pass through an open database before it is closed to give back its memory.
const BYTES_UNTIL_REOPENED: usize = 24 << 20;

/// How long to wait before trying again to open a database that was closed just now, and how often.
const RELEASE_WAIT: Duration = Duration::from_millis(5);
const RELEASE_WAITS_MAX: u32 = 2000;

/// A data directory on a real disk.
pub(super) struct SledDisk {
    directory: PathBuf,
    open: Option<OpenGeneration>,
}

struct OpenGeneration {
    number: u64,
    database: sled::Db,
    /// Bytes read and written since it was opened.
    passed: usize,
}

impl SledDisk {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.into(), open: None }
    }

    fn path_of(&self, generation: u64) -> PathBuf {
        self.directory.join(format!("{GENERATION_PREFIX}{generation}"))
    }

    /// Does something with the database of the generation through which `passing` bytes go.
    fn with<T>(
        &mut self,
        generation: u64,
        doing: &'static str,
        passing: usize,
        work: impl FnOnce(&sled::Db) -> sled::Result<T>,
    ) -> Result<T, DiskError> {
        let path = self.path_of(generation);
        let fits = |open: &OpenGeneration| open.number == generation && open.passed < BYTES_UNTIL_REOPENED;
        if !self.open.as_ref().is_some_and(fits) {
            self.rest();
        }
        let open = self.open.take();
        let done = fenced(|| {
            let database = match open {
                Some(open) => open,
                None => OpenGeneration { number: generation, database: open_database(&path)?, passed: 0 },
            };
            Ok((work(&database.database)?, database))
        });
        let (value, mut open) = done.map_err(|source| DiskError { doing, path, source })?;
        open.passed += passing;
        self.open = Some(open);
        Ok(value)
    }
}

/// Opens the database once the one that was closed before has let go of it. Nobody else can have it: the directory is
/// locked.
fn open_database(path: &Path) -> sled::Result<sled::Db> {
    let (mut waits_left, mut has_notes) = (RELEASE_WAITS_MAX, true);
    loop {
        match try_open_database(path) {
            Err(sled::Error::Io(error)) if waits_left > 0 && is_held(&error) => {
                waits_left -= 1;
                std::thread::sleep(RELEASE_WAIT);
            }
            Err(sled::Error::Corruption { .. }) if has_notes => {
                remove_notes(path)?;
                has_notes = false;
            }
            opened => return opened,
        }
    }
}

/// Removes what sled noted beside its file: it reads that from the start then.
fn remove_notes(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("snap.") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// sled has no kind of its own for this.
fn is_held(error: &io::Error) -> bool {
    error.to_string().contains("could not acquire lock")
}

fn try_open_database(path: &Path) -> sled::Result<sled::Db> {
    sled::Config::new()
        .path(path)
        .cache_capacity(CACHE_BYTES)
        .mode(sled::Mode::HighThroughput)
        // Records are made durable by `sync`, all of a pass together.
        .flush_every_ms(None)
        .open()
}

/// Turns a panic of sled's, and its own kind of error, into an error of the operating system's kind. What is the files'
/// fault and not the disk's is `InvalidData`.
fn fenced<T>(work: impl FnOnce() -> sled::Result<T>) -> io::Result<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(sled::Error::Io(error))) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(io::Error::new(io::ErrorKind::InvalidData, error))
        }
        Ok(Err(sled::Error::Io(error))) => Err(error),
        Ok(Err(error)) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the database gave up on its files; see above for its own words",
        )),
    }
}

impl Disk for SledDisk {
    fn read_manifest(&mut self) -> Result<Option<Vec<u8>>, DiskError> {
        let path = self.directory.join(MANIFEST);
        match fs::read(&path) {
            Ok(manifest) => Ok(Some(manifest)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DiskError { doing: "read", path, source }),
        }
    }

    fn write_manifest(&mut self, manifest: &[u8]) -> Result<(), DiskError> {
        let path = self.directory.join(MANIFEST);
        replace_file(&path, manifest).map_err(|source| DiskError { doing: "write", path, source })
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
        list().map_err(|source| DiskError { doing: "list", path: self.directory.clone(), source })
    }

    fn remove(&mut self, generation: u64) -> Result<(), DiskError> {
        self.rest();
        let path = self.path_of(generation);
        match fs::remove_dir_all(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(DiskError { doing: "remove", path, source })
            }
            _ => Ok(()),
        }
    }

    fn append(&mut self, generation: u64, number: u64, record: Vec<u8>) -> Result<(), DiskError> {
        let add = |database: &sled::Db| database.insert(number.to_be_bytes(), record.as_slice()).map(drop);
        self.with(generation, "write to", record.len(), add)
    }

    fn cut(&mut self, generation: u64, from: u64) -> Result<(), DiskError> {
        self.with(generation, "write to", 0, |database| {
            for number in database.range(from.to_be_bytes()..).keys() {
                database.remove(number?)?;
            }
            Ok(())
        })
    }

    fn read(&mut self, generation: u64, number: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let path = self.path_of(generation);
        if !path.is_dir() {
            return Ok(None);
        }
        let record = self.with(generation, "read", 0, |database| database.get(number.to_be_bytes()))?;
        let record = record.map(|record| record.to_vec());
        if let (Some(open), Some(record)) = (&mut self.open, &record) {
            open.passed += record.len();
        }
        Ok(record)
    }

    fn sync(&mut self, generation: u64) -> Result<(), DiskError> {
        self.with(generation, "flush", 0, |database| database.flush().map(drop))
    }

    fn rest(&mut self) {
        if let Some(open) = self.open.take() {
            // What was to be kept is flushed already.
            let _ = fenced(|| {
                drop(open);
                Ok(())
            });
        }
    }

    fn bytes(&mut self) -> Result<u64, DiskError> {
        bytes_below(&self.directory).map_err(|source| DiskError {
            doing: "measure",
            path: self.directory.clone(),
            source,
        })
    }
}

impl Drop for SledDisk {
    fn drop(&mut self) {
        self.rest();
    }
}

/// Writes beside, makes it durable, and renames: a reader finds the former file or the new one, never a part.
pub(super) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = fs::File::create(&beside)?;
    io::Write::write_all(&mut file, content)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    match path.parent() {
        Some(directory) => fs::File::open(directory)?.sync_all(),
        None => Ok(()),
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
