//! The fields of a header block, in one buffer that is reused for every block.

use super::{ENTRY_OVERHEAD, static_table::STATIC_TABLE};
use crate::http2::steps;
use std::ops::Range;

/// The entry of a table that a field is equal to: entries with the same number have the same name and value, also after
/// others were added or evicted. Later entries of the dynamic table are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Source(u64);

/// The first index of the dynamic table.
const FIRST_DYNAMIC: u64 = STATIC_TABLE.len() as u64 + 1;

impl Source {
    /// No entry.
    pub(super) const LITERAL: Self = Self(u64::MAX);

    /// The entry of the static table with this index, from 1.
    pub(super) const fn of_static(index: u64) -> Self {
        Self(index)
    }

    /// The entry with this number among all that were ever added to the dynamic table.
    pub(super) const fn of_dynamic(number: u64) -> Self {
        Self(FIRST_DYNAMIC + number)
    }

    /// The entry added so many entries before this one.
    pub(super) const fn before(self, entries: u64) -> Self {
        Self(self.0.saturating_sub(entries))
    }
}

/// Sources of the indices of both tables, as they are now.
#[derive(Clone, Copy)]
pub(super) struct Sources {
    /// Number of the entry that is added next to the dynamic table.
    pub(super) next: u64,
    /// Number of its entries.
    pub(super) entries: u64,
}

impl Sources {
    /// The source of an index; none if no table has it.
    #[inline]
    pub(super) fn of(self, index: u64) -> Option<Source> {
        match index.checked_sub(FIRST_DYNAMIC) {
            None => (index > 0).then_some(Source::of_static(index)),
            Some(position) => (position < self.entries).then(|| Source::of_dynamic(self.next - 1 - position)),
        }
    }
}

/// Names and values in their order.
///
/// While a block is decoded, its first `count` fields are known. The fields after them are those of the block before, until
/// one differs: clients repeat most fields, and a field that was decoded before stays where it is.
#[derive(Default, Debug)]
pub struct Fields {
    bytes: Vec<u8>,
    positions: Vec<Position>,
    /// Number of fields of this block so far. Once a block is decoded, all are counted.
    count: usize,
    /// Their size, as SETTINGS_MAX_HEADER_LIST_SIZE counts it. Fields beyond the bound are counted, not kept.
    list_bytes: usize,
    /// The part of `list_bytes` that was not kept from the block before.
    new_bytes: usize,
    /// Whether this block has other names than the one before, or values of other lengths.
    is_new: bool,
    /// The fields whose values alone differ from those of the block before.
    changed: Vec<usize>,
    /// Encoded forms of literal fields, in the order of the fields.
    coded: Vec<u8>,
}

/// Position of a field, which starts where the one before it ends.
#[derive(Clone, Copy, Debug)]
struct Position {
    name_end: u32,
    end: u32,
    source: Source,
    /// Start of its encoded form in `coded`, whose room ends where that of the next field starts.
    coded: u32,
    /// Length of its encoded form; zero if that is unknown, or depends on a table that changes.
    coded_len: u32,
}

