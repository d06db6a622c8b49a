//! The fields of a header block, and the check whether they form a request.

use super::{
    ENTRY_OVERHEAD,
    dynamic_table::DynamicTable,
    field_class::{Class, FieldNames, Pseudo},
    names::NameRef,
    source::Source,
    static_table::STATIC_TABLE,
};
use crate::steps;

/// The name of a literal field.
#[derive(Clone, Copy, Debug)]
pub(super) enum LiteralName {
    /// In the buffer of the list, before the value.
    Text,
    Of(NameRef),
}

#[derive(Clone, Copy, Debug)]
struct Field {
    class: Class,
    source: Source,
    /// Name of a literal field.
    name: LiteralName,
    /// Positions of a literal field in the buffer: start, end of the name, and end.
    start: u32,
    name_end: u32,
    end: u32,
}

/// The fields of one block, in their order. Text of table entries stays in the table. Buffers are reused for the next block.
#[derive(Default)]
pub(super) struct List {
    fields: Vec<Field>,
    /// Text of literal fields.
    bytes: Vec<u8>,
    /// Number of the fields, kept or not.
    count: usize,
    /// Their size, as SETTINGS_MAX_HEADER_LIST_SIZE counts it. Fields beyond the bound are counted but not kept.
    list_bytes: usize,
    list_max: usize,
    /// Positions of pseudo-headers.
    pseudo: [Option<u32>; Pseudo::ALL.len()],
    /// Positions of the fields that the service reads.
    read: Vec<u32>,
    /// The numbers of their names.
    read_set: u64,
    has_read_twice: bool,
    content_length: Option<u64>,
    is_invalid: bool,
    has_regular: bool,
    /// Number of the fields that were added to the dynamic table, and the position of the last.
    added: (usize, usize),
}

impl List {
    /// Starts a block.
    pub(super) fn start(&mut self, list_max: usize) {
        self.fields.clear();
        self.bytes.clear();
        self.read.clear();
        *self = Self {
            fields: std::mem::take(&mut self.fields),
            bytes: std::mem::take(&mut self.bytes),
            read: std::mem::take(&mut self.read),
            list_max,
            ..Self::default()
        };
    }

    /// Size of all fields, kept or not.
    #[inline]
    pub(super) fn list_bytes(&self) -> usize {
        self.list_bytes
    }

    /// Number of all fields.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The position of the field that was added to the dynamic table, if it is the only one.
    pub(super) fn added_alone(&self) -> Option<usize> {
        let (1, position) = self.added else { return None };
        Some(position)
    }

    /// Adds the field of an entry.
    #[inline]
    pub(super) fn push_entry(&mut self, source: Source, class: Class, bytes: usize) {
        let name = LiteralName::Text;
        self.push(Field { class, source, name, start: 0, name_end: 0, end: 0 }, bytes);
    }

    /// Adds a field that was just added to the dynamic table.
    pub(super) fn push_added(&mut self, source: Source, class: Class, bytes: usize) {
        self.added = (self.added.0 + 1, self.count);
        self.push_entry(source, class, bytes);
    }

    /// Adds another literal field, with the length of its name. The name's text follows if it is [`LiteralName::Text`].
    pub(super) fn push_literal(
        &mut self,
        name: LiteralName,
        (name_len, name_text): (usize, &[u8]),
        value: &[u8],
        class: Class,
    ) {
        let size = name_len + value.len() + ENTRY_OVERHEAD;
        let start = self.bytes.len();
        let is_kept = self.list_bytes.saturating_add(size) <= self.list_max;
        if is_kept {
            steps::add(steps::of_bytes(name_text.len() + value.len()));
            self.bytes.extend_from_slice(name_text);
        }
        let name_end = self.bytes.len();
        if is_kept {
            self.bytes.extend_from_slice(value);
        }
        // A list within its bound is much smaller than 4 GiB.
        let [start, name_end, end] = [start, name_end, self.bytes.len()].map(|at| at as u32);
        self.push(Field { class, source: Source::LITERAL, name, start, name_end, end }, size);
    }

    #[inline]
    fn push(&mut self, field: Field, bytes: usize) {
        steps::add(steps::FIELD);
        let position = self.count as u32;
        self.count += 1;
        self.list_bytes = self.list_bytes.saturating_add(bytes);
        if self.list_bytes > self.list_max {
            return;
        }
        match field.class {
            Class::Other => self.has_regular = true,
            Class::Pseudo(pseudo) => {
                let is_second = self.pseudo[pseudo as usize].replace(position).is_some();
                self.is_invalid |= is_second || self.has_regular;
            }
            Class::Read(number) => {
                self.has_regular = true;
                self.has_read_twice |= self.read_set >> number & 1 == 1;
                self.read_set |= 1 << number;
                self.read.push(position);
            }
            Class::ContentLength(length) => {
                self.has_regular = true;
                self.is_invalid |= self.content_length.replace(length).is_some_and(|other| other != length);
            }
            Class::Invalid => self.is_invalid = true,
        }
        self.fields.push(field);
    }

