//! Snapshots: keep counters across restarts of the process.
//!
//! The pages of the store that changed are appended to a log in a data directory. A later start reads the log backwards. Invariants:
//!
//! - Whenever the process dies, the directory has the last committed snapshot, complete.
//! - No write can prevent the process from ending or from trying again: each has a timeout.
//! - A snapshot is restored as it was written, or the start is refused: nothing is lost silently, and a committed
//!   snapshot is not overwritten before its replacement is committed.
//! - No decision waits for the disk. No decision waits longer for a shard than a few pages take to copy.

mod archive;
mod coverage;
mod disk;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz_bridge;
mod lock;
mod manifest;
mod open;
mod pages;
mod portable;
mod read;
mod record;
mod restore;
mod restore_figures;
mod state_bytes;
mod task;
#[cfg(test)]
mod tests;
mod write;

pub use archive::Archive;
pub use disk::{DiskError, SimulatedDisk, start_simulated};
pub use open::{OnBadSnapshot, OpenError, Started, start};
pub use portable::{ExportError, ImportError, Portable, PortableWriter, export, import};
pub use read::{Progress, ReadError};
pub use restore::{RestoreError, Restored};
pub use restore_figures::RestoreFigures;
pub use task::{SnapshotCounts, SnapshotFigures, SnapshotTask};
pub use write::{Pass, Writer};

/// The version of the format that is written.
pub const FORMAT: u8 = record::VERSION;
