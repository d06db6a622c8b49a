//! The counters: sharded, bounded, expiring. No IO, no clock.
//!
//! - A counter is found by its [`Key`]; under the locks of a request's shards, all of its counters are read at one time.
//! - There are never more counters than [`StoreSettings::counters_max`]; a live counter is never dropped to make room.
//! - Growth and expiry touch one page at a time: no operation's cost depends on the number of counters.

mod capacity;
mod counter;
mod page_copies;
mod removal;
mod search;
mod search_budget;
mod shard;

pub use crate::key::{Fingerprint, Key, Seed};
pub use capacity::{COUNTER_BYTES, default_counters_max};
pub use counter::Counter;
pub use page_copies::{PageCopies, PageKeys, Wanted};
pub use removal::Removed;
pub use shard::{Crowded, PlaceIndex, Shard, Swept};

use crate::{
    limit::{LimitId, Timestamp},
    sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard},
};
use search_budget::SearchBudget;
use std::sync::atomic::Ordering;

/// Many more than cores, so that threads rarely contend for a lock or a cache line, and few enough that empty shards cost
/// little: half a megabyte.
///
/// The model checker makes a store for each schedule, unit tests for each random case, and both use fewer.
const SHARD_BITS: u32 = if cfg!(any(feature = "model", test)) { 6 } else { 11 };

const SHARDS: usize = 1 << SHARD_BITS;

/// Adjacent shards.
type Group = Box<[Aligned<Mutex<Shard>>]>;
const GROUP: usize = 64;

/// The verdict on a request that needs a new counter in a full store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnFull {
    /// Denied: the limits hold, and new keys are denied until a counter expires.
    #[default]
    Deny,
    /// Admitted uncounted: new keys are not limited until a counter expires.
    Allow,
}

/// The store's bounds.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// The secret of the keys.
    pub seed: Seed,
    /// Maximum number of counters.
    pub counters_max: usize,
    /// The verdict beyond that.
    pub on_full: OnFull,
}

/// The sharded counters.
pub struct Store {
    /// In groups: an allocation as long as all of them would be rounded up to huge pages.
    shards: Box<[Group]>,
    /// Counters that exist or are reserved, over all shards.
    counters: AtomicUsize,
    /// The shard that [`Store::search_room`] searches next besides the locked shards, modulo the number of shards.
    another: AtomicUsize,
    search_budget: SearchBudget,
    /// Requests that found no room.
    no_room: AtomicUsize,
    /// Counters dropped after they expired.
    expired: AtomicUsize,
    settings: StoreSettings,
    /// Whether decisions are numbered.
    is_numbered: AtomicBool,
    last_number: Aligned<AtomicU64>,
}

/// On a cache line of its own, so that writing it, as when a shard is locked, does not slow its neighbours.
#[repr(align(64))]
struct Aligned<T>(T);

impl Store {
    /// An empty store.
    pub fn new(settings: StoreSettings) -> Self {
        let group = || (0..GROUP).map(|_| Aligned(Mutex::new(Shard::default()))).collect();
        let shards = (0..SHARDS / GROUP).map(|_| group()).collect();
        Self {
            shards,
            counters: AtomicUsize::new(0),
            another: AtomicUsize::new(0),
            search_budget: SearchBudget::default(),
            no_room: AtomicUsize::new(0),
            expired: AtomicUsize::new(0),
            settings,
            is_numbered: AtomicBool::new(false),
            last_number: Aligned(AtomicU64::new(0)),
        }
    }

    /// Starts or stops numbering decisions, for readers that need their order. Numbers continue where they stopped.
    pub fn number_decisions(&self, is_numbered: bool) {
        self.is_numbered.store(is_numbered, Ordering::Relaxed);
    }

    /// The next number; 0 if decisions are not numbered. Taken while the shards of all counters of a decision are locked, the
    /// numbers of two decisions on one counter are in the order in which they changed it: the lock orders both, and an atomic
    /// has one order of changes, relaxed or not.
    #[inline]
    pub fn next_number(&self) -> u64 {
        match self.is_numbered.load(Ordering::Relaxed) {
            true => self.last_number.0.fetch_add(1, Ordering::Relaxed) + 1,
            false => 0,
        }
    }

