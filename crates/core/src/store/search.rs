//! The search for room in a full store: drops expired counters that the sweeper has not reached yet. The search takes time, which a flood
//! of new keys could exploit, so searches without result are bounded for each second: expiry is in whole seconds, and a repeated search
//! would find nothing before the next.

use super::{Shard, Store};
use crate::limit::Timestamp;
use std::sync::atomic::Ordering;

/// Pages of each shard that are searched for one request.
const PAGES_AT_ONCE: usize = 2;

impl Store {
    /// Drops expired counters of the shards that the caller has locked, and of one other shard: with few counters, none of the locked
    /// shards may have an expired counter. Skips the other shard if it is locked, and so cannot deadlock. Returns false without searching
    /// if too many searches of this second found nothing.
    pub fn search_room<'g>(&self, held: impl Iterator<Item = &'g mut Shard>, now: Timestamp) -> bool {
        if self.search_budget.is_spent(now) {
            return false;
        }
        let (mut pages, mut dropped) = (0, 0);
        let mut search = |shard: &mut Shard| {
            dropped += shard.drop_expired(PAGES_AT_ONCE, now);
            pages += PAGES_AT_ONCE as u32;
        };
        held.for_each(&mut search);
        let another = self.another.fetch_add(1, Ordering::Relaxed) % self.shard_count();
        if let Some(mut another) = self.shard(another).try_lock() {
            search(&mut another);
        }
        self.release_expired(dropped);
        if dropped == 0 {
            self.search_budget.spend(pages, now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        algorithm::State,
        limit::LimitId,
        store::{Counter, Key, OnFull, Seed, StoreSettings, search_budget::FRUITLESS_PAGES_MAX},
    };

    fn store() -> Store {
        Store::new(StoreSettings { seed: Seed::from_bytes([7; 16]), counters_max: 1, on_full: OnFull::Deny })
    }

    #[test]
    fn searches_without_result_are_bounded_in_each_second() {
        let store = store();
        for seconds in [10, 11, 9, 1 << 33] {
            for nanos in [0, 999_999_999] {
                let now = Timestamp::from_nanos(seconds * 1_000_000_000 + nanos);
                let searches = (0..).take_while(|_| store.search_room([].into_iter(), now)).count();
                let expected = if nanos == 0 { FRUITLESS_PAGES_MAX as usize / PAGES_AT_ONCE } else { 0 };
                assert_eq!(searches, expected, "in second {seconds}");
            }
        }
    }

    #[test]
    fn searches_that_find_something_are_not_bounded() {
        let store = store();
        let now = Timestamp::from_millis(10_000);
        let mut held = Shard::default();
        for _ in 0..FRUITLESS_PAGES_MAX {
            assert!(store.reserve(1));
            held.insert(Key::from_halves(1, 1), Counter::new(State::EMPTY, LimitId(0), now), now);
            assert!(store.search_room([&mut held].into_iter(), now));
        }
        assert_eq!(store.counters(), 0);
    }
}
