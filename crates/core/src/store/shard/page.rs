//! A page: the counters of keys that agree in some bits.

use crate::{
    prefetch::{prefetch, prefetch_element},
    store::{
        Counter, Key,
        page_copies::{PAGE_PLACES, PageKeys},
    },
};
use std::array;

/// Places that a page takes memory for at once.
const CHUNK_PLACES: usize = 8;

type Chunk = [Place; CHUNK_PLACES];

/// A counter and its key.
#[derive(Clone, Default, Debug)]
pub(super) struct Place {
    pub(super) key: Key,
    pub(super) counter: Counter,
}

#[repr(C, align(64))]
pub(super) struct Page {
    /// `Key::tag` of each place; only the first `len` mean anything.
    tags: [u8; PAGE_PLACES],
    /// Places in use, in no order.
    len: u8,
    /// Number of last bits that all keys of the page share.
    pub(super) depth: u8,
    /// Whether anything changed since the page was last copied.
    pub(super) changed: bool,
    /// Those bits.
    bits: u32,
    /// The places: as many chunks as `len` needs.
    chunks: [Option<Box<Chunk>>; PAGE_PLACES / CHUNK_PLACES],
}

impl Page {
    pub(super) fn new(keys: PageKeys) -> Self {
        Self {
            tags: [0; PAGE_PLACES],
            chunks: array::from_fn(|_| None),
            len: 0,
            depth: keys.depth as u8,
            changed: true,
            bits: keys.bits,
        }
    }

    pub(super) fn keys(&self) -> PageKeys {
        PageKeys { depth: u32::from(self.depth), bits: self.bits }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    #[inline]
    pub(super) fn place(&self, place: usize) -> &Place {
        &self.chunk(place)[place % CHUNK_PLACES]
    }

    /// The chunk of a place in use.
    #[inline]
    fn chunk(&self, place: usize) -> &Chunk {
        self.chunks[place / CHUNK_PLACES].as_ref().expect("a place in use has memory")
    }

    #[inline]
    pub(super) fn place_mut(&mut self, place: usize) -> &mut Place {
        let chunk = self.chunks[place / CHUNK_PLACES].as_mut();
        &mut chunk.expect("a place in use has memory")[place % CHUNK_PLACES]
    }

    #[inline]
    pub(super) fn position(&self, key: Key) -> Option<usize> {
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

    /// Prefetches the tags and where the places are.
    #[inline]
    pub(super) fn fetch(&self) {
        prefetch(&self.tags);
        prefetch(&self.chunks);
    }

    /// Prefetches the place that seems to have the key; needs the page.
    #[inline]
    pub(super) fn fetch_place(&self, key: Key) {
        if let Some(place) = self.search(key, |_| true) {
            let (chunk, place) = (self.chunk(place), place % CHUNK_PLACES);
            // A place may span two cache lines; the next place starts on the second.
            prefetch_element(chunk, place);
            prefetch_element(chunk, place + 1);
        }
    }

    /// All places in use.
    pub(super) fn places(&self) -> impl ExactSizeIterator<Item = &Place> {
        (0..self.len()).map(|place| self.place(place))
    }

    /// Adds a place to a page that is not full.
    pub(super) fn push(&mut self, place: Place) {
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
    pub(super) fn swap_remove(&mut self, place: usize) -> Place {
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
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Place) -> bool) -> usize {
        let before = self.len();
        for place in (0..before).rev() {
            if !keep(self.place(place)) {
                self.swap_remove(place);
            }
        }
        before - self.len()
    }
}
