//! Counters of several keys, locked together.

use crate::{
    store::{Counter, Key, Shard, Store},
    sync::MutexGuard,
};
use smallvec::SmallVec;

/// The shards of some keys, each with its number.
pub(super) struct LockedKeys<'s>(SmallVec<[(usize, MutexGuard<'s, Shard>); 2]>);

impl<'s> LockedKeys<'s> {
    /// Locks the shards of keys in ascending order, which is the order of the shards: two requests that share two shards must not deadlock.
    pub(super) fn lock(store: &'s Store, keys: impl Iterator<Item = Key>) -> Self {
        let mut shards: SmallVec<[(usize, MutexGuard<'s, Shard>); 2]> = SmallVec::new();
        for shard in keys.map(Store::shard_of) {
            if shards.last().is_none_or(|(last, _)| *last != shard) {
                shards.push((shard, store.lock(shard)));
            }
        }
        Self(shards)
    }

    fn index(&self, key: Key) -> usize {
        let found = self.0.binary_search_by_key(&Store::shard_of(key), |(number, _)| *number);
        found.expect("the shard of each key is locked")
    }

    /// The shard of one of these keys.
    pub(super) fn shard(&mut self, key: Key) -> &mut Shard {
        let index = self.index(key);
        &mut self.0[index].1
    }

    /// The counter of one of these keys, if it exists.
    pub(super) fn get(&self, key: Key) -> Option<&Counter> {
        let shard = &self.0[self.index(key)].1;
        shard.find(key).map(|slot| shard.get(slot))
    }

    /// As [`Self::get`], to be changed.
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Counter> {
        let shard = self.shard(key);
        shard.find(key).map(|slot| shard.get_mut(slot))
    }
}
