//! A hash table that grows and shrinks a page at a time (extendible hashing).
//!
//! A directory, indexed by the last bits of a key, names the page that holds it. A full page is split in two; only when
//! the directory has no bit left to distinguish the halves is it doubled, a copy of four bytes for each of its entries.
//! A page takes memory for its slots chunk by chunk, so that little of it is unused; all chunks are of one size, so that
//! a freed one fits wherever the next is needed.
//!
//! Invariants:
//!
//! - All keys of a page agree in its bits, and every directory entry with an index that ends in those bits is the page's.
//! - Keys move only into pages that are marked as changed, and never to a page with a lower number than theirs.

use super::{
    Counter, Key,
    page_copies::{PAGE_SLOTS, PageCopies, PageKeys, Wanted},
};
use crate::prefetch::{prefetch, prefetch_element};
use std::array;

/// Slots that a page takes memory for at once.
const CHUNK_SLOTS: usize = 8;

type Chunk<T> = [Slot<T>; CHUNK_SLOTS];

/// Maximum number of directory entries for each page. Uniform keys take a few.
const PLACES_PER_PAGE_MAX: usize = 64;

/// Pages that are checked for changes in one step.
const PAGES_SEARCHED_MAX: usize = 128;

/// Pages that are visited under one lock.
const PAGES_VISITED_MAX: usize = 32;

/// Too many keys agree in the bits that distinguish pages. Keys made under a secret never do; chosen keys may, and the
/// directory that distinguished them would outgrow any memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too many keys end in the same bits: no secret made them")]
pub struct Crowded;

/// The result of one step of sweeping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Swept {
    /// Counters dropped.
    pub dropped: usize,
    /// Whether the last page of the shard was reached; the next step starts at its first.
    pub finished: bool,
}

/// The slot of a key: valid until something is inserted or dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotIndex {
    page: u32,
    slot: u32,
}

/// A value and its key.
#[derive(Clone, Default, Debug)]
pub(super) struct Slot<T> {
    pub(super) key: Key,
    pub(super) value: T,
}

#[repr(C, align(64))]
struct Page<T> {
    /// `Key::tag` of each slot; only the first `len` mean anything.
    tags: [u8; PAGE_SLOTS],
    /// Slots in use, in no order.
    len: u8,
    /// Number of last bits that all keys of the page share.
    depth: u8,
    /// Whether anything changed since the page was last copied.
    changed: bool,
    /// Those bits.
    bits: u32,
    /// The slots: as many chunks as `len` needs.
    chunks: [Option<Box<Chunk<T>>>; PAGE_SLOTS / CHUNK_SLOTS],
}

/// The table. See the module.
pub(super) struct Table<T> {
    /// Page numbers; `1 << depth` of them.
    directory: Vec<u32>,
    depth: u32,
    pages: Vec<Page<T>>,
    /// The page that the next sweep starts with.
    sweep_next: u32,
}

impl<T: Default> Page<T> {
    fn new(keys: PageKeys) -> Self {
        Self {
            tags: [0; PAGE_SLOTS],
            chunks: array::from_fn(|_| None),
            len: 0,
            depth: keys.depth as u8,
            changed: true,
            bits: keys.bits,
        }
    }

    fn keys(&self) -> PageKeys {
        PageKeys { depth: u32::from(self.depth), bits: self.bits }
    }

    #[inline]
    fn len(&self) -> usize {
        usize::from(self.len)
    }

    #[inline]
    fn slot(&self, slot: usize) -> &Slot<T> {
        &self.chunk(slot)[slot % CHUNK_SLOTS]
    }

    /// The slots around one in use.
    #[inline]
    fn chunk(&self, slot: usize) -> &Chunk<T> {
        self.chunks[slot / CHUNK_SLOTS].as_ref().expect("a slot in use has memory")
    }

    #[inline]
    fn slot_mut(&mut self, slot: usize) -> &mut Slot<T> {
        let chunk = self.chunks[slot / CHUNK_SLOTS].as_mut();
        &mut chunk.expect("a slot in use has memory")[slot % CHUNK_SLOTS]
    }

    #[inline]
    fn position(&self, key: Key) -> Option<usize> {
        self.search(key, |slot| self.slot(slot).key == key)
    }

