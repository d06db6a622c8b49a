//! The shards of the holders. Several are locked together in ascending order.

use crate::lease::{Holder, Monotonic};
use hashbrown::HashMap;
use smallvec::SmallVec;
use tidegate_core::{
    algorithm::Algorithm,
    limiter::LeasableCharge,
    store::Key,
    sync::{Mutex, MutexGuard},
};

/// Shards of the holders, a power of two.
pub(super) const SHARDS: usize = 64;

pub(super) type Hasher = foldhash::fast::FixedState;

/// Some of the holders.
#[derive(Default)]
pub(super) struct Shard {
    pub(super) entries: HashMap<Key, Entry, Hasher>,
    /// The earliest time at which a request may be due or a holder may be dropped.
    pub(super) look_at: Monotonic,
    /// Holders that had credits at the last look.
    pub(super) held: u64,
}

pub(super) struct Entry {
    pub(super) holder: Holder,
    pub(super) algorithm: Algorithm,
    /// Whether the rule has changed. The credits are then to be released.
    pub(super) has_changed: bool,
}

#[inline]
pub(super) fn shard_of(key: Key) -> usize {
    key.halves().0 as usize % SHARDS
}

/// Locked shards, by number.
pub(super) struct Locked<'s>(SmallVec<[(usize, MutexGuard<'s, Shard>); 4]>);

impl<'s> Locked<'s> {
    /// Locks the shards of all charges, in ascending order.
    #[inline]
    pub(super) fn new(shards: &'s [Mutex<Shard>], charges: &[Option<LeasableCharge<'_>>]) -> Self {
        let mut numbers: SmallVec<[usize; 4]> =
            charges.iter().flatten().map(|charge| shard_of(charge.key())).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Self(numbers.into_iter().map(|number| (number, shards[number].lock())).collect())
    }

    #[inline]
    pub(super) fn of(&mut self, key: Key) -> &mut Shard {
        let number = shard_of(key);
        let found = self.0.iter_mut().find(|(locked, _)| *locked == number);
        found.map(|(_, shard)| &mut **shard).expect("the shards of all charges are locked")
    }
}