    /// The secret under which keys are made.
    pub fn seed(&self) -> &Seed {
        &self.settings.seed
    }

    /// The verdict on a request that needs a new counter in a full store.
    pub fn on_full(&self) -> OnFull {
        self.settings.on_full
    }

    /// Maximum number of counters.
    pub fn counters_max(&self) -> usize {
        self.settings.counters_max
    }

    /// Number of counters.
    pub fn counters(&self) -> usize {
        self.counters.load(Ordering::Relaxed)
    }

    /// Number of shards.
    pub fn shard_count(&self) -> usize {
        SHARDS
    }

    /// The shard that holds the key. Keys in ascending order have shards in ascending order.
    #[inline]
    pub fn shard_of(key: Key) -> usize {
        key.leading_bits(SHARD_BITS)
    }

    #[inline]
    fn shard(&self, shard: usize) -> &Mutex<Shard> {
        &self.shards[shard / GROUP][shard % GROUP].0
    }

    /// Locks one shard. Several are locked in ascending order, because two requests that share two shards must not deadlock.
    #[inline]
    pub fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shard(shard).lock()
    }

    /// Reserves room for new counters; false if there is not enough.
    pub fn reserve(&self, counters: usize) -> bool {
        let fits = |held: usize| held.checked_add(counters).filter(|&sum| sum <= self.settings.counters_max);
        self.counters.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Takes the room of a counter that expired, was dropped, and is made again by the request that dropped it. Another counter may have
    /// taken that room meanwhile: while both exist, the store has one counter beyond its maximum.
    pub fn take_again(&self) {
        self.counters.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives back the room of counters that expired and were dropped.
    pub fn release_expired(&self, counters: usize) {
        if counters > 0 {
            self.expired.fetch_add(counters, Ordering::Relaxed);
            self.release(counters);
        }
    }

    /// Counters dropped after they expired, so far.
    pub fn expired(&self) -> usize {
        self.expired.load(Ordering::Relaxed)
    }

    /// Gives back room that was reserved.
    fn release(&self, counters: usize) {
        self.counters.fetch_sub(counters, Ordering::Relaxed);
    }

    /// Requests that needed a new counter and found no room, so far.
    pub fn no_room(&self) -> usize {
        self.no_room.load(Ordering::Relaxed)
    }

    /// Counts a request that found no room.
    pub fn count_no_room(&self) {
        self.no_room.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `visit` with the limit of every counter: a few pages under each lock. A counter that is made meanwhile may be
    /// left out.
    pub fn visit_limits(&self, visit: &mut dyn FnMut(LimitId)) {
        for shard in 0..self.shard_count() {
            let mut next = Some(0);
            while let Some(from) = next {
                next = self.lock(shard).visit_limits(from, visit);
            }
        }
    }

    /// Drops the expired counters of the next `pages_max` pages of one shard; returns how many were dropped and whether
    /// the shard has been gone through to its end.
    pub fn sweep(&self, shard: usize, pages_max: usize, now: Timestamp) -> Swept {
        self.sweep_visiting(shard, pages_max, now, |_, _| {})
    }

    /// Drops expired counters, and calls `visit` with each counter of those pages and whether it stays.
    pub fn sweep_visiting(
        &self,
        shard: usize,
        pages_max: usize,
        now: Timestamp,
        visit: impl FnMut(&Counter, bool),
    ) -> Swept {
        let swept = self.lock(shard).sweep(pages_max, now, visit);
        self.release_expired(swept.dropped);
        swept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "model"))]
    #[test]
    fn a_shard_takes_one_cache_line_with_its_lock() {
        assert_eq!(size_of::<Aligned<Mutex<Shard>>>(), 64);
    }

    #[test]
    fn room_is_reserved_to_the_last_counter_and_not_beyond() {
        let seed = Seed::from_bytes([7; 16]);
        let store = Store::new(StoreSettings { seed, counters_max: 10, on_full: OnFull::Deny });
        assert!(store.reserve(9));
        assert!(!store.reserve(2));
        assert!(store.reserve(1));
        assert!(!store.reserve(usize::MAX));
        store.release(10);
        assert_eq!(store.counters(), 0);
    }
}
