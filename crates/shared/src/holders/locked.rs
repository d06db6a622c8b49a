//! Shards that are locked together, in ascending order.

use super::{Holders, Shard, shard_of};
use smallvec::SmallVec;
use tidegate_core::{limiter::LeasableCharge, store::Key, sync::MutexGuard};

impl Holders {
    /// Locks the shards of all charges, in ascending order.
    #[inline]
    pub(super) fn lock(&self, charges: &[Option<LeasableCharge<'_>>]) -> Locked<'_> {
        let mut numbers: SmallVec<[usize; 4]> =
            charges.iter().flatten().map(|charge| shard_of(charge.key())).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Locked(numbers.into_iter().map(|number| (number, self.shards[number].lock())).collect())
    }
}

/// Locked shards, by number.
pub(super) struct Locked<'s>(SmallVec<[(usize, MutexGuard<'s, Shard>); 4]>);

impl Locked<'_> {
    #[inline]
    pub(super) fn of(&mut self, key: Key) -> &mut Shard {
        let number = shard_of(key);
        let found = self.0.iter_mut().find(|(locked, _)| *locked == number);
        found.map(|(_, shard)| &mut **shard).expect("the shards of all charges are locked")
    }
}