    /// The first slot with the key's tag that `is_it`. Eight tags at a time; a tag that agrees by chance costs one call.
    #[inline]
    fn search(&self, key: Key, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        const LOW: u64 = 0x0101_0101_0101_0101;
        const HIGH: u64 = 0x8080_8080_8080_8080;
        let wanted = LOW.wrapping_mul(u64::from(key.tag()));
        for (group, tags) in self.tags.chunks_exact(8).enumerate() {
            if group * 8 >= self.len() {
                break;
            }
            let differing = u64::from_le_bytes(tags.try_into().expect("chunks of eight")) ^ wanted;
            // Marks every zero byte, and sometimes a byte above one, which the comparison of keys then rules out.
            let mut candidates = differing.wrapping_sub(LOW) & !differing & HIGH;
            while candidates != 0 {
                let slot = group * 8 + candidates.trailing_zeros() as usize / 8;
                if slot < self.len() && is_it(slot) {
                    return Some(slot);
                }
                candidates &= candidates - 1;
            }
        }
        None
    }

    /// Adds a slot to a page that is not full.
    fn push(&mut self, slot: Slot<T>) {
        let last = self.len();
        if last.is_multiple_of(CHUNK_SLOTS) {
            self.chunks[last / CHUNK_SLOTS] = Some(Box::new(array::from_fn(|_| Slot::default())));
        }
        self.tags[last] = slot.key.tag();
        self.len += 1;
        self.changed = true;
        *self.slot_mut(last) = slot;
    }

    /// Takes a slot out; the last one takes its place.
    fn swap_remove(&mut self, slot: usize) -> Slot<T> {
        let last = self.len() - 1;
        let moved = std::mem::take(self.slot_mut(last));
        let removed = if slot == last { moved } else { std::mem::replace(self.slot_mut(slot), moved) };
        self.tags[slot] = self.tags[last];
        if last.is_multiple_of(CHUNK_SLOTS) {
            self.chunks[last / CHUNK_SLOTS] = None;
        }
        self.len -= 1;
        self.changed = true;
        removed
    }

    /// Drops the slots that are not wanted any more; returns how many.
    fn retain(&mut self, mut keep: impl FnMut(&Slot<T>) -> bool) -> usize {
        let before = self.len();
        for slot in (0..before).rev() {
            if !keep(self.slot(slot)) {
                self.swap_remove(slot);
            }
        }
        before - self.len()
    }
}

impl<T: Default> Default for Table<T> {
    fn default() -> Self {
        let pages = vec![Page::new(PageKeys::ALL)];
        Self { directory: vec![0], depth: 0, pages, sweep_next: 0 }
    }
}

impl<T: Default> Table<T> {
    #[inline]
    fn page_of(&self, key: Key) -> usize {
        let mask = (1 << self.depth) - 1;
        self.directory[(key.place_bits() & mask) as usize] as usize
    }

