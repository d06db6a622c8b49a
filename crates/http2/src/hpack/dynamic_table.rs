//! The dynamic table of a decoder (RFC 7541, sections 2.3.2 and 4): the newest indexed fields, within a size.
//!
//! Invariant: the size of the entries that are not evicted is within the capacity, and the capacity within [`DEFAULT_TABLE_SIZE`]. Evicted
//! entries stay until [`DynamicTable::forget_evicted`] is called between blocks: the fields of a block may be entries that the block itself
//! evicts. Values are in one buffer, so that adding and evicting entries does not allocate. A value may be stored Huffman-coded, as it was
//! received: most are evicted before a block refers to them.
//!
//! The class and the size of an entry, which a list of fields needs, are computed when it is added. The field, which a request needs, is
//! made when a request first has it. All later requests share it.

use super::{
    DEFAULT_TABLE_SIZE, ENTRY_OVERHEAD,
    field_class::{Class, FieldNames, NameClass},
    huffman,
    names::{NameRef, Names},
    source::Source,
    static_table::STATIC_TABLE,
};
use crate::steps;
use hashbrown::HashMap;
use http::{HeaderValue, uri::PathAndQuery};
use std::collections::VecDeque;

/// Length of the buffer from which values are moved to its start. Values of entries take at most half of it, so that no more bytes are
/// moved than were added.
const BUFFER_MAX: usize = 2 * DEFAULT_TABLE_SIZE;

pub(super) struct DynamicTable {
    /// Oldest first, with the evicted entries before all others.
    entries: VecDeque<Entry>,
    /// Number of the first entry in `entries`, among all that were ever added.
    first: u64,
    /// Number of the oldest entry that is not evicted, or of the next entry if there is none.
    oldest: u64,
    /// Forms made for requests, by the numbers of their entries. Few entries have any.
    made: HashMap<u64, Made, foldhash::fast::RandomState>,
    names: Names,
    /// Values, oldest first, after a gap left by evicted entries.
    bytes: Vec<u8>,
    /// Bytes that were dropped from the start of the buffer.
    dropped: usize,
    /// Size of the entries (RFC 7541, section 4.1). Never above `capacity`.
    size: usize,
    /// The maximum size set by the encoder.
    capacity: usize,
    /// Changes whenever the table does.
    generation: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) name: NameRef,
    pub(super) class: Class,
    /// Size of name and value, decoded, and [`ENTRY_OVERHEAD`].
    pub(super) cost: u32,
    /// Position of the value among all bytes that were ever in the buffer, and its length there.
    start: usize,
    len: u32,
    /// Whether the stored value is Huffman-coded, and valid.
    is_coded: bool,
}

/// Forms of an entry's value.
#[derive(Default)]
struct Made {
    decoded: Option<Box<[u8]>>,
    value: Option<HeaderValue>,
    path: Option<PathAndQuery>,
}

/// The name of an added field.
#[derive(Clone, Copy, Debug)]
pub(super) enum NewName<'n> {
    Text(&'n [u8], NameClass),
    Shared(NameRef),
}

