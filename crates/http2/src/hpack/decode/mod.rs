//! Decodes header blocks.
//!
//! A decoder must decode every header block of its connection in order: each block may change the dynamic table that later blocks refer to.

use super::{
    DEFAULT_TABLE_SIZE, ENTRY_OVERHEAD, Fields,
    dynamic_table::{DynamicTable, NewName},
    error::HpackError,
    field_class::{Class, FieldNames, NameClass, Pseudo, is_field_value},
    fields::{List, LiteralName},
    huffman,
    literals::Literals,
    names::NameRef,
    repeated::Expected,
    source::Source,
    static_table::STATIC_TABLE,
};
use crate::steps;
use http::{HeaderValue, uri::PathAndQuery};

/// A list of fields that is larger than allowed by more than this factor is an error of the connection.
const LIST_FACTOR_MAX: usize = 3;

/// The decoding half of a connection's header compression, with the fields of the last block.
pub struct Decoder {
    names: &'static FieldNames,
    table: DynamicTable,
    list: List,
    /// Name and value of a literal field while it is decoded.
    literal: Vec<u8>,
    literals: Literals,
    expected: Expected,
}

/// A block that repeats the block before with another value of one field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Repeated {
    /// The number of the field's name, if the service reads it.
    pub(crate) read: Option<u8>,
}

impl Decoder {
    /// A decoder for a service that reads fields with these names.
    pub fn new(names: &'static FieldNames) -> Self {
        Self {
            names,
            table: DynamicTable::new(),
            list: List::default(),
            literal: Vec::new(),
            literals: Literals::default(),
            expected: Expected::default(),
        }
    }

    /// Number of the dynamic table's state. If it has not changed, the same block decodes to the same fields.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.table.generation()
    }

    /// The fields of the last block.
    #[inline]
    pub fn fields(&self) -> Fields<'_> {
        Fields { list: &self.list, table: &self.table, names: self.names }
    }

    /// Decodes a whole header block. Fields beyond `list_max` bytes are counted, but not kept.
    pub fn decode(&mut self, mut block: &[u8], list_max: usize) -> Result<(), HpackError> {
        self.expected.clear();
        self.table.forget_evicted();
        self.list.start(list_max);
        while let Some(&first) = block.first() {
            match first {
                0x80.. => self.indexed(integer(&mut block, 7)?)?,
                0x40..0x80 => self.literal_field(&mut block, 6)?,
                0x20..0x40 if self.list.list_bytes() > 0 => return Err(HpackError::LateResize),
                0x20..0x40 => self.resize(integer(&mut block, 5)?)?,
                // Without indexing, or never indexed, which are the same here, as nothing is forwarded.
                ..0x20 => self.literal_field(&mut block, 4)?,
            }
            if self.list.list_bytes() > list_max.saturating_mul(LIST_FACTOR_MAX) {
                return Err(HpackError::ListTooLarge);
            }
        }
        Ok(())
    }

    /// Expects that the next block differs from `block` only in the value of the single field that it added to the dynamic table. `block`
    /// was decoded last and is valid.
    pub(crate) fn expect_repeated(&mut self, block: &[u8]) {
        if let Some((added, entry)) = self.table.newest()
            && let NameClass::Read(_) | NameClass::Other = self.table.name_class(entry.name, self.names)
            && let Some(field) = self.list.added_alone()
            && self.fields().source(field) == Some(added)
        {
            let value_len = self.table.value(added, entry).len();
            self.expected.follow(block, (field, value_len), added);
        }
    }

    /// Decodes a block if it is the expected one: it changes the value of one field and adds it to the dynamic table. The value is valid
    /// and has the same length. Does not change the fields: [`Self::complete`] writes the value to them.
    #[inline]
    pub(crate) fn decode_repeated(&mut self, block: &[u8]) -> Result<Option<Repeated>, HpackError> {
        let expected = &mut self.expected;
        let Some(coded) = expected.value_in(block) else { return Ok(None) };
        steps::add(2 * steps::FIELD + 2 * steps::of_bytes(block.len()));
        let [oldest_before, oldest_after] = expected.oldest;
        if oldest_before < self.table.oldest() {
            return Ok(None);
        }
        self.literal.clear();
        steps::add(2 * steps::of_bytes(coded.len()));
        huffman::decode(coded, &mut self.literal)?;
        if self.literal.len() != expected.value_len || !is_field_value(&self.literal) {
            return Ok(None);
        }
        let Some(class) = self.table.insert_coded(coded, expected.value_len) else { return Ok(None) };
        if oldest_after < self.table.oldest() {
            return Err(HpackError::Index);
        }
        expected.advance();
        expected.is_repeated = true;
        let read = if let Class::Read(number) = class { Some(number) } else { None };
        Ok(Some(Repeated { read }))
    }

    /// The value that [`Self::decode_repeated`] found.
    pub(crate) fn repeated_value(&self) -> &[u8] {
        &self.literal
    }

    /// Writes the value that [`Self::decode_repeated`] found, if any, to the fields.
    pub(crate) fn complete(&mut self) {
        if std::mem::take(&mut self.expected.is_repeated)
            && let Some((newest, _)) = self.table.newest()
        {
            self.table.decode(newest);
            self.list.set_source(self.expected.field, newest);
        }
    }

    /// The value of the field at a position. If it is an entry's value, requests share it.
    pub(crate) fn header_value(&mut self, position: usize) -> Option<HeaderValue> {
        match self.fields().source(position)? {
            source if source.dynamic().is_some() => self.table.header_value(source),
            _ => {
                let (_, value) = self.fields().text(position);
                steps::add(steps::of_bytes(value.len()));
                HeaderValue::from_bytes(value).ok()
            }
        }
    }

    /// The path of a request. If it is an entry's value, requests share it.
    pub(crate) fn path(&mut self) -> Option<PathAndQuery> {
        let position = self.fields().position(Pseudo::Path)?;
        match self.fields().source(position)? {
            source if source.dynamic().is_some() => self.table.path(source),
            _ => {
                let (_, path) = self.fields().text(position);
                steps::add(2 * steps::of_bytes(path.len()));
                PathAndQuery::try_from(path).ok()
            }
        }
    }

    /// Adds the field of an entry.
    #[inline]
    fn indexed(&mut self, index: usize) -> Result<(), HpackError> {
        let position = index.checked_sub(1).ok_or(HpackError::Index)?;
        if let Some((name, value)) = STATIC_TABLE.get(position) {
            let class = Class::of_valid(self.names.class_of_static(position));
            let bytes = name.len() + value.len() + ENTRY_OVERHEAD;
            self.list.push_entry(Source::of_static(position), class, bytes);
            return Ok(());
        }
        let (source, entry) = self.table.at(position - STATIC_TABLE.len()).ok_or(HpackError::Index)?;
        self.list.push_entry(source, entry.class, entry.cost as usize);
        self.table.decode(source);
        Ok(())
    }

    /// Adds a literal field to the list. If its name's index has six bits, also adds it to the table.
    fn literal_field(&mut self, block: &mut &[u8], prefix_bits: u32) -> Result<(), HpackError> {
        let position = self.list.count();
        if let Some(literal) = self.literals.find(position, block) {
            *block = &block[literal.coded_len()..];
            let target = (&mut self.table, &mut self.list);
            add_literal(target, literal.name(), literal.texts(), literal.classes(), prefix_bits == 6);
            return Ok(());
        }
        let mut text = std::mem::take(&mut self.literal);
        text.clear();
        let read = self.read_literal(block, prefix_bits, &mut text);
        self.literal = text;
        read
    }

    fn read_literal(
        &mut self,
        block: &mut &[u8],
        prefix_bits: u32,
        text: &mut Vec<u8>,
    ) -> Result<(), HpackError> {
        let (before, position) = (*block, self.list.count());
        let name_index = integer(block, prefix_bits)?;
        let name = match name_index.checked_sub(1) {
            None => {
                string(block, text)?;
                None
            }
            Some(position) if position < STATIC_TABLE.len() => Some(NameRef::Static(position as u8)),
            Some(position) => {
                let (_, entry) = self.table.at(position - STATIC_TABLE.len()).ok_or(HpackError::Index)?;
                Some(entry.name)
            }
        };
        let name_end = text.len();
        string(block, text)?;
        let texts = text.split_at(name_end);
        // The text is decoded and checked.
        steps::add(2 * steps::of_bytes(text.len()));
        let name_class = match name {
            Some(name) => self.table.name_class(name, self.names),
            None => self.names.class_of(texts.0),
        };
        let classes = (name_class, Class::of(name_class, texts.1));
        add_literal((&mut self.table, &mut self.list), name, texts, classes, prefix_bits == 6);
        if name_index <= STATIC_TABLE.len() {
            self.literals.keep(position, &before[..before.len() - block.len()], name, texts, classes);
        }
        Ok(())
    }

    fn resize(&mut self, capacity: usize) -> Result<(), HpackError> {
        if capacity > DEFAULT_TABLE_SIZE {
            return Err(HpackError::TableSize);
        }
        self.table.resize(capacity);
        Ok(())
    }
}

