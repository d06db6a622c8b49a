//! A hash table that grows and shrinks a page at a time (extendible hashing).
//!
//! A directory, indexed by the last bits of a key, names the page that holds it. A full page is split in two; only when
//! the directory has no bit left to tell the halves apart is it doubled, a copy of four bytes for each of its places.
//! A page takes memory for its slots in small steps, so that little of it lies idle.
//!
//! What always holds:
//!
//! - All keys of a page agree in its bits, and every directory place that ends in those bits names the page.
//! - Keys move only into pages that are marked as changed, and never to a page with a lower number than theirs.

use super::{
    Counter, Key, PageKeys, Swept,
    copy::{PageCopies, Wanted},
};

/// The most slots of a page. A page is searched by its tags, which fill one cache line.
pub(super) const PAGE_SLOTS: usize = 64;

/// Slots are allocated in steps of this many.
const SLOT_STEP: usize = 8;

/// Pages that are looked at for changes in one go.
const PAGES_SEARCHED_MAX: usize = 128;

/// Where a key was found: good for as long as nothing is inserted or dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    page: u32,
    slot: u32,
}

/// Something kept under a key.
#[derive(Clone, Debug)]
pub(super) struct Slot<T> {
    pub(super) key: Key,
    pub(super) value: T,
}

struct Page<T> {
    /// `Key::tag` of each slot; only the first `slots.len()` mean anything.
    tags: [u8; PAGE_SLOTS],
    /// How many of the last bits of a key are the same for the whole page.
    depth: u8,
    /// Whether anything changed since the page was last copied.
    changed: bool,
    /// Those bits.
    bits: u32,
    /// What the page holds, in no order.
    slots: Vec<Slot<T>>,
}

/// The table. See the module.
pub(super) struct Table<T> {
    /// Page numbers; `1 << depth` of them.
    directory: Vec<u32>,
    depth: u32,
    pages: Vec<Page<T>>,
    /// The page that the next sweep starts with.
    sweep_next: usize,
}

impl<T> Page<T> {
    fn new(keys: PageKeys) -> Self {
        let PageKeys { depth, bits } = keys;
        Self { tags: [0; PAGE_SLOTS], depth: depth as u8, changed: true, bits, slots: Vec::new() }
    }

    fn keys(&self) -> PageKeys {
        PageKeys { depth: u32::from(self.depth), bits: self.bits }
    }

    /// Eight tags at a time; a tag that agrees by chance costs one comparison of keys.
    #[inline]
    fn position(&self, key: Key) -> Option<usize> {
        const LOW: u64 = 0x0101_0101_0101_0101;
        const HIGH: u64 = 0x8080_8080_8080_8080;
        let wanted = LOW.wrapping_mul(u64::from(key.tag()));
        for (group, tags) in self.tags.chunks_exact(8).enumerate() {
            if group * 8 >= self.slots.len() {
                break;
            }
            let differing = u64::from_le_bytes(tags.try_into().expect("chunks of eight")) ^ wanted;
            // Marks every zero byte, and now and then a byte above one, which the keys then tell apart.
            let mut candidates = differing.wrapping_sub(LOW) & !differing & HIGH;
            while candidates != 0 {
                let slot = group * 8 + candidates.trailing_zeros() as usize / 8;
                if self.slots.get(slot).is_some_and(|slot| slot.key == key) {
                    return Some(slot);
                }
                candidates &= candidates - 1;
            }
        }
        None
    }

    fn push(&mut self, slot: Slot<T>) {
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(SLOT_STEP);
        }
        self.tags[self.slots.len()] = slot.key.tag();
        self.slots.push(slot);
        self.changed = true;
    }

    fn swap_remove(&mut self, slot: usize) {
        self.slots.swap_remove(slot);
        self.tags[slot] = self.tags[self.slots.len()];
    }

    /// Drops the slots that are not wanted any more; returns how many.
    fn retain(&mut self, keep: &impl Fn(&T) -> bool) -> usize {
        let before = self.slots.len();
        for slot in (0..before).rev() {
            if !keep(&self.slots[slot].value) {
                self.swap_remove(slot);
            }
        }
        if self.slots.capacity() - self.slots.len() >= 2 * SLOT_STEP {
            self.slots.shrink_to(self.slots.len().next_multiple_of(SLOT_STEP));
        }
        self.changed |= self.slots.len() < before;
        before - self.slots.len()
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { directory: vec![0], depth: 0, pages: vec![Page::new(PageKeys::ALL)], sweep_next: 0 }
    }
}

impl<T> Table<T> {
    #[inline]
    fn page_of(&self, key: Key) -> usize {
        let mask = (1 << self.depth) - 1;
        self.directory[(key.place_bits() & mask) as usize] as usize
    }

