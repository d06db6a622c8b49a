//! The dynamic table of a decoder (RFC 7541, sections 2.3.2 and 4): what was indexed last, within a size.
//!
//! What always holds: the size is within the capacity, and that within [`DEFAULT_TABLE_SIZE`]. Names and values stand in
//! one buffer no longer than that, so that entries that come and go, call by call, make nothing be allocated.

use super::{DEFAULT_TABLE_SIZE, ENTRY_OVERHEAD};
use std::collections::VecDeque;

pub(super) struct DynamicTable {
    /// Newest first.
    entries: VecDeque<Entry>,
    /// Names and values, oldest first; before them may stand what entries that are gone have left.
    bytes: Vec<u8>,
    /// What the entries cost, as HPACK counts it. Never above `capacity`.
    size: usize,
    /// What the other side last set.
    capacity: usize,
    /// Changes whenever the table does.
    generation: u64,
}

/// Where the name and the value of an entry stand in the buffer, one right after the other.
struct Entry {
    start: usize,
    name_end: usize,
    end: usize,
}

impl Entry {
    fn cost(&self) -> usize {
        self.end - self.start + ENTRY_OVERHEAD
    }
}

impl DynamicTable {
    pub(super) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: Vec::new(),
            size: 0,
            capacity: DEFAULT_TABLE_SIZE,
            generation: 0,
        }
    }

    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Name and value of an entry, where the newest is at 0.
    pub(super) fn get(&self, position: usize) -> Option<(&[u8], &[u8])> {
        let &Entry { start, name_end, end } = self.entries.get(position)?;
        Some((&self.bytes[start..name_end], &self.bytes[name_end..end]))
    }

    /// Adds an entry, for which the oldest make room.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        self.generation += 1;
        let length = name.len() + value.len();
        let cost = length + ENTRY_OVERHEAD;
        // An entry larger than the table is no error: it empties the table.
        self.evict_down_to(self.capacity.saturating_sub(cost));
        if cost > self.capacity {
            return;
        }
        if self.bytes.len() + length > DEFAULT_TABLE_SIZE {
            self.close_the_gap();
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.size += cost;
        self.entries.push_front(Entry { start, name_end: start + name.len(), end: start + length });
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
            self.size -= oldest.cost();
        }
    }

    /// Moves the entries to the start of the buffer. Then there is room for whatever the table has room for, since no
    /// entry is longer than what it costs.
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
    /// How many entries there are, and what they cost.
    pub(super) fn held(&self) -> (usize, usize) {
        (self.entries.len(), self.size)
    }

    /// Whether the table keeps to what it may hold.
    pub(super) fn is_within_bounds(&self) -> bool {
        self.size <= self.capacity && self.bytes.len() <= DEFAULT_TABLE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_that_come_and_go_allocate_nothing() {
        let mut table = DynamicTable::new();
        let mut insert_all = || (0..1000).for_each(|n| table.insert(b"traceparent", &[n as u8; 55]));
        insert_all();
        assert_eq!(allocation_counter::measure(insert_all).count_total, 0);
    }

    proptest! {
        #[test]
        fn the_newest_that_fit_are_there_as_they_came(
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
                let expected: Vec<_> = entries.iter().map(|(name, value)| (&name[..], &value[..])).collect();
                prop_assert_eq!(held, expected);
                prop_assert!(table.is_within_bounds());
            }
        }
    }

    /// How many of the newest entries fit.
    fn fitting(entries: &[(Vec<u8>, Vec<u8>)], capacity: usize) -> usize {
        let costs = entries.iter().scan(0, |sum, (name, value)| {
            *sum += name.len() + value.len() + ENTRY_OVERHEAD;
            Some(*sum)
        });
        costs.take_while(|cost| *cost <= capacity).count()
    }
}
