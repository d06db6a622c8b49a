//! A disk for tests and simulations. It fails on request, and at a power cut loses what was not durable.

use super::operations::{Disk, DiskError};
use crate::{
    restore::{RestoreError, Restored, restore},
    write::Writer,
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, io, sync::Arc};
use tidegate_core::{limit::Timestamp, limiter::Limiter, store::Seed};

/// A simulated disk. Clones share it.
#[derive(Clone, Default)]
pub struct SimulatedDisk(pub(crate) Arc<Mutex<Content>>);

#[derive(Default)]
pub(crate) struct Content {
    pub(crate) manifest: Option<Vec<u8>>,
    pub(crate) generations: BTreeMap<u64, Records>,
    /// Writes that still succeed; none for all of them.
    pub(crate) writes_left: Option<u32>,
    /// Whether a failing write of the manifest still replaces it.
    pub(crate) fails_late: bool,
}

#[derive(Default)]
pub(crate) struct Records {
    pub(crate) records: BTreeMap<u64, Vec<u8>>,
    /// Records below this number outlive a crash.
    durable: u64,
}

impl SimulatedDisk {
    /// Writes a record without any of the writer's checks.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn put(&self, generation: u64, number: u64, record: Vec<u8>) {
        self.0.lock().generations.entry(generation).or_default().records.insert(number, record);
    }

    /// Writes a manifest without any of the writer's checks.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn put_manifest(&self, manifest: Vec<u8>) {
        self.0.lock().manifest = Some(manifest);
    }

    /// Cuts the power: `kept` of the records that were not durable survive.
    #[cfg(test)]
    pub(crate) fn crash(&self, kept: u64) {
        let mut content = self.0.lock();
        content.writes_left = None;
        for records in content.generations.values_mut() {
            let end = records.durable + kept;
            records.records.retain(|&number, _| number < end);
        }
    }

    fn write<T>(&self, work: impl FnOnce(&mut Content) -> T) -> Result<T, DiskError> {
        let mut content = self.0.lock();
        if let Some(left) = &mut content.writes_left {
            if *left == 0 {
                return Err(full());
            }
            *left -= 1;
        }
        Ok(work(&mut content))
    }
}

fn full() -> DiskError {
    DiskError { operation: "write to", path: "memory".into(), source: io::ErrorKind::StorageFull.into() }
}

impl Disk for SimulatedDisk {
    fn read_manifest(&mut self) -> Result<Option<Vec<u8>>, DiskError> {
        Ok(self.0.lock().manifest.clone())
    }

    fn write_manifest(&mut self, manifest: &[u8]) -> Result<(), DiskError> {
        let written = self.write(|content| content.manifest = Some(manifest.into()));
        let mut content = self.0.lock();
        if written.is_err() && content.fails_late {
            content.manifest = Some(manifest.into());
        }
        written
    }

    fn generations(&mut self) -> Result<Vec<u64>, DiskError> {
        Ok(self.0.lock().generations.keys().copied().collect())
    }

    fn remove(&mut self, generation: u64) -> Result<(), DiskError> {
        self.0.lock().generations.remove(&generation);
        Ok(())
    }

    fn append(&mut self, generation: u64, number: u64, record: Vec<u8>) -> Result<(), DiskError> {
        self.write(|content| {
            let records = &mut content.generations.entry(generation).or_default().records;
            assert!(records.insert(number, record).is_none(), "record {number} was there already");
        })
    }

    fn cut(&mut self, generation: u64, from: u64) -> Result<(), DiskError> {
        self.write(|content| {
            if let Some(records) = content.generations.get_mut(&generation) {
                records.records.retain(|&number, _| number < from);
            }
        })
    }

    fn read(&mut self, generation: u64, number: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let content = self.0.lock();
        let records = content.generations.get(&generation);
        Ok(records.and_then(|records| records.records.get(&number).cloned()))
    }

    fn sync(&mut self, generation: u64) -> Result<(), DiskError> {
        self.write(|content| {
            let records = content.generations.entry(generation).or_default();
            records.durable = records.records.keys().next_back().map_or(0, |last| last + 1);
        })
    }

    fn close(&mut self) {}

    fn bytes(&mut self) -> Result<u64, DiskError> {
        let content = self.0.lock();
        let records = content.generations.values().flat_map(|records| records.records.values());
        Ok(records.map(|record| record.len() as u64).sum())
    }
}

/// Starts from the content of the disk, as [`start`](crate::start) does from a directory.
pub fn start_simulated(
    disk: &SimulatedDisk,
    fresh_seed: Seed,
    build: impl FnOnce(Seed) -> Limiter,
    now: Timestamp,
) -> Result<(Limiter, Writer, Restored), RestoreError> {
    restore(Box::new(disk.clone()), None, fresh_seed, build, now, |_| {})
}
