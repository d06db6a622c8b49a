//! One shard: a hash table of counters that grows and shrinks a page at a time (extendible hashing), and the expiry of each counter.
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

mod page;
#[cfg(test)]
mod tests;

use super::{
    Counter, Key,
    page_copies::{PAGE_PLACES, PageCopies, PageKeys, Wanted},
};
use crate::limit::{LimitId, Timestamp};
use page::{Page, Place};

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

/// Some of the counters, behind one lock. See the module.
pub struct Shard {
    /// Page numbers; `1 << depth` of them.
    directory: Vec<u32>,
    depth: u32,
    pages: Vec<Page>,
    /// The page that the next sweep starts with.
    sweep_next: u32,
}

impl Default for Shard {
    fn default() -> Self {
        let pages = vec![Page::new(PageKeys::ALL)];
        Self { directory: vec![0], depth: 0, pages, sweep_next: 0 }
    }
}

impl Shard {
    #[inline]
    fn page_of(&self, key: Key) -> usize {
        let mask = (1 << self.depth) - 1;
        self.directory[(key.page_bits() & mask) as usize] as usize
    }

    /// The place of the key's counter: valid until something is inserted or swept.
    #[inline]
    pub fn find(&self, key: Key) -> Option<PlaceIndex> {
        let page = self.page_of(key);
        let place = self.pages[page].position(key)?;
        Some(PlaceIndex { page: page as u32, place: place as u32 })
    }

    /// Prefetches the page of the key. [`Shard::fetch_place`] is the next step.
    #[inline]
    pub fn fetch_page(&self, key: Key) {
        self.pages[self.page_of(key)].fetch();
    }

    /// Prefetches the counter of the key.
    #[inline]
    pub fn fetch_place(&self, key: Key) {
        self.pages[self.page_of(key)].fetch_place(key);
    }

    /// The counter in a place.
    #[inline]
    pub fn get(&self, index: PlaceIndex) -> &Counter {
        &self.pages[index.page as usize].place(index.place as usize).counter
    }

    /// The counter in a place, to be changed.
    #[inline(always)]
    pub fn get_mut(&mut self, index: PlaceIndex) -> &mut Counter {
        let page = &mut self.pages[index.page as usize];
        // Written only on change: other cores read the line to find their keys.
        if !page.changed {
            page.changed = true;
        }
        &mut page.place_mut(index.place as usize).counter
    }

    /// Adds a counter for a key that has none, made under the store's secret; returns how many expired counters made room.
    pub fn insert(&mut self, key: Key, counter: Counter, now: Timestamp) -> usize {
        self.insert_foreign(key, counter, now).expect("keys made under a secret are spread")
    }

    /// As [`Shard::insert`], for a key from a file, which its author may have chosen.
    pub fn insert_foreign(&mut self, key: Key, counter: Counter, now: Timestamp) -> Result<usize, Crowded> {
        let (is_needed, mut dropped) = (needed_at(now), 0);
        loop {
            let number = self.page_of(key);
            let page = &mut self.pages[number];
            if page.len() < PAGE_PLACES {
                page.push(Place { key, counter });
                return Ok(dropped);
            }
            dropped += page.retain(|place| is_needed(&place.counter));
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

    /// See [`Store::sweep`](super::Store::sweep). Calls `visit` with each counter, and whether it stays.
    pub fn sweep(
        &mut self,
        pages_max: usize,
        now: Timestamp,
        mut visit: impl FnMut(&Counter, bool),
    ) -> Swept {
        let is_live = live_at(now);
        self.drop_next(pages_max, |counter| {
            let stays = is_live(counter);
            visit(counter, stays);
            stays
        })
    }

    /// Drops expired counters of a few pages to make room.
    pub(super) fn drop_expired(&mut self, pages_max: usize, now: Timestamp) -> usize {
        self.drop_next(pages_max, needed_at(now)).dropped
    }

    /// Drops what `keep` rejects from the next `pages_max` pages.
    fn drop_next(&mut self, pages_max: usize, mut keep: impl FnMut(&Counter) -> bool) -> Swept {
        let start = self.sweep_next as usize;
        let end = self.pages.len().min(start.saturating_add(pages_max));
        let pages = self.pages[start..end].iter_mut();
        let dropped = pages.map(|page| page.retain(|place| keep(&place.counter))).sum();
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
    pub(super) fn retain(
        &mut self,
        from: usize,
        keep: impl Fn(Key, &Counter) -> bool,
    ) -> (usize, Option<usize>) {
        let end = self.pages.len().min(from.saturating_add(PAGES_VISITED_MAX));
        let pages = self.pages.get_mut(from..end).unwrap_or_default();
        let dropped = pages.iter_mut().map(|page| page.retain(|place| keep(place.key, &place.counter))).sum();
        (dropped, (end < self.pages.len()).then_some(end))
    }

    /// Calls `visit` with the limit of every counter in the pages from `from` on, [`PAGES_VISITED_MAX`] of them; returns the next page,
    /// if there is one. Keys never move to a page with a lower number, so that no counter is left out between two calls.
    pub fn visit_limits(&self, from: usize, visit: &mut dyn FnMut(LimitId)) -> Option<usize> {
        let end = self.pages.len().min(from.saturating_add(PAGES_VISITED_MAX));
        let pages = self.pages.get(from..end).unwrap_or_default();
        pages.iter().flat_map(Page::places).for_each(|place| visit(place.counter.limit()));
        (end < self.pages.len()).then_some(end)
    }

    /// Every counter, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &Counter)> {
        self.pages.iter().flat_map(Page::places).map(|place| (place.key, &place.counter))
    }

    /// Copies the next wanted pages, from the page numbered `from` on, and counts them as unchanged. Returns the number
    /// of the next page, or none if the last page was reached. Pages that are split meanwhile get higher numbers.
    pub fn copy_pages(&mut self, from: usize, wanted: Wanted, copies: &mut PageCopies) -> Option<usize> {
        copies.clear();
        let end = self.pages.len().min(from.saturating_add(PAGES_SEARCHED_MAX));
        for number in from..end {
            if copies.is_full() {
                return Some(number);
            }
            let page = &mut self.pages[number];
            if std::mem::take(&mut page.changed) || wanted == Wanted::All {
                copies.add(page.keys(), page.places().map(|place| (place.key, place.counter.clone())));
            }
        }
        (end < self.pages.len()).then_some(end)
    }

    /// Marks every page as unchanged: what is in memory was read from where it would be written to.
    pub fn mark_unchanged(&mut self) {
        self.pages.iter_mut().for_each(|page| page.changed = false);
    }
}

fn live_at(now: Timestamp) -> impl Fn(&Counter) -> bool {
    let now_secs = now.as_nanos() / 1_000_000_000;
    move |counter| counter.is_live(now_secs)
}

/// The counters that stay when room is made: live counters, and counters with slots or reservations that nothing has ended, which the
/// sweeper counts when it drops them.
fn needed_at(now: Timestamp) -> impl Fn(&Counter) -> bool {
    let is_live = live_at(now);
    let has_slots = |counter: &Counter| counter.slots().is_some_and(|slots| slots.all().len() > 0);
    move |counter| is_live(counter) || has_slots(counter) || counter.reserved().is_some()
}