impl DynamicTable {
    pub(super) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            first: 0,
            oldest: 0,
            made: HashMap::default(),
            names: Names::default(),
            bytes: Vec::new(),
            dropped: 0,
            size: 0,
            capacity: DEFAULT_TABLE_SIZE,
            generation: 0,
        }
    }

    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Number of all entries that were ever added.
    #[inline]
    fn added(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// The entry at a position, with its source. The newest is at 0; none if it is evicted.
    #[inline]
    pub(super) fn at(&self, position: usize) -> Option<(Source, &Entry)> {
        let number = self.added().checked_sub(1 + position as u64).filter(|number| *number >= self.oldest)?;
        Some((Source::of_dynamic(number), self.entries.get((number - self.first) as usize)?))
    }

    /// The entry of a source. None if it is of another table, or forgotten.
    #[inline]
    pub(super) fn get(&self, source: Source) -> Option<&Entry> {
        self.entries.get(usize::try_from(source.dynamic()?.checked_sub(self.first)?).ok()?)
    }

    /// The text of a name.
    #[inline]
    pub(super) fn name(&self, name: NameRef) -> &[u8] {
        match name {
            NameRef::Static(position) => STATIC_TABLE[usize::from(position)].0,
            NameRef::Stored(place) => self.names.get(place).0,
        }
    }

    /// The class of a name.
    #[inline]
    pub(super) fn name_class(&self, name: NameRef, names: &FieldNames) -> NameClass {
        match name {
            NameRef::Static(position) => names.class_of_static(position.into()),
            NameRef::Stored(place) => self.names.get(place).1,
        }
    }

    /// The value of an entry, as it is stored.
    fn stored(&self, entry: &Entry) -> &[u8] {
        let start = entry.start - self.dropped;
        &self.bytes[start..start + entry.len as usize]
    }

    /// The value of an entry. Empty if it is stored Huffman-coded and was not decoded.
    #[inline]
    pub(super) fn value(&self, source: Source, entry: &Entry) -> &[u8] {
        if !entry.is_coded {
            return self.stored(entry);
        }
        let made = source.dynamic().and_then(|number| self.made.get(&number));
        made.and_then(|made| made.decoded.as_deref()).unwrap_or_default()
    }

    /// The Huffman-coded value of the newest entry, if it is stored so.
    #[cfg(test)]
    pub(super) fn newest_coded(&self) -> Option<&[u8]> {
        let newest = self.entries.back().filter(|newest| newest.is_coded)?;
        Some(self.stored(newest))
    }

    /// Decodes the value of an entry if it is stored Huffman-coded. Later calls do nothing.
    #[inline]
    pub(super) fn decode(&mut self, source: Source) {
        if self.get(source).is_some_and(|entry| entry.is_coded) {
            self.decode_coded(source);
        }
    }

    #[cold]
    fn decode_coded(&mut self, source: Source) {
        let (Some(number), Some(entry)) = (source.dynamic(), self.get(source).copied()) else { return };
        if self.made.get(&number).is_some_and(|made| made.decoded.is_some()) {
            return;
        }
        let mut plain = Vec::new();
        steps::add(2 * steps::of_bytes(entry.len as usize));
        huffman::decode(self.stored(&entry), &mut plain).expect("the code was checked before it was stored");
        self.made.entry(number).or_default().decoded = Some(plain.into());
    }

    /// The value of an entry. All requests that contain it share it. None if it is not valid.
    pub(super) fn header_value(&mut self, source: Source) -> Option<HeaderValue> {
        self.shared(source, |made| &mut made.value, |value| HeaderValue::from_bytes(value).ok())
    }

    /// The value of an entry as a path. All requests that contain it share it. None if it is not valid.
    pub(super) fn path(&mut self, source: Source) -> Option<PathAndQuery> {
        self.shared(source, |made| &mut made.path, |value| PathAndQuery::try_from(value).ok())
    }

    fn shared<T: Clone>(
        &mut self,
        source: Source,
        form: fn(&mut Made) -> &mut Option<T>,
        make: fn(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let number = source.dynamic()?;
        if let Some(made) = self.made.get_mut(&number).and_then(|made| form(made).clone()) {
            return Some(made);
        }
        let value = self.value(source, self.get(source)?);
        steps::add(2 * steps::of_bytes(value.len()));
        let new = make(value)?;
        *form(self.made.entry(number).or_default()) = Some(new.clone());
        Some(new)
    }

    /// The source of the oldest entry, or of the next entry if there is none. Sources of evicted entries are below.
    #[inline]
    pub(super) fn oldest(&self) -> Source {
        Source::of_dynamic(self.oldest)
    }

    /// The newest entry, unless it is evicted.
    #[inline]
    pub(super) fn newest(&self) -> Option<(Source, &Entry)> {
        self.at(0)
    }

    /// Adds an entry, and evicts the oldest as needed. Returns its source.
    pub(super) fn insert(&mut self, name: NewName<'_>, value: &[u8], class: Class) -> Source {
        steps::add(steps::of_bytes(value.len()));
        let name = match name {
            NewName::Text(text, class) => self.names.add(text, class),
            NewName::Shared(name) => {
                self.names.share(name);
                name
            }
        };
        let cost = self.name(name).len() + value.len() + ENTRY_OVERHEAD;
        self.push(name, class, value, false, cost);
        // An entry larger than the table is not an error: it empties the table.
        self.evict_down_to(self.capacity);
        Source::of_dynamic(self.added() - 1)
    }

    /// Adds an entry with the name and class of the newest entry and a Huffman-coded value. The value is valid; `decoded_len` is its
    /// decoded length, which is at least that of the code. Forgets evicted entries first. Returns the class. Returns none, without a change
    /// of the entries, if there is no newest entry or the new entry is larger than the table.
    #[inline]
    pub(super) fn insert_coded(&mut self, value: &[u8], decoded_len: usize) -> Option<Class> {
        debug_assert!(value.len() <= decoded_len);
        steps::add(steps::of_bytes(value.len()));
        self.forget_evicted();
        let newest = self.entries.back()?;
        let (name, class) = (newest.name, newest.class);
        let cost = self.name(name).len() + decoded_len + ENTRY_OVERHEAD;
        if cost > self.capacity {
            return None;
        }
        self.names.share(name);
        self.push(name, class, value, true, cost);
        self.evict_down_to(self.capacity);
        Some(class)
    }

    #[inline]
    fn push(&mut self, name: NameRef, class: Class, value: &[u8], is_coded: bool, cost: usize) {
        self.generation += 1;
        let start = self.dropped + self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.size += cost;
        self.entries.push_back(Entry {
            name,
            class,
            cost: cost as u32,
            start,
            len: value.len() as u32,
            is_coded,
        });
    }

    /// Sets the capacity, which is at most [`DEFAULT_TABLE_SIZE`].
    pub(super) fn resize(&mut self, capacity: usize) {
        debug_assert!(capacity <= DEFAULT_TABLE_SIZE);
        self.generation += 1;
        self.capacity = capacity;
        self.evict_down_to(capacity);
    }

    #[inline]
    fn evict_down_to(&mut self, target: usize) {
        while self.size > target {
            steps::add(steps::FIELD);
            let oldest = self.entries.get((self.oldest - self.first) as usize);
            self.size -= oldest.expect("a table with a size has entries").cost as usize;
            self.oldest += 1;
        }
    }

    /// Drops evicted entries that no list refers to any longer.
    #[inline(always)]
    pub(super) fn forget_evicted(&mut self) {
        while self.first < self.oldest
            && let Some(evicted) = self.entries.pop_front()
        {
            steps::add(steps::FIELD);
            self.names.release(evicted.name);
            if !self.made.is_empty() {
                self.made.remove(&self.first);
            }
            self.first += 1;
        }
        if self.bytes.len() > BUFFER_MAX {
            self.close_the_gap();
        }
    }

    /// Moves the values to the start of the buffer.
    #[cold]
    fn close_the_gap(&mut self) {
        let end = self.dropped + self.bytes.len();
        let gap = self.entries.front().map_or(end, |oldest| oldest.start) - self.dropped;
        self.bytes.drain(..gap);
        steps::add(steps::of_bytes(self.bytes.len()));
        self.dropped += gap;
        // A block can add many entries that it evicts itself.
        self.bytes.shrink_to(2 * BUFFER_MAX);
        self.entries.shrink_to(DEFAULT_TABLE_SIZE / ENTRY_OVERHEAD);
        self.names.shrink();
        self.made.shrink_to(DEFAULT_TABLE_SIZE / ENTRY_OVERHEAD);
    }
}

#[cfg(test)]
impl DynamicTable {
    /// Number and size of the entries.
    pub(super) fn held(&self) -> (usize, usize) {
        ((self.added() - self.oldest) as usize, self.size)
    }

    /// Whether the table is within its bounds.
    pub(super) fn is_within_bounds(&mut self) -> bool {
        self.forget_evicted();
        self.size <= self.capacity && self.bytes.len() <= BUFFER_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn adding_and_evicting_entries_does_not_allocate() {
        let mut table = DynamicTable::new();
        let mut insert_all = || {
            for n in 0..1000 {
                table.insert(NewName::Text(&[n as u8; 11], NameClass::Other), &[n as u8; 55], Class::Other);
                table.forget_evicted();
            }
        };
        insert_all();
        assert_eq!(allocation_counter::measure(insert_all).count_total, 0);
    }

    proptest! {
        #[test]
        fn the_newest_entries_that_fit_are_kept(
            changes in prop::collection::vec((0..1500_usize, 0..1500_usize, prop::option::weighted(0.1, 0..=4096_usize)), 1..200),
        ) {
            let (mut table, mut capacity) = (DynamicTable::new(), DEFAULT_TABLE_SIZE);
            // All entries, newest first.
            let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            for (number, (name, value, new_capacity)) in changes.into_iter().enumerate() {
                let (name, value) = (vec![number as u8; name], vec![!number as u8; value]);
                let source = table.insert(NewName::Text(&name, NameClass::Other), &value, Class::Other);
                // The entry can be read until it is forgotten, whether it was evicted at once or not.
                let entry = table.get(source).expect("it was added");
                prop_assert_eq!((table.name(entry.name), table.value(source, entry)), (&name[..], &value[..]));
                entries.insert(0, (name, value));
                entries.truncate(fitting(&entries, capacity));
                if let Some(new) = new_capacity {
                    capacity = new;
                    table.resize(capacity);
                    entries.truncate(fitting(&entries, capacity));
                }
                let is_within_bounds = number % 3 > 0 || table.is_within_bounds();
                prop_assert!(is_within_bounds);
                let text = |(source, entry): (Source, &Entry)| (table.name(entry.name).to_vec(), table.value(source, entry).to_vec());
                let held: Vec<_> = (0..).map_while(|position| table.at(position).map(text)).collect();
                prop_assert_eq!(&held, &entries);
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
