//! Copying the pages of a shard.

use super::{
    Shard,
    page_copies::{PageCopies, Wanted},
};

impl Shard {
    /// Copies the next wanted pages, from the page numbered `from` on, and counts them as unchanged. Returns the number
    /// of the next page, or none if the last page was reached. Pages that are split meanwhile get higher numbers.
    pub fn copy_pages(&mut self, from: usize, wanted: Wanted, copies: &mut PageCopies) -> Option<usize> {
        copies.clear();
        self.counters.copy_pages(from, wanted, copies)
    }

    /// Marks every page as unchanged: what is in memory was read from where it would be written to.
    pub fn mark_unchanged(&mut self) {
        self.counters.mark_unchanged();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        algorithm::State,
        limit::{LimitId, Timestamp},
        store::{Counter, Key, PageKeys},
    };
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(number: u64) -> Key {
        Key::from_halves(number, number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
    }

    fn counter(value: u64) -> Counter {
        Counter::new(State::Words([value, 0]), LimitId(0), Timestamp::from_nanos(u64::MAX))
    }

    /// Continues the pass by one step; starts the next one after the last.
    fn step(shard: &mut Shard, next: &mut usize, kept: &mut BTreeMap<Key, State>) -> bool {
        let mut copies = PageCopies::new();
        let to = shard.copy_pages(*next, Wanted::Changed, &mut copies);
        for (keys, counters) in copies.iter() {
            kept.retain(|&key, _| !keys.contain(key));
            kept.extend(counters.iter().map(|(key, counter)| (*key, counter.state().into_owned())));
        }
        *next = to.unwrap_or(0);
        to.is_none()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn copies_of_changed_pages_in_the_order_of_copying_make_the_whole(
            steps in prop::collection::vec((0..1500u64, 0..20u8), 1..2000),
        ) {
            let (mut shard, mut kept, mut expected, mut next) =
                (Shard::default(), BTreeMap::new(), BTreeMap::new(), 0);
            for (index, (number, action)) in (0..).zip(steps) {
                if action == 0 {
                    step(&mut shard, &mut next, &mut kept);
                    continue;
                }
                expected.insert(key(number), State::Words([index, 0]));
                match shard.find(key(number)) {
                    Some(place) => *shard.get_mut(place) = counter(index),
                    None => drop(shard.insert(key(number), counter(index), Timestamp::EPOCH)),
                }
            }
            // The pass in progress, and another for pages that changed behind it.
            for _ in 0..2 {
                while !step(&mut shard, &mut next, &mut kept) {}
            }
            prop_assert_eq!(kept, expected);
        }
    }

    #[test]
    fn an_unchanged_page_is_not_copied_again() {
        let mut shard = Shard::default();
        for number in 0..200 {
            shard.insert(key(number), counter(number), Timestamp::EPOCH);
        }
        let copied = |shard: &mut Shard, wanted| {
            let (mut copies, mut next, mut pages) = (PageCopies::new(), Some(0), 0);
            while let Some(from) = next {
                next = shard.copy_pages(from, wanted, &mut copies);
                pages += copies.iter().count();
            }
            pages
        };
        let all = copied(&mut shard, Wanted::Changed);
        assert!(all >= 4);
        assert_eq!(copied(&mut shard, Wanted::Changed), 0);
        let place = shard.find(key(7)).unwrap();
        *shard.get_mut(place) = counter(1);
        assert_eq!(copied(&mut shard, Wanted::Changed), 1);
        assert_eq!(copied(&mut shard, Wanted::All), all);
    }

    #[test]
    fn a_half_knows_its_whole() {
        let keys = PageKeys { depth: 3, bits: 0b101 };
        assert_eq!(keys.half(true), PageKeys { depth: 4, bits: 0b1101 });
        assert_eq!(keys.half(true).whole(), Some(keys));
        assert_eq!(keys.half(false).whole(), Some(keys));
        assert_eq!(PageKeys::ALL.whole(), None);
    }
}
