//! Copies of whole pages, for snapshots.
//!
//! A page is copied under its shard's lock in one go, so that a copied counter is never torn. A copy replaces all
//! earlier copies of its keys: a key that belongs to the page and is not in it has no counter.

use super::{Counter, Key};

/// The most places of a page. A page is searched by its tags, which fill one cache line together with its header; the next line
/// has the pointers to the places.
pub(super) const PAGE_PLACES: usize = 56;

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
        key.page_bits() & ((1 << self.depth) - 1) == u64::from(self.bits)
    }
}

/// The pages to copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Every page.
    All,
    /// Pages that changed since they were last copied.
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
            counters: Vec::with_capacity(Self::PAGES_MAX * PAGE_PLACES),
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
