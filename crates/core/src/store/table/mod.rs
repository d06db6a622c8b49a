//! A hash table that grows and shrinks a page at a time (extendible hashing).
//!
//! A directory, indexed by the last bits of a key, names the page that holds it. A full page is split in two; only when
//! the directory has no bit left to distinguish the halves is it doubled, a copy of four bytes for each of its entries.
//! A page takes memory for its places chunk by chunk, so that little of it is unused; all chunks are of one size, so that a freed chunk
//! fits anywhere.
//!
//! Invariants:
//!
//! - All keys of a page agree in its bits, and every directory entry with an index that ends in those bits is the page's.
//! - Keys move only into pages that are marked as changed, and never to a page with a lower number than theirs.

use super::{
    Counter, Key,
    page_copies::{PAGE_PLACES, PageCopies, PageKeys, Wanted},
};
use crate::prefetch::{prefetch, prefetch_element};
use std::array;

/// Places that a page takes memory for at once.
const CHUNK_PLACES: usize = 8;

type Chunk<T> = [Place<T>; CHUNK_PLACES];

/// Maximum number of directory entries for each page. Uniform keys take a few.
const DIRECTORY_PER_PAGE_MAX: usize = 64;

/// Pages that are checked for changes in one step.
const PAGES_SEARCHED_MAX: usize = 128;

/// Pages that are visited under one lock.
const PAGES_VISITED_MAX: usize = 32;

/// Too many keys agree in the bits that distinguish pages. Keys made under a secret never do; chosen keys may, and the
/// directory that distinguished them would outgrow any memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too many keys end in the same bits; they were not made under a secret")]
pub struct Crowded;

/// The result of one step of sweeping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Swept {
    /// Counters dropped.
    pub dropped: usize,
    /// Whether the last page of the shard was reached; the next step starts at its first.
    pub finished: bool,
}

/// The place of a key: valid until something is inserted or dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlaceIndex {
    page: u32,
    place: u32,
}

/// A value and its key.
#[derive(Clone, Default, Debug)]
pub(super) struct Place<T> {
    pub(super) key: Key,
    pub(super) value: T,
}

#[repr(C, align(64))]
struct Page<T> {
    /// `Key::tag` of each place; only the first `len` mean anything.
    tags: [u8; PAGE_PLACES],
    /// Places in use, in no order.
    len: u8,
    /// Number of last bits that all keys of the page share.
    depth: u8,
    /// Whether anything changed since the page was last copied.
    changed: bool,
    /// Those bits.
    bits: u32,
    /// The places: as many chunks as `len` needs.
    chunks: [Option<Box<Chunk<T>>>; PAGE_PLACES / CHUNK_PLACES],
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
            tags: [0; PAGE_PLACES],
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
    fn place(&self, place: usize) -> &Place<T> {
        &self.chunk(place)[place % CHUNK_PLACES]
    }

    /// The chunk of a place in use.
    #[inline]
    fn chunk(&self, place: usize) -> &Chunk<T> {
        self.chunks[place / CHUNK_PLACES].as_ref().expect("a place in use has memory")
    }

    #[inline]
    fn place_mut(&mut self, place: usize) -> &mut Place<T> {
        let chunk = self.chunks[place / CHUNK_PLACES].as_mut();
        &mut chunk.expect("a place in use has memory")[place % CHUNK_PLACES]
    }

    #[inline]
    fn position(&self, key: Key) -> Option<usize> {
        self.search(key, |place| self.place(place).key == key)
    }