    /// Gives the field at a position another entry, which differs only in its value.
    pub(super) fn set_source(&mut self, position: usize, source: Source) {
        if let Some(field) = self.fields.get_mut(position) {
            field.source = source;
        }
    }
}

/// The fields of the block that a decoder decoded last.
#[derive(Clone, Copy)]
pub struct Fields<'d> {
    pub(super) list: &'d List,
    pub(super) table: &'d DynamicTable,
    pub(super) names: &'static FieldNames,
}

impl<'d> Fields<'d> {
    /// Method, path, and the fields that the service reads.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = (&'static [u8], &'d [u8])> {
        let target = [Pseudo::Method, Pseudo::Path];
        let target = target.into_iter().filter_map(move |pseudo| Some((pseudo.name(), self.pseudo(pseudo)?)));
        let read = (0..self.read_len()).filter_map(move |nth| {
            let (number, position) = self.read(nth)?;
            Some((self.names.name(number).as_str().as_bytes(), self.text(position).1))
        });
        target.chain(read)
    }

    /// The first value under a name of [`Self::iter`].
    #[inline]
    pub fn get(self, name: &[u8]) -> Option<&'d [u8]> {
        steps::add(steps::FIELD);
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Names and values of all fields that are kept.
    pub fn all(self) -> impl Iterator<Item = (&'d [u8], &'d [u8])> {
        (0..self.list.fields.len()).map(move |position| self.text(position))
    }

    /// The nth of the fields that the service reads: the number of its name, and its position among all fields.
    #[inline]
    pub(crate) fn read(self, nth: usize) -> Option<(u8, usize)> {
        let position = *self.list.read.get(nth)? as usize;
        match self.list.fields.get(position)?.class {
            Class::Read(number) => Some((number, position)),
            _ => None,
        }
    }

    /// Number of the fields that the service reads.
    #[inline]
    pub(crate) fn read_len(self) -> usize {
        self.list.read.len()
    }

    /// Whether several of the fields that the service reads have the same name.
    pub(crate) fn has_read_twice(self) -> bool {
        self.list.has_read_twice
    }

    /// Number of all fields.
    pub(crate) fn count(self) -> usize {
        self.list.count
    }

    /// Size of all fields, kept or not.
    pub(crate) fn list_bytes(self) -> usize {
        self.list.list_bytes
    }

    /// Whether all fields are valid in trailers.
    pub(crate) fn are_trailers(self) -> bool {
        !self.list.is_invalid && self.list.pseudo == [None; _]
    }

    /// The content-length of a valid request, if it has one. None if the request is not valid.
    pub(crate) fn valid_request(self) -> Option<Option<u64>> {
        let required = [Pseudo::Method, Pseudo::Scheme, Pseudo::Path];
        let is_complete = required.iter().all(|pseudo| self.list.pseudo[*pseudo as usize].is_some());
        (is_complete && !self.list.is_invalid).then_some(self.list.content_length)
    }

    /// The value of a pseudo-header.
    #[inline]
    pub(crate) fn pseudo(self, pseudo: Pseudo) -> Option<&'d [u8]> {
        Some(self.text(self.list.pseudo[pseudo as usize]? as usize).1)
    }

    /// The position of a pseudo-header.
    pub(super) fn position(self, pseudo: Pseudo) -> Option<usize> {
        Some(self.list.pseudo[pseudo as usize]? as usize)
    }

    /// The source of the field at a position.
    pub(super) fn source(self, position: usize) -> Option<Source> {
        Some(self.list.fields.get(position)?.source)
    }

    /// Name and value of the field at a position.
    #[inline]
    pub(super) fn text(self, position: usize) -> (&'d [u8], &'d [u8]) {
        let Some(&Field { source, name, start, name_end, end, .. }) = self.list.fields.get(position) else {
            return (&[], &[]);
        };
        if let Some(entry) = self.table.get(source) {
            return (self.table.name(entry.name), self.table.value(source, entry));
        }
        if let Some(fixed) = source.position().and_then(|position| STATIC_TABLE.get(position)) {
            return *fixed;
        }
        let value = &self.list.bytes[name_end as usize..end as usize];
        match name {
            LiteralName::Of(name) => (self.table.name(name), value),
            LiteralName::Text => (&self.list.bytes[start as usize..name_end as usize], value),
        }
    }
}

#[cfg(test)]
impl Fields<'_> {
    /// Whether the fields kept are within the bound of the list.
    pub(super) fn ends_within(self, list_max: usize) -> bool {
        self.all().map(|(name, value)| name.len() + value.len() + ENTRY_OVERHEAD).sum::<usize>() <= list_max
    }
}