    /// Where the key is.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<Place> {
        let page = self.page_of(key);
        let slot = self.pages[page].position(key)?;
        Some(Place { page: page as u32, slot: slot as u32 })
    }

    #[inline]
    pub(super) fn get(&self, place: Place) -> &Slot<T> {
        &self.pages[place.page as usize].slots[place.slot as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, place: Place) -> &mut T {
        let page = &mut self.pages[place.page as usize];
        page.changed = true;
        &mut page.slots[place.slot as usize].value
    }

    /// Adds a key that is not there yet. Before a full page is split, what `keep` does not want is dropped from it;
    /// returns how many that were.
    pub(super) fn insert(&mut self, key: Key, value: T, keep: impl Fn(&T) -> bool) -> usize {
        let mut dropped = 0;
        loop {
            let page = self.page_of(key);
            if self.pages[page].slots.len() < PAGE_SLOTS {
                self.pages[page].push(Slot { key, value });
                return dropped;
            }
            dropped += self.pages[page].retain(&keep);
            if self.pages[page].slots.len() == PAGE_SLOTS {
                self.split(page);
            }
        }
    }

    /// Moves the slots of a full page whose next bit is one to a page of their own.
    fn split(&mut self, page: usize) {
        let keys = self.pages[page].keys();
        // Sixty-four keys that agree in 31 keyed hash bits do not come by chance, and nobody can make them.
        assert!(keys.depth < PageKeys::DEPTH_MAX, "the keys of a page are not spread");
        if keys.depth == self.depth {
            self.directory.extend_from_within(..);
            self.depth += 1;
        }
        let sibling_keys = keys.half(true);
        let mut sibling = Page::new(sibling_keys);
        let sibling_number = self.pages.len() as u32;
        let former = std::mem::replace(&mut self.pages[page], Page::new(keys.half(false)));
        for slot in former.slots {
            if sibling_keys.contain(slot.key) { sibling.push(slot) } else { self.pages[page].push(slot) }
        }
        self.pages.push(sibling);
        // Every place that ends in the sibling's bits.
        for place in (sibling_keys.bits as usize..self.directory.len()).step_by(2 << keys.depth) {
            self.directory[place] = sibling_number;
        }
    }

    /// Drops what `keep` does not want from the next `pages_max` pages.
    pub(super) fn sweep(&mut self, pages_max: usize, keep: impl Fn(&T) -> bool) -> Swept {
        let end = self.pages.len().min(self.sweep_next.saturating_add(pages_max));
        let dropped = self.pages[self.sweep_next..end].iter_mut().map(|page| page.retain(&keep)).sum();
        let finished = end == self.pages.len();
        self.sweep_next = if finished { 0 } else { end };
        Swept { dropped, finished }
    }

    /// Counts every page as unchanged.
    pub(super) fn mark_unchanged(&mut self) {
        self.pages.iter_mut().for_each(|page| page.changed = false);
    }

    /// Everything in the table, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot<T>> {
        self.pages.iter().flat_map(|page| &page.slots)
    }
}

impl Table<Counter> {
    /// See [`Shard::copy_pages`](super::Shard::copy_pages).
    pub(super) fn copy_pages(
        &mut self,
        from: usize,
        wanted: Wanted,
        copies: &mut PageCopies,
    ) -> Option<usize> {
        let end = self.pages.len().min(from.saturating_add(PAGES_SEARCHED_MAX));
        for number in from..end {
            if copies.is_full() {
                return Some(number);
            }
            let page = &mut self.pages[number];
            if std::mem::take(&mut page.changed) || wanted == Wanted::All {
                copies.add(page.keys(), page.slots.iter().map(|slot| (slot.key, slot.value.clone())));
            }
        }
        (end < self.pages.len()).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Keys with few distinct tags and place bits, so that pages split often and tags agree by chance.
    fn key(number: u64) -> Key {
        Key::from_halves(number % 5, number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17))
    }

    proptest! {
        #[test]
        fn a_table_holds_what_a_map_holds(steps in prop::collection::vec((0..3000u64, 0..4u8), 1..4000)) {
            let mut table = Table::default();
            let mut map = HashMap::new();
            for (number, action) in steps {
                let key = key(number);
                match (table.find(key), action) {
                    (Some(place), 0) => {
                        *table.get_mut(place) += 1;
                        *map.get_mut(&key).unwrap() += 1;
                    }
                    (None, 0..=2) => {
                        table.insert(key, number, |_| true);
                        map.insert(key, number);
                    }
                    (_, 3) if number < 30 => {
                        let expected = map.len();
                        map.retain(|_, value| *value % 7 != 0);
                        let mut dropped = 0;
                        loop {
                            let swept = table.sweep(3, |value| *value % 7 != 0);
                            dropped += swept.dropped;
                            if swept.finished { break; }
                        }
                        prop_assert_eq!(dropped, expected - map.len());
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(table.iter().count(), map.len());
            for (key, value) in map {
                let place = table.find(key);
                prop_assert!(place.is_some());
                prop_assert_eq!(table.get(place.unwrap()).value, value);
            }
        }
    }

    #[test]
    fn a_full_page_is_rid_of_the_unwanted_before_it_is_split() {
        let mut table = Table::default();
        for number in 0..PAGE_SLOTS as u64 {
            table.insert(key(number), number, |_| true);
        }
        assert_eq!(table.insert(key(1000), 1000, |value| value % 2 == 0), PAGE_SLOTS / 2);
        assert_eq!(table.pages.len(), 1);
    }
}
