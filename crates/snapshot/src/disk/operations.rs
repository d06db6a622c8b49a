//! The operations that snapshots need of their storage. They are few, so that a test can replace the storage and fail at any of them.

use std::{io, path::PathBuf, time::Duration};

/// An operation on the data directory failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {source}", path.display())]
pub struct DiskError {
    /// The operation, as a verb.
    pub operation: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

/// Generations of numbered records, and one manifest with the number of the generation in force.
///
/// Records are only appended to a generation. Nothing is certain to survive a crash before `sync`.
pub(crate) trait Disk: Send {
    /// The manifest; none if there never was one.
    fn read_manifest(&mut self) -> Result<Option<Vec<u8>>, DiskError>;
    /// Replaces the manifest. After a crash, either the former or the new one is there, complete. Durable on return.
    fn write_manifest(&mut self, manifest: &[u8]) -> Result<(), DiskError>;
    /// The generations of which anything exists.
    fn generations(&mut self) -> Result<Vec<u64>, DiskError>;
    /// Removes a generation and frees its space; it need not exist.
    fn remove(&mut self, generation: u64) -> Result<(), DiskError>;
    /// Appends a record; the first one creates the generation.
    fn append(&mut self, generation: u64, number: u64, record: Vec<u8>) -> Result<(), DiskError>;
    /// Removes the records from this number on, which were appended after the last commit.
    fn cut(&mut self, generation: u64, from: u64) -> Result<(), DiskError>;
    /// A record; none if it does not exist.
    fn read(&mut self, generation: u64, number: u64) -> Result<Option<Vec<u8>>, DiskError>;
    /// Makes all records of the generation durable.
    fn sync(&mut self, generation: u64) -> Result<(), DiskError>;
    /// Frees memory and file handles until the next access.
    fn close(&mut self);
    /// Bytes on the disk.
    fn bytes(&mut self) -> Result<u64, DiskError>;
    /// Bounds the time of each write; storage that cannot block ignores it.
    fn set_timeout(&mut self, _timeout: Duration) {}
}
