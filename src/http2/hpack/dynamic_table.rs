//! The dynamic table of a decoder (RFC 7541, sections 2.3.2 and 4): the newest indexed fields, within a size.
//!
//! Invariant: the size is within the capacity, and that within [`DEFAULT_TABLE_SIZE`]. Names and values are in one buffer
//! no longer than that, so that adding and evicting entries does not allocate. Values may be stored as they were received,
//! Huffman-coded: most are evicted before a block refers to them.

use super::{
    DEFAULT_TABLE_SIZE, ENTRY_OVERHEAD,
    fields::{Source, Sources},
};
use std::collections::VecDeque;

pub(super) struct DynamicTable {
    /// Newest first.
    entries: VecDeque<Entry>,
    /// Names and values, oldest first, after a gap left by evicted entries.
    bytes: Vec<u8>,
    /// Size of the entries (RFC 7541, section 4.1). Never above `capacity`.
    size: usize,
    /// The maximum size set by the encoder.
    capacity: usize,
    /// Changes whenever the table does.
    generation: u64,
    /// Number of entries ever added.
    added: u64,
}

/// Position of an entry's name and value in the buffer, one right after the other.
struct Entry {
    start: usize,
    name_end: usize,
    end: usize,
    /// Whether the value is Huffman-coded, in no more bytes than the plain one has.
    is_coded: bool,
    /// Size of name and value, not coded, and [`ENTRY_OVERHEAD`].
    cost: usize,
}

/// A name, and a value as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stored<'t> {
    pub(super) name: &'t [u8],
    pub(super) value: &'t [u8],
    /// Whether the value is Huffman-coded, and valid.
    pub(super) is_coded: bool,
}

impl DynamicTable {
    pub(super) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: Vec::new(),
            size: 0,
            capacity: DEFAULT_TABLE_SIZE,
            generation: 0,
            added: 0,
        }
    }

    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The entries, by their numbers among all that were ever added.
    #[inline]
    pub(super) fn sources(&self) -> Sources {
        Sources { next: self.added, entries: self.entries.len() as u64 }
    }

    /// The entry at a position, where the newest is at 0.
    pub(super) fn get(&self, position: usize) -> Option<Stored<'_>> {
        let &Entry { start, name_end, end, is_coded, .. } = self.entries.get(position)?;
        Some(Stored { name: &self.bytes[start..name_end], value: &self.bytes[name_end..end], is_coded })
    }

    /// The source of the oldest entry; of the next one if there is none. Those of evicted entries are below.
    #[inline]
    pub(super) fn oldest(&self) -> Source {
        Source::of_dynamic(self.added - self.entries.len() as u64)
    }

    /// The source of the newest entry.
    pub(super) fn newest(&self) -> Option<Source> {
        (!self.entries.is_empty()).then(|| Source::of_dynamic(self.added - 1))
    }

    /// Adds an entry, and evicts the oldest as needed. Returns its source.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) -> Source {
        self.insert_stored(Stored { name, value, is_coded: false }, value.len())
    }

    /// Adds an entry with a Huffman-coded value, which is valid and has this length when it is decoded, at least that of
    /// the code. False if it is larger than the table, which has not changed then.
    #[inline]
    pub(super) fn insert_coded(&mut self, name: &[u8], value: &[u8], decoded_len: usize) -> bool {
        debug_assert!(value.len() <= decoded_len);
        let fits = name.len() + decoded_len + ENTRY_OVERHEAD <= self.capacity;
        if fits {
            self.insert_stored(Stored { name, value, is_coded: true }, decoded_len);
        }
        fits
    }

    #[inline]
    fn insert_stored(&mut self, field: Stored<'_>, value_len: usize) -> Source {
        self.generation += 1;
        // Counts an entry too large for the table too: it empties the table, so that the numbers of entries stay consecutive.
        let number = self.added;
        self.added += 1;
        let cost = field.name.len() + value_len + ENTRY_OVERHEAD;
        // An entry larger than the table is no error: it empties the table.
        self.evict_down_to(self.capacity.saturating_sub(cost));
        if cost > self.capacity {
            return Source::of_dynamic(number);
        }
        if self.bytes.len() + field.name.len() + field.value.len() > DEFAULT_TABLE_SIZE {
            self.close_the_gap();
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(field.name);
        let name_end = self.bytes.len();
        self.bytes.extend_from_slice(field.value);
        self.size += cost;
        let end = self.bytes.len();
        self.entries.push_front(Entry { start, name_end, end, is_coded: field.is_coded, cost });
        Source::of_dynamic(number)
    }

    /// Sets the capacity, which is at most [`DEFAULT_TABLE_SIZE`].
    pub(super) fn resize(&mut self, capacity: usize) {
        debug_assert!(capacity <= DEFAULT_TABLE_SIZE);
        self.generation += 1;
        self.capacity = capacity;
        self.evict_down_to(capacity);
    }

    fn evict_down_to(&mut self, target: usize) {
        while self.size > target {
            let oldest = self.entries.pop_back().expect("a table with a size has entries");
            self.size -= oldest.cost;
        }
    }

    /// Moves the entries to the start of the buffer. Every entry within the capacity fits then, since it is shorter than
    /// its size.
    fn close_the_gap(&mut self) {
        let gap = self.entries.back().map_or(self.bytes.len(), |oldest| oldest.start);
        self.bytes.drain(..gap);
        for entry in &mut self.entries {
            entry.start -= gap;
            entry.name_end -= gap;
            entry.end -= gap;
        }
    }
}