    /// The slot of the key.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<SlotIndex> {
        let page = self.page_of(key);
        let slot = self.pages[page].position(key)?;
        Some(SlotIndex { page: page as u32, slot: slot as u32 })
    }

    /// Prefetches the page of the key.
    #[inline]
    pub(super) fn fetch_page(&self, key: Key) {
        let page = &self.pages[self.page_of(key)];
        prefetch(&page.tags);
        prefetch(&page.chunks);
    }

    /// Prefetches the slot that seems to have the key; needs the page.
    #[inline]
    pub(super) fn fetch_slot(&self, key: Key) {
        let page = &self.pages[self.page_of(key)];
        if let Some(slot) = page.search(key, |_| true) {
            let (chunk, slot) = (page.chunk(slot), slot % CHUNK_SLOTS);
            // A slot may span two cache lines; the next slot starts on the second.
            prefetch_element(chunk, slot);
            prefetch_element(chunk, slot + 1);
        }
    }

    #[inline]
    pub(super) fn get(&self, index: SlotIndex) -> &Slot<T> {
        self.pages[index.page as usize].slot(index.slot as usize)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, index: SlotIndex) -> &mut T {
        let page = &mut self.pages[index.page as usize];
        // Written only on change: other cores read the line to find their keys.
        if !page.changed {
            page.changed = true;
        }
        &mut page.slot_mut(index.slot as usize).value
    }

    /// Adds a key that is not there yet. Before a full page is split, slots that `keep` rejects are dropped from it;
    /// returns their number.
    pub(super) fn insert(&mut self, key: Key, value: T, keep: impl Fn(&T) -> bool) -> Result<usize, Crowded> {
        let mut dropped = 0;
        loop {
            let number = self.page_of(key);
            let page = &mut self.pages[number];
            if page.len() < PAGE_SLOTS {
                page.push(Slot { key, value });
                return Ok(dropped);
            }
            dropped += page.retain(|slot| keep(&slot.value));
            if page.len() == PAGE_SLOTS {
                self.split(number)?;
            }
        }
    }

    /// Moves the slots of a full page that have one as the next bit to a page of their own.
    fn split(&mut self, number: usize) -> Result<(), Crowded> {
        let places_max = PLACES_PER_PAGE_MAX * (self.pages.len() + 1);
        let page = &mut self.pages[number];
        let keys = page.keys();
        let doubles = keys.depth == self.depth;
        if doubles && (keys.depth == PageKeys::DEPTH_MAX || 2 * self.directory.len() > places_max) {
            return Err(Crowded);
        }
        let sibling_keys = keys.half(true);
        let mut sibling = Page::new(sibling_keys);
        for slot in (0..page.len()).rev() {
            if sibling_keys.contain(page.slot(slot).key) {
                let moved = page.swap_remove(slot);
                sibling.push(moved);
            }
        }
        page.depth += 1;
        page.changed = true;
        let sibling_number = self.pages.len() as u32;
        self.pages.push(sibling);
        if doubles {
            self.directory.extend_from_within(..);
            self.depth += 1;
        }
        // Every place that ends in the sibling's bits.
        for place in (sibling_keys.bits as usize..self.directory.len()).step_by(2 << keys.depth) {
            self.directory[place] = sibling_number;
        }
        Ok(())
    }

    /// Drops what `keep` rejects from the next `pages_max` pages.
    pub(super) fn sweep(&mut self, pages_max: usize, mut keep: impl FnMut(&T) -> bool) -> Swept {
        let start = self.sweep_next as usize;
        let end = self.pages.len().min(start.saturating_add(pages_max));
        let pages = self.pages[start..end].iter_mut();
        let dropped = pages.map(|page| page.retain(|slot| keep(&slot.value))).sum();
        let finished = end == self.pages.len();
        self.sweep_next = if finished { 0 } else { end as u32 };
        Swept { dropped, finished }
    }

    /// Removes a key; whether it was there.
    pub(super) fn remove(&mut self, key: Key) -> bool {
        let number = self.page_of(key);
        let page = &mut self.pages[number];
        let position = page.position(key);
        position.map(|slot| page.swap_remove(slot)).is_some()
    }

    /// Drops what `keep` rejects from the pages from `from` on, [`PAGES_VISITED_MAX`] of them; returns how many were dropped,
    /// and the next page, if there is one.
    pub(super) fn retain(&mut self, from: usize, keep: impl Fn(&Slot<T>) -> bool) -> (usize, Option<usize>) {
        let end = self.pages.len().min(from.saturating_add(PAGES_VISITED_MAX));
        let pages = self.pages.get_mut(from..end).unwrap_or_default();
        let dropped = pages.iter_mut().map(|page| page.retain(&keep)).sum();
        (dropped, (end < self.pages.len()).then_some(end))
    }

    /// Counts every page as unchanged.
    pub(super) fn mark_unchanged(&mut self) {
        self.pages.iter_mut().for_each(|page| page.changed = false);
    }

    /// Calls `visit` with everything in the pages from `from` on, [`PAGES_VISITED_MAX`] of them; returns the next page, if
    /// there is one.
    pub(super) fn visit(&self, from: usize, mut visit: impl FnMut(&T)) -> Option<usize> {
        let end = self.pages.len().min(from.saturating_add(PAGES_VISITED_MAX));
        for page in self.pages.get(from..end).unwrap_or_default() {
            (0..page.len()).for_each(|slot| visit(&page.slot(slot).value));
        }
        (end < self.pages.len()).then_some(end)
    }

    /// Everything in the table, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot<T>> {
        self.pages.iter().flat_map(|page| (0..page.len()).map(|slot| page.slot(slot)))
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
                let slots = (0..page.len()).map(|slot| page.slot(slot));
                copies.add(page.keys(), slots.map(|slot| (slot.key, slot.value.clone())));
            }
        }
        (end < self.pages.len()).then_some(end)
    }
}

#[cfg(test)]
mod tests;
