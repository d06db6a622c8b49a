//! Removal of counters that are not expired, for operators.

use super::{Key, Store};
use crate::limit::LimitId;

impl Store {
    /// Removes the counter of a key; whether there was one.
    pub fn remove(&self, key: Key) -> bool {
        let removed = self.lock(Self::shard_of(key)).counters.remove(key);
        if removed {
            self.release(1);
        }
        removed
    }

    /// Removes the counters of the limits that `is_removed` selects, a few pages under each lock; returns how many. A counter
    /// that is made meanwhile may be left out.
    pub fn remove_of_limits(&self, is_removed: impl Fn(LimitId) -> bool) -> usize {
        let mut removed = 0;
        for shard in 0..self.shard_count() {
            let mut next = Some(0);
            while let Some(from) = next {
                let keep = |counter: &super::Counter| !is_removed(counter.limit());
                let (dropped, following) = self.lock(shard).counters.retain(from, keep);
                self.release(dropped);
                (removed, next) = (removed + dropped, following);
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        algorithm::State,
        limit::Timestamp,
        store::{Counter, OnFull, Seed, StoreSettings},
    };

    #[test]
    fn removed_counters_give_their_room_back_and_others_stay() {
        let seed = Seed::from_bytes([7; 16]);
        let store = Store::new(StoreSettings { seed, counters_max: 5_000, on_full: OnFull::Deny });
        let key = |number: u64| Key::from_halves(number << 53, number);
        for number in 0..4_000 {
            assert!(store.reserve(1));
            let expires = Timestamp::from_millis(1_000_000);
            let counter = Counter::new(State::Words([1, 1]), LimitId((number % 2) as u32), expires);
            store.lock(Store::shard_of(key(number))).insert(key(number), counter, Timestamp::EPOCH);
        }
        assert!(store.remove(key(7)) && !store.remove(key(7)));
        assert_eq!(store.remove_of_limits(|limit| limit == LimitId(1)), 1_999);
        assert_eq!(store.counters(), 2_000);
        let has = |number| store.lock(Store::shard_of(key(number))).find(key(number)).is_some();
        assert!((0..4_000).all(|number| has(number) == (number % 2 == 0)));
    }
}
