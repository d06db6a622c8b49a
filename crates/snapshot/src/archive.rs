//! Reads the snapshot in a data directory that no server uses. Nothing in the directory is written or created, so that neither permission
//! to write nor free space is needed.

use super::{
    Progress, ReadError,
    disk::{self, Disk},
    open::{OpenError, share},
    read::{self, Snapshot},
};
use std::path::{Path, PathBuf};
use tidegate_core::{
    algorithm::State,
    limit::Timestamp,
    rules::LimitInfo,
    store::{Key, Seed},
};

/// The committed snapshot of a data directory.
pub struct Archive {
    directory: PathBuf,
    disk: Box<dyn Disk>,
    snapshot: Snapshot,
}

impl Archive {
    /// Opens the snapshot. None if the directory has none.
    pub fn open(directory: &Path) -> Result<Option<Self>, OpenError> {
        if !directory.is_dir() {
            return Ok(None);
        }
        // Locked until the files are copied, which `find` does.
        let _lock = share(directory)?;
        let mut disk = disk::read_only(directory);
        let found = read::find(&mut *disk).map_err(|source| refused(directory, source))?;
        Ok(found.map(|snapshot| Self { directory: directory.into(), disk, snapshot }))
    }

    /// Time of the commit, by the clock of the machine that wrote it.
    pub fn at(&self) -> Timestamp {
        self.snapshot.at
    }

    /// The secret of the keys.
    pub fn seed(&self) -> &Seed {
        &self.snapshot.seed
    }

    /// The limits to which counters refer by their places.
    pub fn limits(&self) -> &[LimitInfo] {
        &self.snapshot.limits
    }

    /// Bytes of the directory.
    pub fn disk_bytes(&mut self) -> Result<u64, OpenError> {
        Ok(self.disk.bytes()?)
    }

    /// Reads and checks every counter once: its key, the place of its limit, and its state. Some may have expired since the commit.
    pub fn read<E: From<OpenError>>(
        &mut self,
        progress: impl FnMut(Progress),
        mut take: impl FnMut(Key, usize, &State) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { directory, disk, snapshot, .. } = self;
        let read = snapshot.read_counters(&mut **disk, progress, |counters| {
            counters
                .iter()
                .try_for_each(|kept| take(kept.key, kept.limit as usize, &kept.state))
                .map_err(Stopped::Taking)
        });
        read.map_err(|stopped| match stopped {
            Stopped::Reading(source) => refused(directory, source).into(),
            Stopped::Taking(error) => error,
        })
    }
}

/// The reason why not every counter was taken.
enum Stopped<E> {
    Reading(ReadError),
    Taking(E),
}

impl<E> From<ReadError> for Stopped<E> {
    fn from(error: ReadError) -> Self {
        Self::Reading(error)
    }
}

fn refused(directory: &Path, source: ReadError) -> OpenError {
    OpenError::Read { directory: directory.into(), source }
}
