//! Copies of whole pages, for snapshots.
//!
//! A page is copied under its shard's lock in one go, so that a copied counter is never torn. A copy replaces all
//! earlier copies of its keys: a key that belongs to the page and is not in it has no counter.

use super::{Counter, Key, Shard, table::PAGE_SLOTS};

/// The keys of a shard that a page holds: those with place bits that end in `bits`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageKeys {
    /// Number of bits; at most [`PageKeys::DEPTH_MAX`].
    pub depth: u32,
    /// The last `depth` place bits of each key, without any above them.
    pub bits: u32,
}

impl PageKeys {
    /// Every key of the shard.
    pub const ALL: Self = Self { depth: 0, bits: 0 };

    /// Maximum depth of a page.
    pub const DEPTH_MAX: u32 = 31;

    /// The keys among these with `bit` as the next bit.
    pub const fn half(self, bit: bool) -> Self {
        Self { depth: self.depth + 1, bits: self.bits | (bit as u32) << self.depth }
    }

    /// The larger set that these are half of; none for all keys.
    pub const fn whole(self) -> Option<Self> {
        match self.depth {
            0 => None,
            depth => Some(Self { depth: depth - 1, bits: self.bits & !(1 << (depth - 1)) }),
        }
    }

    /// Whether the key is one of them.
    pub fn contain(self, key: Key) -> bool {
        key.place_bits() & ((1 << self.depth) - 1) == u64::from(self.bits)
    }
}

/// Which pages to copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Every page.
    All,
    /// Those that changed since they were last copied.
    Changed,
}

/// Pages copied under one lock; the memory is used again for the next.
pub struct PageCopies {
    /// The keys of each page, and where its counters end among all copied.
    pages: Vec<(PageKeys, usize)>,
    counters: Vec<(Key, Counter)>,
    /// Bytes that the counters hold beyond their own size.
    heap_bytes: usize,
}

impl PageCopies {
    /// Pages that are copied under one lock: some microseconds.
    const PAGES_MAX: usize = 8;

    /// Bytes of boxed states that are copied under one lock, not counting the rest of the last page.
    const HEAP_BYTES_MAX: usize = 64 << 10;

    /// Room for the pages of one lock, so that nothing is allocated under it.
    pub fn new() -> Self {
        Self {
            pages: Vec::with_capacity(Self::PAGES_MAX),
            counters: Vec::with_capacity(Self::PAGES_MAX * PAGE_SLOTS),
            heap_bytes: 0,
        }
    }

    /// Every copied page with its counters.
    pub fn iter(&self) -> impl Iterator<Item = (PageKeys, &[(Key, Counter)])> {
        let starts = std::iter::once(0).chain(self.pages.iter().map(|&(_, end)| end));
        starts.zip(&self.pages).map(|(start, &(keys, end))| (keys, &self.counters[start..end]))
    }

    pub(super) fn clear(&mut self) {
        self.pages.clear();
        self.counters.clear();
        self.heap_bytes = 0;
    }

    pub(super) fn is_full(&self) -> bool {
        self.pages.len() >= Self::PAGES_MAX || self.heap_bytes >= Self::HEAP_BYTES_MAX
    }

    pub(super) fn add(&mut self, keys: PageKeys, counters: impl Iterator<Item = (Key, Counter)>) {
        let heap_bytes = &mut self.heap_bytes;
        self.counters.extend(counters.inspect(|(_, counter)| *heap_bytes += counter.state().heap_bytes()));
        self.pages.push((keys, self.counters.len()));
    }
}

impl Default for PageCopies {
    fn default() -> Self {
        Self::new()
    }
}

impl Shard {
    /// Copies the next wanted pages, from the page numbered `from` on, and counts them as unchanged. Returns the number
    /// of the next page, or none if the last page was reached. Pages that are split meanwhile get higher numbers.
    pub fn copy_pages(&mut self, from: usize, wanted: Wanted, copies: &mut PageCopies) -> Option<usize> {
        copies.clear();
        self.counters.copy_pages(from, wanted, copies)
    }

    /// Counts every page as unchanged: what is in memory was read from where it would be written to.
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
