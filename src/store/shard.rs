//! One shard: a table of counters, and when each may be forgotten.

use super::{
    Key, Swept,
    table::{Place, Table},
};
use crate::{
    algorithm::State,
    limit::{LimitId, Timestamp},
};

/// One counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counter {
    /// What it remembers.
    pub state: State,
    /// The limit under which it was counted: what the state means.
    pub limit: LimitId,
    /// Whole seconds since the epoch, rounded up, from when on the state counts nothing. Good until the year 2106; what
    /// would expire later stays.
    expires_secs: u32,
}

impl Counter {
    /// A counter whose state counts nothing any more from `expires` on.
    #[inline]
    pub fn new(state: State, limit: LimitId, expires: Timestamp) -> Self {
        let expires_secs = u32::try_from(expires.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u32::MAX);
        Self { state, limit, expires_secs }
    }

    /// Whether it still counts something.
    fn is_live(&self, now_secs: u64) -> bool {
        u64::from(self.expires_secs) > now_secs || self.expires_secs == u32::MAX
    }
}

/// Some of the counters, behind one lock.
#[derive(Default)]
pub struct Shard {
    counters: Table<Counter>,
}

impl Shard {
    /// Where the counter of the key is: good until something is inserted or swept.
    #[inline]
    pub fn find(&self, key: Key) -> Option<Place> {
        self.counters.find(key)
    }

    /// The counter at a place that was found.
    #[inline]
    pub fn get(&self, place: Place) -> &Counter {
        &self.counters.get(place).value
    }

    /// The counter at a place that was found, to be changed.
    #[inline]
    pub fn get_mut(&mut self, place: Place) -> &mut Counter {
        self.counters.get_mut(place)
    }

    /// Adds a counter for a key that has none; returns how many expired ones made room.
    #[inline]
    pub fn insert(&mut self, key: Key, counter: Counter, now: Timestamp) -> usize {
        self.counters.insert(key, counter, live_at(now))
    }

    /// See [`Store::sweep`](super::Store::sweep).
    pub fn sweep(&mut self, pages_max: usize, now: Timestamp) -> Swept {
        self.counters.sweep(pages_max, live_at(now))
    }

    /// Every counter, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &Counter)> {
        self.counters.iter().map(|slot| (slot.key, &slot.value))
    }
}

fn live_at(now: Timestamp) -> impl Fn(&Counter) -> bool {
    let now_secs = now.as_nanos() / 1_000_000_000;
    move |counter| counter.is_live(now_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_takes_forty_eight_bytes() {
        assert_eq!(size_of::<super::super::table::Slot<Counter>>(), 48);
    }

    #[test]
    fn a_counter_is_swept_once_it_counts_nothing_and_not_before() {
        let mut shard = Shard::default();
        let key = Key::from_halves(1, 1);
        let counter = Counter::new(State::Words([1, 1]), LimitId(0), Timestamp::from_millis(10_500));
        shard.insert(key, counter, Timestamp::EPOCH);
        assert_eq!(shard.sweep(8, Timestamp::from_millis(10_999)).dropped, 0);
        assert_eq!(shard.sweep(8, Timestamp::from_millis(11_000)).dropped, 1);
        assert!(shard.find(key).is_none());
    }
}
