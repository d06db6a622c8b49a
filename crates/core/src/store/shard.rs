//! One shard: a table of counters, and the expiry of each.

use super::{
    Counter, Key,
    table::{Crowded, PlaceIndex, Swept, Table},
};
use crate::limit::{LimitId, Timestamp};

/// Some of the counters, behind one lock.
#[derive(Default)]
pub struct Shard {
    pub(super) counters: Table<Counter>,
}

impl Shard {
    /// The place of the key's counter: valid until something is inserted or swept.
    #[inline]
    pub fn find(&self, key: Key) -> Option<PlaceIndex> {
        self.counters.find(key)
    }

    /// Prefetches the page of the key. [`Shard::fetch_place`] is the next step.
    #[inline]
    pub fn fetch_page(&self, key: Key) {
        self.counters.fetch_page(key);
    }

    /// Prefetches the counter of the key.
    #[inline]
    pub fn fetch_place(&self, key: Key) {
        self.counters.fetch_place(key);
    }

    /// The counter in a place.
    #[inline]
    pub fn get(&self, place: PlaceIndex) -> &Counter {
        &self.counters.get(place).value
    }

    /// The counter in a place, to be changed.
    #[inline]
    pub fn get_mut(&mut self, place: PlaceIndex) -> &mut Counter {
        self.counters.get_mut(place)
    }

    /// Adds a counter for a key that has none, made under the store's secret; returns how many expired counters made room.
    pub fn insert(&mut self, key: Key, counter: Counter, now: Timestamp) -> usize {
        self.insert_foreign(key, counter, now).expect("keys made under a secret are spread")
    }

    /// As [`Shard::insert`], for a key from a file, which its author may have chosen.
    pub fn insert_foreign(&mut self, key: Key, counter: Counter, now: Timestamp) -> Result<usize, Crowded> {
        self.counters.insert(key, counter, needed_at(now))
    }

    /// See [`Store::sweep`](super::Store::sweep). Calls `visit` with each counter, and whether it stays.
    pub fn sweep(
        &mut self,
        pages_max: usize,
        now: Timestamp,
        mut visit: impl FnMut(&Counter, bool),
    ) -> Swept {
        let is_live = live_at(now);
        self.counters.sweep(pages_max, |counter| {
            let stays = is_live(counter);
            visit(counter, stays);
            stays
        })
    }

    /// Drops expired counters of a few pages to make room.
    pub(super) fn drop_expired(&mut self, pages_max: usize, now: Timestamp) -> usize {
        self.counters.sweep(pages_max, needed_at(now)).dropped
    }

    /// Calls `visit` with the limit of every counter in a few pages from page `from` on; returns the page to go on with.
    /// Keys never move to a page with a lower number, so that no counter is left out between two calls.
    pub fn visit_limits(&self, from: usize, visit: &mut dyn FnMut(LimitId)) -> Option<usize> {
        self.counters.visit(from, |counter| visit(counter.limit()))
    }

    /// Every counter, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &Counter)> {
        self.counters.iter().map(|place| (place.key, &place.value))
    }
}

fn live_at(now: Timestamp) -> impl Fn(&Counter) -> bool {
    let now_secs = now.as_nanos() / 1_000_000_000;
    move |counter| counter.is_live(now_secs)
}

/// The counters that stay when room is made: live counters, and counters with slots that nothing has released, which the sweeper counts
/// when it drops them.
fn needed_at(now: Timestamp) -> impl Fn(&Counter) -> bool {
    let is_live = live_at(now);
    move |counter| is_live(counter) || counter.slots().is_some_and(|slots| slots.all().len() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::State;

    #[test]
    fn a_place_takes_forty_bytes() {
        assert_eq!(size_of::<super::super::table::Place<Counter>>(), 40);
    }

    #[test]
    fn a_counter_is_swept_once_it_counts_nothing_and_not_before() {
        let mut shard = Shard::default();
        let key = Key::from_halves(1, 1);
        let counter = Counter::new(State::Words([1, 1]), LimitId(0), Timestamp::from_millis(10_500));
        shard.insert(key, counter, Timestamp::EPOCH);
        assert_eq!(shard.sweep(8, Timestamp::from_millis(10_999), |_, stays| assert!(stays)).dropped, 0);
        assert_eq!(shard.sweep(8, Timestamp::from_millis(11_000), |_, stays| assert!(!stays)).dropped, 1);
        assert!(shard.find(key).is_none());
    }
}
