//! What a snapshot asks of the place it is kept in; so small that a test can stand in for it and fail at any step.

use std::{io, path::PathBuf};

/// Something could not be read from or written to the data directory.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {source}", path.display())]
pub struct DiskError {
    /// What was tried, as a verb.
    pub doing: &'static str,
    /// On what.
    pub path: PathBuf,
    /// What came of it.
    pub source: io::Error,
}

/// Keeps generations of numbered records, and one manifest that says which generation counts.
///
/// Records of a generation are only ever added at its end. Nothing is certain to outlive a crash before `sync`.
pub(super) trait Disk: Send {
    /// The manifest; none if there never was one.
    fn read_manifest(&mut self) -> Result<Option<Vec<u8>>, DiskError>;
    /// Replaces the manifest: after a crash there is the former one or this one, whole, and it is certain to stay.
    fn write_manifest(&mut self, manifest: &[u8]) -> Result<(), DiskError>;
    /// The generations of which anything is there.
    fn generations(&mut self) -> Result<Vec<u64>, DiskError>;
    /// Removes all there is of a generation; nothing may be there.
    fn remove(&mut self, generation: u64) -> Result<(), DiskError>;
    /// Adds a record; a generation begins with its first.
    fn append(&mut self, generation: u64, number: u64, record: Vec<u8>) -> Result<(), DiskError>;
    /// Removes the records from that number on; what was added after the last commit.
    fn cut(&mut self, generation: u64, from: u64) -> Result<(), DiskError>;
    /// A record; none if it is not there.
    fn read(&mut self, generation: u64, number: u64) -> Result<Option<Vec<u8>>, DiskError>;
    /// Makes sure that all records added to the generation outlive a crash.
    fn sync(&mut self, generation: u64) -> Result<(), DiskError>;
    /// Gives back memory and file handles until the next access.
    fn rest(&mut self);
    /// Bytes that everything takes on the disk.
    fn bytes(&mut self) -> Result<u64, DiskError>;
}
