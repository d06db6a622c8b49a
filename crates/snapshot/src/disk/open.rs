//! The disk of a data directory.

use super::{deadline::DeadlineDisk, operations::Disk, sled_disk::SledDisk};
use std::path::Path;

/// The disk of a directory that this process has locked.
pub(crate) fn of_directory(directory: &Path) -> Box<dyn Disk> {
    let path = directory.to_owned();
    Box::new(DeadlineDisk::new(directory, move |permit| Box::new(SledDisk::new(&path).with_permit(permit))))
}

/// A directory that is only read. Reading does not change it.
pub(crate) fn read_only(directory: &Path) -> Box<dyn Disk> {
    Box::new(SledDisk::read_only(directory))
}