/// Adds a literal field to the list, and to the table if it is indexed. Its name is in a table or in the texts.
fn add_literal(
    (table, list): (&mut DynamicTable, &mut List),
    name: Option<NameRef>,
    (name_text, value): (&[u8], &[u8]),
    (name_class, class): (NameClass, Class),
    is_indexed: bool,
) {
    let name_len = name.map_or(name_text.len(), |name| table.name(name).len());
    if is_indexed {
        let name = name.map_or(NewName::Text(name_text, name_class), NewName::Shared);
        let source = table.insert(name, value, class);
        list.push_added(source, class, name_len + value.len() + ENTRY_OVERHEAD);
    } else {
        let name = name.map_or(LiteralName::Text, LiteralName::Of);
        list.push_literal(name, (name_len, name_text), value, class);
    }
}

fn integer(block: &mut &[u8], prefix_bits: u32) -> Result<usize, HpackError> {
    let mask = (1_usize << prefix_bits) - 1;
    let mut value = usize::from(*block.split_off_first().ok_or(HpackError::Truncated)?) & mask;
    if value < mask {
        return Ok(value);
    }
    // Four more bytes reach 2^28, which is more than any valid length or index.
    for shift in [0, 7, 14, 21] {
        let byte = *block.split_off_first().ok_or(HpackError::Truncated)?;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(HpackError::Integer)
}

fn string(block: &mut &[u8], buffer: &mut Vec<u8>) -> Result<(), HpackError> {
    let is_huffman = block.first().is_some_and(|byte| byte & 0x80 != 0);
    let length = integer(block, 7)?;
    let bytes = block.split_off(..length).ok_or(HpackError::Truncated)?;
    if is_huffman {
        huffman::decode(bytes, buffer)
    } else {
        buffer.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
