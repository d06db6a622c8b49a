//! Writing: passes over the store. Each is a snapshot once it is committed.
//!
//! Invariants:
//!
//! - The manifest refers to a committed pass. Records after that pass are ignored.
//! - A pass copies a few pages at a time, and locks no shard for longer than that takes.
//! - A pass writes the pages that changed since the last pass. If the records exceed the live counters by half, or if the last pass failed,
//!   it writes all pages to a new generation. The former generation is removed once the new one is committed. The records on the disk are
//!   therefore at most about three times those of the live counters.

use super::{
    RestoreFigures,
    disk::{Disk, DiskError, TIMEOUT_DEFAULT},
    lock::DirectoryLock,
    manifest::Manifest,
    pages,
    record::{self, Commit, Head, Kind, Position},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tidegate_core::{
    clock::Clock,
    limit::LimitId,
    rules::{LimitInfo, LimitTable, PinnedLimits},
    store::{PageCopies, Seed, Store, Wanted},
};

/// Records with pages are cut off at about this size. Four such records, each a few pages longer, just fit into a segment of sled's file,
/// which is half a megabyte.
const RECORD_BYTES: usize = 118 * 1024;

/// A generation smaller than this is not replaced.
const LOG_BYTES_MIN: u64 = 1 << 20;

/// Size of a generation at which a full pass is due, in percent of the live counters. During that pass, the disk has both generations: in
/// total less than three times the live counters.
const LOG_TO_LIVE_PERCENT_MAX: u64 = 150;

/// Writes snapshots of one store to one data directory, which it locks.
pub struct Writer {
    disk: Box<dyn Disk>,
    seed: Seed,
    generation: Generation,
    /// Whether the next pass begins a new generation.
    afresh: bool,
    /// Whether the manifest may refer to the generation that is being written.
    may_be_named: bool,
    /// Timeout of every write to the disk.
    pub(super) timeout: Duration,
    /// Number of successful operations on the disk. If it does not change for the timeout, the disk makes no progress.
    pub(super) progress: Arc<AtomicU64>,
    /// Figures of the restore before it.
    pub(super) restore: RestoreFigures,
    /// None if a test's disk needs no lock.
    _lock: Option<DirectoryLock>,
}

/// The generation that is being written.
pub(super) struct Generation {
    pub(super) number: u64,
    /// The number of the next record.
    pub(super) next_record: u64,
    /// Bytes of all its records.
    pub(super) bytes: u64,
    pub(super) limits: LimitIndex,
    /// Bytes of one counter, if known.
    pub(super) counter_bytes: u64,
}

/// The limits to which counters of a generation refer by their places.
#[derive(Default)]
pub(super) struct LimitIndex {
    /// Places by [`LimitId`].
    places: Vec<Option<u32>>,
    /// Number of limits with a place.
    count: u32,
    /// Limits with a place that are not written yet.
    unwritten: Vec<LimitId>,
    /// The records with the other limits.
    pub(super) records: Vec<u64>,
    /// Numbers that the table of limits had freed when the places were given.
    freed: u64,
}

/// The result of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pass {
    /// Whether it was a full pass: every page, to a new generation.
    pub afresh: bool,
    /// Pages written.
    pub pages: u64,
    /// Counters written.
    pub counters: u64,
    /// Bytes of the records.
    pub bytes: u64,
}

impl LimitIndex {
    /// An index of limits that are already written, each at its place.
    pub(super) fn of_written(limits: impl Iterator<Item = LimitId>, records: Vec<u64>) -> Self {
        let mut index = Self { records, ..Self::default() };
        for limit in limits {
            *index.entry(limit) = Some(index.count);
            index.count += 1;
        }
        index
    }

    /// Forgets all places if numbers were freed since: some may belong to other limits now. Counters that are written from then on refer
    /// to their limits by new places.
    fn forget_freed(&mut self, limits: &PinnedLimits<'_>) {
        if limits.freed() != self.freed {
            self.places.clear();
            self.freed = limits.freed();
        }
    }

    fn entry(&mut self, limit: LimitId) -> &mut Option<u32> {
        let index = limit.0 as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, None);
        }
        &mut self.places[index]
    }

    /// The place of the limit. Adds the limit if it is new.
    fn place(&mut self, limit: LimitId) -> u32 {
        if let Some(place) = *self.entry(limit) {
            return place;
        }
        let place = self.count;
        *self.entry(limit) = Some(place);
        self.unwritten.push(limit);
        self.count += 1;
        place
    }
}

impl Generation {
    /// A new generation.
    pub(super) fn empty(number: u64) -> Self {
        Self { number, next_record: 0, bytes: 0, limits: LimitIndex::default(), counter_bytes: 0 }
    }
}

impl Writer {
    /// A writer that continues a generation, or begins the next one with a full pass.
    pub(super) fn new(
        disk: Box<dyn Disk>,
        lock: Option<DirectoryLock>,
        seed: Seed,
        generation: Generation,
        afresh: bool,
    ) -> Self {
        Self {
            disk,
            seed,
            generation,
            afresh,
            may_be_named: !afresh,
            timeout: TIMEOUT_DEFAULT,
            progress: Arc::default(),
            restore: RestoreFigures::default(),
            _lock: lock,
        }
    }

