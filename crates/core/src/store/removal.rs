//! Removal of counters that are not expired, for operators.

use super::{Counter, Key, Shard, Store};

/// Counters that were removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removed {
    /// Their number.
    pub counters: usize,
    /// The number of the removal in the sequence of decisions: see [`Store::next_number`].
    pub number: u64,
}

impl Store {
    /// Removes a counter from its shard; false if there is none.
    pub fn remove(&self, shard: &mut Shard, key: Key) -> bool {
        let is_removed = shard.remove(key);
        self.release(usize::from(is_removed));
        is_removed
    }

    /// Removes the counters that `is_removed` selects, a few pages under each lock; returns how many. A
    /// counter that is made meanwhile may be left out.
    pub fn remove_where(&self, is_removed: impl Fn(Key, &Counter) -> bool) -> usize {
        let mut removed = 0;
        for shard in 0..self.shard_count() {
            let mut next = Some(0);
            while let Some(from) = next {
                let keep = |key, counter: &Counter| !is_removed(key, counter);
                let (dropped, following) = self.lock(shard).retain(from, keep);
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
        limit::{LimitId, Timestamp},
        store::{OnFull, Seed, StoreSettings},
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
        let removed = |number| store.remove(&mut store.lock(Store::shard_of(key(number))), key(number));
        assert_eq!([9, 7, 7, 4_001].map(removed), [true, true, false, false]);
        assert_eq!(store.remove_where(|_, counter| counter.limit() == LimitId(1)), 1_998);
        assert_eq!(store.counters(), 2_000);
        let has = |number| store.lock(Store::shard_of(key(number))).find(key(number)).is_some();
        assert!((0..4_000).all(|number| has(number) == (number % 2 == 0)));
    }
}