#[cfg(test)]
impl DynamicTable {
    /// Number and size of the entries.
    pub(super) fn held(&self) -> (usize, usize) {
        (self.entries.len(), self.size)
    }

    /// Whether the table is within its bounds.
    pub(super) fn is_within_bounds(&self) -> bool {
        self.size <= self.capacity && self.bytes.len() <= DEFAULT_TABLE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn adding_and_evicting_entries_does_not_allocate() {
        let mut table = DynamicTable::new();
        let mut insert_all = || (0..1000).for_each(|n| _ = table.insert(&[n as u8; 11], &[n as u8; 55]));
        insert_all();
        assert_eq!(allocation_counter::measure(insert_all).count_total, 0);
    }

    proptest! {
        #[test]
        fn the_newest_entries_that_fit_are_kept(
            changes in prop::collection::vec((0..1500_usize, 0..1500_usize, prop::option::weighted(0.1, 0..=4096_usize)), 1..200),
        ) {
            let (mut table, mut capacity) = (DynamicTable::new(), DEFAULT_TABLE_SIZE);
            // All of them, newest first.
            let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            for (number, (name, value, new_capacity)) in changes.into_iter().enumerate() {
                let (name, value) = (vec![number as u8; name], vec![!number as u8; value]);
                table.insert(&name, &value);
                entries.insert(0, (name, value));
                entries.truncate(fitting(&entries, capacity));
                if let Some(new) = new_capacity {
                    capacity = new;
                    table.resize(capacity);
                    entries.truncate(fitting(&entries, capacity));
                }
                let held: Vec<_> = (0..).map_while(|position| table.get(position)).collect();
                let stored = entries.iter().map(|(name, value)| Stored { name, value, is_coded: false });
                let expected: Vec<_> = stored.collect();
                prop_assert_eq!(held, expected);
                prop_assert!(table.is_within_bounds());
            }
        }
    }

    /// Number of the newest entries that fit.
    fn fitting(entries: &[(Vec<u8>, Vec<u8>)], capacity: usize) -> usize {
        let costs = entries.iter().scan(0, |sum, (name, value)| {
            *sum += name.len() + value.len() + ENTRY_OVERHEAD;
            Some(*sum)
        });
        costs.take_while(|cost| *cost <= capacity).count()
    }
}