    /// Sets the timeout of writes to the disk, which is 10 s by default.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self.disk.set_timeout(timeout);
        self
    }

    /// Sets the figures of the restore before it.
    pub fn with_restore(self, restore: RestoreFigures) -> Self {
        Self { restore, ..self }
    }

    /// Writes what changed since the last pass. After an error, the last committed pass is still valid, and the next pass writes
    /// everything.
    pub fn pass(&mut self, store: &Store, limits: &LimitTable, clock: &dyn Clock) -> Result<Pass, DiskError> {
        let live_bytes = self.generation.counter_bytes * store.counters() as u64;
        let has_outgrown =
            self.generation.bytes > LOG_BYTES_MIN.max(live_bytes * LOG_TO_LIVE_PERCENT_MAX / 100);
        if self.afresh || has_outgrown {
            self.afresh = true;
            self.may_be_named = false;
            self.generation = Generation::empty(self.generation.number + 1);
        }
        let written = self.write(store, limits, clock);
        if written.is_err() && !self.may_be_named {
            // The generation will not be continued, and may use the space that is missing.
            let _ = self.disk.remove(self.generation.number);
        }
        self.afresh = written.is_err();
        self.disk.close();
        written
    }

    /// Bytes of the data directory.
    pub fn disk_bytes(&mut self) -> Result<u64, DiskError> {
        self.disk.bytes()
    }

    fn write(&mut self, store: &Store, limits: &LimitTable, clock: &dyn Clock) -> Result<Pass, DiskError> {
        let mut pass = Pass { afresh: self.afresh, ..Pass::default() };
        let limits = limits.pin();
        self.generation.limits.forget_freed(&limits);
        if self.afresh {
            self.disk.remove(self.generation.number)?;
            let head = Head::new(&self.seed, store.shard_count());
            self.append(&mut pass, |position| record::seal_json(Kind::Head, position, &head))?;
        }
        self.write_pages(store, &mut pass)?;
        if pass.pages == 0 && !self.afresh {
            return Ok(pass);
        }
        self.write_limits(&limits, &mut pass)?;
        let commit = Commit {
            at_nanos: clock.now().as_nanos(),
            counters: store.counters() as u64,
            limit_records: self.generation.limits.records.clone(),
        };
        self.append(&mut pass, |position| record::seal_json(Kind::Commit, position, &commit))?;
        self.commit()?;
        if self.afresh {
            self.generation.counter_bytes =
                pass.bytes.div_ceil(pass.counters.max(1)).min(RECORD_BYTES as u64);
            self.remove_others();
        }
        Ok(pass)
    }

    /// Removes every other generation. If one cannot be removed now, it is removed at the next commit.
    fn remove_others(&mut self) {
        for generation in self.disk.generations().unwrap_or_default() {
            if generation != self.generation.number {
                let _ = self.disk.remove(generation);
            }
        }
    }

    fn write_pages(&mut self, store: &Store, pass: &mut Pass) -> Result<(), DiskError> {
        let wanted = if self.afresh { Wanted::All } else { Wanted::Changed };
        let (mut copies, mut body) = (PageCopies::new(), Vec::with_capacity(RECORD_BYTES + RECORD_BYTES / 4));
        for shard in 0..store.shard_count() {
            let mut next = Some(0);
            while let Some(from) = next {
                next = store.lock(shard).copy_pages(from, wanted, &mut copies);
                for (keys, counters) in copies.iter() {
                    let index = &mut self.generation.limits;
                    let kept = counters
                        .iter()
                        .map(|(key, counter)| (*key, index.place(counter.limit()), counter.state()));
                    pages::encode(&mut body, shard as u16, keys, kept);
                    pass.pages += 1;
                    pass.counters += counters.len() as u64;
                }
                if body.len() >= RECORD_BYTES {
                    self.append(pass, |position| record::seal(Kind::Pages, position, &body))?;
                    body.clear();
                }
            }
        }
        if body.is_empty() {
            return Ok(());
        }
        self.append(pass, |position| record::seal(Kind::Pages, position, &body))
    }

    /// Writes the limits that were added in this pass.
    fn write_limits(&mut self, limits: &PinnedLimits<'_>, pass: &mut Pass) -> Result<(), DiskError> {
        if self.generation.limits.unwritten.is_empty() {
            return Ok(());
        }
        let unwritten = std::mem::take(&mut self.generation.limits.unwritten);
        let entry = |id: &LimitId| {
            let info =
                limits.get(*id).expect("a counter of this pass has it, and no number is freed meanwhile");
            LimitInfo::clone(&info)
        };
        let entries: Vec<LimitInfo> = unwritten.iter().map(entry).collect();
        self.generation.limits.records.push(self.generation.next_record);
        self.append(pass, |position| record::seal_json(Kind::Limits, position, &entries))
    }

    fn append(&mut self, pass: &mut Pass, seal: impl FnOnce(Position) -> Vec<u8>) -> Result<(), DiskError> {
        let (generation, number) = (self.generation.number, self.generation.next_record);
        let record = seal(Position { generation, number });
        self.generation.next_record += 1;
        self.generation.bytes += record.len() as u64;
        pass.bytes += record.len() as u64;
        self.disk.append(generation, number, record)?;
        self.advance();
        Ok(())
    }

    fn advance(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the records durable, then refers to them in the manifest.
    fn commit(&mut self) -> Result<(), DiskError> {
        self.disk.sync(self.generation.number)?;
        self.advance();
        let last = self.generation.next_record - 1;
        self.may_be_named = true;
        self.disk.write_manifest(&Manifest::new(self.generation.number, Some(last)).to_bytes())
    }
}
