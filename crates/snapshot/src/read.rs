//! Reading: everything in the data directory is checked to the last byte before it is used.
//!
//! Every committed record is present, complete and at its position, or reading fails: nothing is skipped silently.

use super::{
    coverage::{Coverage, Novelty},
    disk::{Disk, DiskError},
    manifest::{Manifest, ManifestError},
    pages::{self, KeptCounter, Page},
    record::{self, Commit, Head, Kind, Position, RecordError, VERSION},
};
use std::io;
use tidegate_core::{limit::Timestamp, rules::LimitInfo, store::Seed};

/// The number of a page's shard has two bytes.
const SHARDS_MAX: usize = 1 << 16;

/// A committed snapshot whose counters are not read yet.
#[derive(Debug)]
pub struct Snapshot {
    /// The secret of the keys.
    pub seed: Seed,
    /// Time of the commit, by the clock of the machine that wrote it.
    pub at: Timestamp,
    /// The limits to which its counters refer by their places.
    pub limits: Vec<LimitInfo>,
    /// Number of shards over which the keys were distributed.
    pub(super) shards: usize,
    pub(super) generation: u64,
    /// The number of the commit.
    pub(super) committed: u64,
    pub(super) limit_records: Vec<u64>,
    /// Bytes of the records with counters, once they are read.
    pub(super) bytes: u64,
    /// Number of counters in these records. A key is counted as often as it was written.
    pub(super) written: u64,
}

/// The reason why an existing snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The disk cannot be read.
    #[error(transparent)]
    Disk(DiskError),
    /// It was written by a newer program.
    #[error("it has format {0}, and this program reads up to format {VERSION}: run the newer program")]
    Newer(u64),
    /// Its content is not what was written.
    #[error("it is damaged: {0}")]
    Damaged(String),
}

impl From<DiskError> for ReadError {
    fn from(error: DiskError) -> Self {
        if error.source.kind() == io::ErrorKind::InvalidData {
            Self::Damaged(error.to_string())
        } else {
            Self::Disk(error)
        }
    }
}

/// The progress of reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Records read.
    pub records: u64,
    /// Number of all records.
    pub records_all: u64,
    /// Counters read.
    pub counters: u64,
}

fn damaged(what: impl Into<String>) -> ReadError {
    ReadError::Damaged(what.into())
}

/// The snapshot in force. None in a directory that never had one.
pub(super) fn find(disk: &mut dyn Disk) -> Result<Option<Snapshot>, ReadError> {
    let Some(bytes) = disk.read_manifest()? else {
        return match disk.generations()?.as_slice() {
            [] => Ok(None),
            _ => Err(damaged("the file `manifest` is missing")),
        };
    };
    let manifest = Manifest::from_bytes(&bytes).map_err(|error| match error {
        ManifestError::Damaged => damaged("the file `manifest` is not what was written"),
        ManifestError::Newer(format) => ReadError::Newer(format),
    })?;
    let Manifest { generation, committed: Some(committed), .. } = manifest else {
        return Ok(None);
    };
    let head: Head = read_json(disk, Kind::Head, Position { generation, number: 0 })?;
    if head.shards > SHARDS_MAX {
        return Err(damaged("its number of shards is too large"));
    }
    let commit: Commit = read_json(disk, Kind::Commit, Position { generation, number: committed })?;
    let mut limits = Vec::new();
    for &number in &commit.limit_records {
        limits.extend(read_json::<Vec<LimitInfo>>(disk, Kind::Limits, Position { generation, number })?);
    }
    Ok(Some(Snapshot {
        seed: head.seed().ok_or_else(|| damaged("its secret is not 32 hexadecimal digits"))?,
        at: Timestamp::from_nanos(commit.at_nanos),
        limits,
        shards: head.shards,
        generation,
        committed,
        limit_records: commit.limit_records,
        bytes: 0,
        written: 0,
    }))
}

impl Snapshot {
    /// Reads every counter once, as it was last written, in pages of one shard each. `take` may stop with an error.
    pub(super) fn read_counters<E: From<ReadError>>(
        &mut self,
        disk: &mut dyn Disk,
        mut progress: impl FnMut(Progress),
        mut take: impl FnMut(Vec<KeptCounter>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut coverage: Vec<Coverage> = (0..self.shards).map(|_| Coverage::default()).collect();
        let mut counters = 0;
        for number in (0..self.committed).rev() {
            let position = Position { generation: self.generation, number };
            let record = read(disk, position)?;
            let (kind, body) = record::open(&record, position).map_err(|error| refused(position, &error))?;
            if kind != Kind::Pages {
                continue;
            }
            self.bytes += record.len() as u64;
            let pages = pages::decode(body)
                .ok_or_else(|| refused(position, &RecordError::Body("it is not made of pages".into())))?;
            // The page that was written last is read first, and settles its keys.
            for mut page in pages.into_iter().rev() {
                self.check(&page)?;
                self.written += page.counters.len() as u64;
                let coverage = &mut coverage[usize::from(page.shard)];
                match coverage.novelty(page.keys) {
                    Novelty::All => {}
                    Novelty::Some => page.counters.retain(|kept| !coverage.contains(kept.key)),
                    Novelty::None => continue,
                }
                coverage.settle(page.keys);
                counters += page.counters.len() as u64;
                take(page.counters)?;
            }
            progress(Progress { records: self.committed - number, records_all: self.committed, counters });
        }
        if !coverage.iter().all(Coverage::is_complete) {
            return Err(damaged("some of its pages are missing").into());
        }
        Ok(())
    }

    fn check(&self, page: &Page) -> Result<(), ReadError> {
        if usize::from(page.shard) >= self.shards {
            return Err(damaged("a page belongs to no shard"));
        }
        let is_known = |kept: &KeptCounter| (kept.limit as usize) < self.limits.len();
        if !page.counters.iter().all(is_known) {
            return Err(damaged("a counter belongs to no limit"));
        }
        Ok(())
    }
}

fn read(disk: &mut dyn Disk, position: Position) -> Result<Vec<u8>, ReadError> {
    disk.read(position.generation, position.number)?
        .ok_or_else(|| damaged(format!("record {} is missing", position.number)))
}

fn read_json<T: serde::de::DeserializeOwned>(
    disk: &mut dyn Disk,
    kind: Kind,
    position: Position,
) -> Result<T, ReadError> {
    let record = read(disk, position)?;
    record::open_json(&record, kind, position).map_err(|error| refused(position, &error))
}

fn refused(position: Position, error: &RecordError) -> ReadError {
    match error {
        RecordError::Newer(version) => ReadError::Newer(u64::from(*version)),
        error => damaged(format!("record {} {error}", position.number)),
    }
}