    /// The first place with the key's tag that `is_it`. Eight tags at a time; a tag that agrees by chance costs one call.
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
                let place = group * 8 + candidates.trailing_zeros() as usize / 8;
                if place < self.len() && is_it(place) {
                    return Some(place);
                }
                candidates &= candidates - 1;
            }
        }
        None
    }

    /// Adds a place to a page that is not full.
    fn push(&mut self, place: Place<T>) {
        let last = self.len();
        if last.is_multiple_of(CHUNK_PLACES) {
            self.chunks[last / CHUNK_PLACES] = Some(Box::new(array::from_fn(|_| Place::default())));
        }
        self.tags[last] = place.key.tag();
        self.len += 1;
        self.changed = true;
        *self.place_mut(last) = place;
    }

    /// Empties a place; the last value moves there.
    fn swap_remove(&mut self, place: usize) -> Place<T> {
        let last = self.len() - 1;
        let moved = std::mem::take(self.place_mut(last));
        let removed = if place == last { moved } else { std::mem::replace(self.place_mut(place), moved) };
        self.tags[place] = self.tags[last];
        if last.is_multiple_of(CHUNK_PLACES) {
            self.chunks[last / CHUNK_PLACES] = None;
        }
        self.len -= 1;
        self.changed = true;
        removed
    }

    /// Drops the places that `keep` rejects; returns how many.
    fn retain(&mut self, mut keep: impl FnMut(&Place<T>) -> bool) -> usize {
        let before = self.len();
        for place in (0..before).rev() {
            if !keep(self.place(place)) {
                self.swap_remove(place);
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
        self.directory[(key.page_bits() & mask) as usize] as usize
    }

    /// The place of the key.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<PlaceIndex> {
        let page = self.page_of(key);
        let place = self.pages[page].position(key)?;
        Some(PlaceIndex { page: page as u32, place: place as u32 })
    }

    /// Prefetches the page of the key.
    #[inline]
    pub(super) fn fetch_page(&self, key: Key) {
        let page = &self.pages[self.page_of(key)];
        prefetch(&page.tags);
        prefetch(&page.chunks);
    }

    /// Prefetches the place that seems to have the key; needs the page.
    #[inline]
    pub(super) fn fetch_place(&self, key: Key) {
        let page = &self.pages[self.page_of(key)];
        if let Some(place) = page.search(key, |_| true) {
            let (chunk, place) = (page.chunk(place), place % CHUNK_PLACES);
            // A place may span two cache lines; the next place starts on the second.
            prefetch_element(chunk, place);
            prefetch_element(chunk, place + 1);
        }
    }

    #[inline]
    pub(super) fn get(&self, index: PlaceIndex) -> &Place<T> {
        self.pages[index.page as usize].place(index.place as usize)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, index: PlaceIndex) -> &mut T {
        let page = &mut self.pages[index.page as usize];
        // Written only on change: other cores read the line to find their keys.
        if !page.changed {
            page.changed = true;
        }
        &mut page.place_mut(index.place as usize).value
    }

    /// Adds a key that is not there yet. Before a full page is split, places that `keep` rejects are dropped from it;
    /// returns their number.
    pub(super) fn insert(&mut self, key: Key, value: T, keep: impl Fn(&T) -> bool) -> Result<usize, Crowded> {
        let mut dropped = 0;
        loop {
            let number = self.page_of(key);
            let page = &mut self.pages[number];
            if page.len() < PAGE_PLACES {
                page.push(Place { key, value });
                return Ok(dropped);
            }
            dropped += page.retain(|place| keep(&place.value));
            if page.len() == PAGE_PLACES {
                self.split(number)?;
            }
        }
    }

    /// Moves the places of a full page whose next bit is one to a page of their own.
    fn split(&mut self, number: usize) -> Result<(), Crowded> {
        let directory_max = DIRECTORY_PER_PAGE_MAX * (self.pages.len() + 1);
        let page = &mut self.pages[number];
        let keys = page.keys();
        let doubles = keys.depth == self.depth;
        if doubles && (keys.depth == PageKeys::DEPTH_MAX || 2 * self.directory.len() > directory_max) {
            return Err(Crowded);
        }
        let sibling_keys = keys.half(true);
        let mut sibling = Page::new(sibling_keys);
        for place in (0..page.len()).rev() {
            if sibling_keys.contain(page.place(place).key) {
                let moved = page.swap_remove(place);
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
        // Every entry that ends in the sibling's bits.
        for entry in (sibling_keys.bits as usize..self.directory.len()).step_by(2 << keys.depth) {
            self.directory[entry] = sibling_number;
        }
        Ok(())
    }

    /// Drops what `keep` rejects from the next `pages_max` pages.
    pub(super) fn sweep(&mut self, pages_max: usize, mut keep: impl FnMut(&T) -> bool) -> Swept {
        let start = self.sweep_next as usize;
        let end = self.pages.len().min(start.saturating_add(pages_max));
        let pages = self.pages[start..end].iter_mut();
        let dropped = pages.map(|page| page.retain(|place| keep(&place.value))).sum();
        let finished = end == self.pages.len();
        self.sweep_next = if finished { 0 } else { end as u32 };
        Swept { dropped, finished }
    }

    /// Removes a key; returns whether it was there.
    pub(super) fn remove(&mut self, key: Key) -> bool {
        let number = self.page_of(key);
        let page = &mut self.pages[number];
        let position = page.position(key);
        position.map(|place| page.swap_remove(place)).is_some()
    }

    /// Drops what `keep` rejects from the pages from `from` on, [`PAGES_VISITED_MAX`] of them; returns how many were dropped,
    /// and the next page, if there is one.
    pub(super) fn retain(&mut self, from: usize, keep: impl Fn(&Place<T>) -> bool) -> (usize, Option<usize>) {
        let end = self.pages.len().min(from.saturating_add(PAGES_VISITED_MAX));
        let pages = self.pages.get_mut(from..end).unwrap_or_default();
        let dropped = pages.iter_mut().map(|page| page.retain(&keep)).sum();
        (dropped, (end < self.pages.len()).then_some(end))
    }

    /// Marks every page as unchanged.
    pub(super) fn mark_unchanged(&mut self) {
        self.pages.iter_mut().for_each(|page| page.changed = false);
    }

    /// Calls `visit` with everything in the pages from `from` on, [`PAGES_VISITED_MAX`] of them; returns the next page, if
    /// there is one.
    pub(super) fn visit(&self, from: usize, mut visit: impl FnMut(&T)) -> Option<usize> {
        let end = self.pages.len().min(from.saturating_add(PAGES_VISITED_MAX));
        for page in self.pages.get(from..end).unwrap_or_default() {
            (0..page.len()).for_each(|place| visit(&page.place(place).value));
        }
        (end < self.pages.len()).then_some(end)
    }

    /// Everything in the table, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Place<T>> {
        self.pages.iter().flat_map(|page| (0..page.len()).map(|place| page.place(place)))
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
                let places = (0..page.len()).map(|place| page.place(place));
                copies.add(page.keys(), places.map(|place| (place.key, place.value.clone())));
            }
        }
        (end < self.pages.len()).then_some(end)
    }
}

#[cfg(test)]
mod tests;