impl Fields {
    /// Names and values in their order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.positions.iter().map(move |position| {
            let (name_end, end) = (position.name_end as usize, position.end as usize);
            let field = (&self.bytes[start..name_end], &self.bytes[name_end..end]);
            start = end;
            field
        })
    }

    /// The first value under a name.
    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Size of all fields, kept or not.
    pub(crate) fn list_bytes(&self) -> usize {
        self.list_bytes
    }

    /// The part of [`Self::list_bytes`] that had to be decoded, because it differs from the block before.
    pub(crate) fn new_bytes(&self) -> usize {
        self.new_bytes
    }

    /// The fields whose values differ from those of the block before; none if more differs than values of fields at the same
    /// positions.
    pub(crate) fn changed_values(&self) -> Option<impl Iterator<Item = (&[u8], &[u8])>> {
        (!self.is_new).then(|| self.changed.iter().map(|&position| self.at(position)))
    }

    /// The position of the field whose value alone differs from that of the block before, if there is exactly one.
    pub(super) fn changed_alone(&self) -> Option<usize> {
        match self.changed[..] {
            [position] if !self.is_new => Some(position),
            _ => None,
        }
    }

    /// Writes a value of the same length over that of the field at a position, which has this source now.
    pub(super) fn overwrite(&mut self, position: usize, value: &[u8], source: Source) {
        let field = &mut self.positions[position];
        (field.source, field.coded_len) = (source, 0);
        self.bytes[field.name_end as usize..field.end as usize].copy_from_slice(value);
    }

    fn start_of(&self, position: usize) -> usize {
        position.checked_sub(1).map_or(0, |before| self.positions[before].end as usize)
    }

    /// The place for the encoded form of the field at a position.
    fn coded_room(&self, position: usize) -> Range<usize> {
        let end = self.positions.get(position + 1).map_or(self.coded.len(), |next| next.coded as usize);
        self.positions[position].coded as usize..end
    }

    /// Name and value of the field at a position.
    #[inline]
    pub(super) fn at(&self, position: usize) -> (&[u8], &[u8]) {
        let Position { name_end, end, .. } = self.positions[position];
        let (name_end, end) = (name_end as usize, end as usize);
        (&self.bytes[self.start_of(position)..name_end], &self.bytes[name_end..end])
    }

    /// Starts a block.
    pub(super) fn start(&mut self, list_max: usize) {
        // Not all fields of the block before are here.
        let is_incomplete = self.list_bytes > list_max || self.count < self.positions.len();
        if is_incomplete {
            self.truncate(0);
        }
        self.changed.clear();
        (self.count, self.list_bytes, self.new_bytes, self.is_new) = (0, 0, 0, is_incomplete);
    }

    /// Ends a block.
    pub(super) fn end(&mut self) {
        self.truncate(self.count);
    }

    /// Drops the fields from this position on.
    fn truncate(&mut self, position: usize) {
        if position < self.positions.len() {
            self.bytes.truncate(self.start_of(position));
            self.coded.truncate(self.positions[position].coded as usize);
            self.positions.truncate(position);
            self.is_new = true;
        }
    }

    /// Adds the fields that `block` starts with, as long as each is an index in one byte of the entry that the block before has
    /// at the same position; their number, which is that of their bytes.
    #[inline]
    pub(super) fn keep_indexed(&mut self, block: &[u8], sources: Sources) -> usize {
        let known = self.positions.get(self.count..).unwrap_or_default();
        let is_kept = |(&byte, position): (&u8, &Position)| {
            (0x80..0xff).contains(&byte) && sources.of(u64::from(byte & 0x7f)) == Some(position.source)
        };
        let kept = block.iter().zip(known).take_while(|field| is_kept(*field)).count();
        self.keep_next(kept);
        kept
    }

    /// Adds the literal field that `block` starts with, if the field at the same position of the block before had this encoded
    /// form when it was decoded; the length of that form.
    #[inline]
    pub(super) fn keep_literal(&mut self, block: &[u8]) -> Option<usize> {
        let position = self.positions.get(self.count)?;
        let (start, length) = (position.coded as usize, position.coded_len as usize);
        if length == 0 || !block.starts_with(&self.coded[start..start + length]) {
            return None;
        }
        steps::add(steps::FIELD + steps::of_bytes(length));
        self.keep_next(1);
        Some(length)
    }

    /// Sets the source of the field added last, of which `source` returns that of its name and value.
    pub(super) fn set_source(&mut self, source: impl FnOnce(&[u8], &[u8]) -> Source) {
        if let Some(last) = self.count.checked_sub(1) {
            let (name, value) = self.at(last);
            self.positions[last].source = source(name, value);
        }
    }

    /// Adds so many fields as they are in the block before.
    #[inline]
    fn keep_next(&mut self, kept: usize) {
        let Some(last) = (self.count + kept).checked_sub(1).filter(|_| kept > 0) else { return };
        steps::add(kept * steps::FIELD);
        let end = self.positions[last].end as usize;
        self.list_bytes += end - self.start_of(self.count) + kept * ENTRY_OVERHEAD;
        self.count += kept;
    }

    /// Adds a field; one beyond the bound of the list is only counted.
    #[inline]
    pub(super) fn push(&mut self, name: &[u8], value: &[u8], source: Source, list_max: usize) {
        steps::add(steps::FIELD);
        let bytes = name.len() + value.len() + ENTRY_OVERHEAD;
        self.new_bytes = self.new_bytes.saturating_add(bytes);
        self.list_bytes = self.list_bytes.saturating_add(bytes);
        if self.list_bytes > list_max {
            self.truncate(self.count);
            self.is_new = true;
            return;
        }
        steps::add(steps::of_bytes(name.len() + value.len()));
        if !self.replace_value(name, value, source) {
            self.truncate(self.count);
            self.is_new = true;
            self.bytes.extend_from_slice(name);
            let name_end = self.bytes.len() as u32;
            self.bytes.extend_from_slice(value);
            // A list within its bound is far below 4 GiB.
            let (end, coded) = (self.bytes.len() as u32, self.coded.len() as u32);
            self.positions.push(Position { name_end, end, source, coded, coded_len: 0 });
        }
        self.count += 1;
    }

    /// Adds a literal field with its encoded form, which refers to no entry of the dynamic table.
    pub(super) fn push_literal(
        &mut self,
        (name, value): (&[u8], &[u8]),
        coded: &[u8],
        source: Source,
        list_max: usize,
    ) {
        let position = self.count;
        self.push(name, value, source, list_max);
        if self.count == position {
            return;
        }
        let room = self.coded_room(position);
        let is_last = position + 1 == self.positions.len();
        // A longer form than before has no room between others; the field is then decoded each time.
        if is_last {
            self.coded.truncate(room.start);
            self.coded.extend_from_slice(coded);
        } else if coded.len() <= room.len() {
            self.coded[room.start..room.start + coded.len()].copy_from_slice(coded);
        } else {
            return;
        }
        self.positions[position].coded_len = coded.len() as u32;
    }

    /// Writes the value over that of the block before, if only the value differs and is as long.
    #[inline]
    fn replace_value(&mut self, name: &[u8], value: &[u8], source: Source) -> bool {
        if self.count >= self.positions.len() {
            return false;
        }
        let (old_name, old_value) = self.at(self.count);
        if old_name != name || old_value.len() != value.len() {
            return false;
        }
        if old_value != value {
            self.changed.push(self.count);
        }
        self.overwrite(self.count, value, source);
        true
    }
}

#[cfg(test)]
impl Fields {
    /// Whether the fields kept are within the bound of the list.
    pub(super) fn ends_within(&self, list_max: usize) -> bool {
        self.iter().map(|(name, value)| name.len() + value.len() + ENTRY_OVERHEAD).sum::<usize>() <= list_max
    }
}
