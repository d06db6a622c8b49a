//! The storage of snapshots: the operations that snapshots need, a data directory with sled and all guards around it, and a disk in memory
//! for tests. The rest of the crate only uses [`Disk`].

pub(super) mod deadline;
pub(super) mod durability;
mod open;
mod operations;
mod private_copy;
mod simulated;
pub(super) mod sled_disk;
mod space;

pub(super) use deadline::TIMEOUT_DEFAULT;
pub(super) use durability::sync;
pub(super) use open::{of_directory, read_only};
pub(super) use operations::Disk;
pub use operations::DiskError;
pub use simulated::{SimulatedDisk, start_simulated};
