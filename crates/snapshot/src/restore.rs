//! Restoring: fills a store with the counters of a snapshot, and makes the writer that continues the snapshot.
//!
//! Cases of a counter:
//!
//! - Its limit is still in the rules, unchanged: the counter continues.
//! - Its limit has changed, or is no longer in the rules: the counter keeps its former algorithm until it is used, and is then converted as
//!   after a reload. If it is not used, it expires.
//! - It is of a ban that the rules do not have: it stays until [`Limiter::drop_ended_bans`], since other sources may declare its rule later.
//! - It has expired: it is left out.
//! - The clock was set back since, so that the counter is in the future: its hits count as of now. No hits are lost, and no client waits
//!   longer than the limit's window. Slots, reservations, bans in force and leases last as long as they had left at the snapshot.

use super::{
    Progress,
    disk::Disk,
    lock::DirectoryLock,
    manifest::Manifest,
    pages::KeptCounter,
    read::{self, ReadError, Snapshot},
    write::{Generation, LimitIndex, Writer},
};
use tidegate_core::{
    algorithm::Algorithm,
    limit::{LimitId, Timestamp},
    limiter::Limiter,
    rules::LimitInfo,
    store::{Counter, Crowded, Seed, Store},
};

/// The result of restoring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Restored {
    /// Counters restored.
    pub counters: u64,
    /// Counters that had expired.
    pub expired: u64,
    /// Whether the clock is behind the time of the snapshot: it was set back.
    pub from_the_future: bool,
    /// Time of the snapshot; none if there was none.
    pub at: Option<Timestamp>,
}

/// The reason why an existing snapshot cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The snapshot has more counters than the store may have.
    #[error("it holds more than {counters_max} live counters: raise --max-counters")]
    Full {
        /// The store's bound.
        counters_max: usize,
    },
    /// Its keys are not those of any server.
    #[error(transparent)]
    Crowded(#[from] Crowded),
}

/// Makes a limiter by `build` with the secret of the keys, fills it, and makes the writer that continues the snapshot.
pub(super) fn restore(
    mut disk: Box<dyn Disk>,
    lock: Option<DirectoryLock>,
    fresh_seed: Seed,
    build: impl FnOnce(Seed) -> Limiter,
    now: Timestamp,
    progress: impl FnMut(Progress),
) -> Result<(Limiter, Writer, Restored), RestoreError> {
    let Some(mut snapshot) = read::find(&mut *disk)? else {
        // From now on, a generation without a manifest means that the manifest was lost.
        disk.write_manifest(&Manifest::new(0, None).to_bytes()).map_err(ReadError::from)?;
        let limiter = build(fresh_seed.clone());
        let writer = Writer::new(disk, lock, fresh_seed, Generation::empty(0), true);
        return Ok((limiter, writer, Restored::default()));
    };
    let limiter = build(snapshot.seed.clone());
    let (rules, store, at) = (limiter.rules(), limiter.store(), snapshot.at);
    let limit = |info: &LimitInfo| (rules.limits().register(info.clone()), info.algorithm.clone());
    let limits: Vec<(LimitId, Algorithm)> = snapshot.limits.iter().map(limit).collect();
    let mut restored = Restored { at: Some(at), from_the_future: at > now, ..Restored::default() };
    snapshot.read_counters(&mut *disk, progress, |counters| {
        for KeptCounter { key, limit, state } in counters {
            let (limit, algorithm) = &limits[limit as usize];
            let state = if at > now { algorithm.set_back(state, at, now) } else { state };
            let expires = algorithm.expires(&state);
            if expires <= now {
                restored.expired += 1;
                continue;
            }
            if !store.reserve(1) {
                return Err(RestoreError::Full { counters_max: store.counters_max() });
            }
            let counter = Counter::new(state, *limit, expires);
            let dropped = store.lock(Store::shard_of(key)).insert_foreign(key, counter, now)?;
            store.release_expired(dropped);
            restored.counters += 1;
        }
        Ok(())
    })?;

    let generation = continued(&snapshot, limits.iter().map(|(limit, _)| *limit));
    // Records after the commit belong to an unfinished pass.
    let is_cut = disk.cut(generation.number, generation.next_record).is_ok();
    disk.close();
    // The records do not match the counters if these were moved to now, or are in other shards than in their pages.
    let afresh = restored.from_the_future || snapshot.shards != store.shard_count() || !is_cut;
    for shard in 0..store.shard_count() {
        store.lock(shard).mark_unchanged();
    }
    let writer = Writer::new(disk, lock, snapshot.seed.clone(), generation, afresh);
    Ok((limiter, writer, restored))
}

/// The generation as of the commit.
fn continued(snapshot: &Snapshot, limits: impl Iterator<Item = LimitId>) -> Generation {
    Generation {
        number: snapshot.generation,
        next_record: snapshot.committed + 1,
        bytes: snapshot.bytes,
        limits: LimitIndex::of_written(limits, snapshot.limit_records.clone()),
        // By the number of counters alive, it would grow with the generation, which would then never be replaced.
        counter_bytes: snapshot.bytes.div_ceil(snapshot.written.max(1)),
    }
}
