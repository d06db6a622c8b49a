//! Decodes header blocks.
//!
//! A decoder must decode every header block of its connection, in order: each may change the dynamic table that later
//! blocks refer to.

use super::{
    DEFAULT_TABLE_SIZE, ENTRY_OVERHEAD, Fields,
    dynamic_table::{DynamicTable, Stored},
    fields::Source,
    huffman,
    repeated::Expected,
    static_table::STATIC_TABLE,
};
use crate::http2::{ConnectionError, ErrorCode, frame, steps};

/// A header block that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HpackError {
    Truncated,
    Integer,
    Huffman,
    Index,
    TableSize,
    LateResize,
    ListTooLarge,
}

impl From<HpackError> for ConnectionError {
    fn from(error: HpackError) -> Self {
        let code = match error {
            HpackError::ListTooLarge => ErrorCode::EnhanceYourCalm,
            _ => ErrorCode::Compression,
        };
        let why = match error {
            HpackError::Truncated => "header block ends within a field",
            HpackError::Integer => "integer out of range in a header block",
            HpackError::Huffman => "invalid Huffman code in a header block",
            HpackError::Index => "header block refers to an entry that is in no table",
            HpackError::TableSize => "header block sets the table size above SETTINGS_HEADER_TABLE_SIZE",
            HpackError::LateResize => "table size update after the first field of a header block",
            HpackError::ListTooLarge => "header block far above SETTINGS_MAX_HEADER_LIST_SIZE",
        };
        Self::new(code, why)
    }
}

/// A list of fields so many times larger than allowed is an error of the connection.
const LIST_FACTOR_MAX: usize = 3;

/// The decoding half of a connection's header compression.
pub(crate) struct Decoder {
    table: DynamicTable,
    /// Name and value of a literal field while it is decoded.
    literal: Vec<u8>,
    expected: Expected,
    /// The values of expected blocks that were checked last.
    texts: Box<huffman::Texts>,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self {
            table: DynamicTable::new(),
            literal: Vec::new(),
            expected: Expected::default(),
            texts: Box::default(),
        }
    }

    /// Number of the dynamic table's state: while it is the same, the same block decodes to the same fields.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.table.generation()
    }

    /// Decodes a whole header block into `fields`, which are empty or hold those that this decoder decoded last: fields that
    /// are repeated at the same position are not decoded again. Fields beyond `list_max` bytes are not kept, and copied only
    /// as far as the dynamic table needs them; [`Fields::list_bytes`] counts them.
    pub(crate) fn decode(
        &mut self,
        mut block: &[u8],
        list_max: usize,
        fields: &mut Fields,
    ) -> Result<(), HpackError> {
        self.complete(fields);
        self.expected.clear();
        fields.start(list_max);
        while let Some(&first) = block.first() {
            match first {
                0x80.. => match fields.keep_indexed(block, self.table.sources()) {
                    0 => self.indexed(integer(&mut block, 7)?, list_max, fields)?,
                    kept => block = &block[kept..],
                },
                0x40..0x80 => self.literal_field(&mut block, 6, list_max, fields)?,
                0x20..0x40 if fields.list_bytes() > 0 => return Err(HpackError::LateResize),
                0x20..0x40 => self.resize(integer(&mut block, 5)?)?,
                // Without indexing, or never indexed: the same for an endpoint that forwards nothing.
                ..0x20 => self.literal_field(&mut block, 4, list_max, fields)?,
            }
            if fields.list_bytes() > list_max.saturating_mul(LIST_FACTOR_MAX) {
                return Err(HpackError::ListTooLarge);
            }
        }
        fields.end();
        Ok(())
    }

    /// Expects the next block to differ from `block`, which was decoded last, in the value alone that `fields` found changed.
    pub(crate) fn expect_repeated(&mut self, block: &[u8], fields: &Fields) {
        self.expected.follow(block, fields, &self.table);
    }

    /// Decodes a block if it is the expected one, which changes the value of one field and adds it to the dynamic table. The
    /// value is a valid one of the same length. [`Self::complete`] writes it to `fields`, which must be those decoded last and
    /// are not changed here. Returns the name of the field, and its size in the list. `rest` are the
    /// bytes received after the block's frame.
    #[inline]
    pub(crate) fn decode_repeated<'f>(
        &mut self,
        block: &[u8],
        rest: &[u8],
        fields: &'f Fields,
    ) -> Result<Option<(&'f [u8], usize)>, HpackError> {
        let expected = &mut self.expected;
        let Some(coded) = expected.value_in(block) else { return Ok(None) };
        steps::add(2 * steps::FIELD + 2 * steps::of_bytes(block.len()));
        let [oldest_before, oldest_after] = expected.oldest;
        let (name, value) = fields.at(expected.field);
        let next = frame::next_blocks(rest).map_while(|block| expected.likely_value_in(block));
        if oldest_before < self.table.oldest()
            || !self.texts.has_len(coded, value.len(), next)
            || !self.table.insert_coded(name, coded, value.len())
        {
            return Ok(None);
        }
        if oldest_after < self.table.oldest() {
            return Err(HpackError::Index);
        }
        expected.advance();
        expected.is_repeated = true;
        Ok(Some((name, name.len() + value.len() + ENTRY_OVERHEAD)))
    }

    /// The value that [`Self::decode_repeated`] found.
    pub(crate) fn repeated_value(&mut self) -> &[u8] {
        self.literal.clear();
        if let Some(newest) = self.table.get(0) {
            huffman::decode(newest.value, &mut self.literal)
                .expect("the code was checked before it was stored");
        }
        &self.literal
    }

    /// Writes the value that [`Self::decode_repeated`] found, if any, to the fields.
    pub(crate) fn complete(&mut self, fields: &mut Fields) {
        if std::mem::take(&mut self.expected.is_repeated)
            && let (field, Some(source)) = (self.expected.field, self.table.newest())
        {
            fields.overwrite(field, self.repeated_value(), source);
        }
    }

    /// Adds the field of an entry.
    fn indexed(&mut self, index: usize, list_max: usize, fields: &mut Fields) -> Result<(), HpackError> {
        let source = self.table.sources().of(index as u64).ok_or(HpackError::Index)?;
        let mut decoded = std::mem::take(&mut self.literal);
        decoded.clear();
        let Stored { name, mut value, is_coded } = self.entry(index)?;
        if is_coded {
            steps::add(steps::of_bytes(value.len()));
            huffman::decode(value, &mut decoded)?;
            value = &decoded;
        }
        fields.push(name, value, source, list_max);
        self.literal = decoded;
        Ok(())
    }

    /// Adds a literal field, which is added to the table too if its name's index has six bits.
    #[inline]
    fn literal_field(
        &mut self,
        block: &mut &[u8],
        prefix_bits: u32,
        list_max: usize,
        fields: &mut Fields,
    ) -> Result<(), HpackError> {
        let is_indexed = prefix_bits == 6;
        if let Some(length) = fields.keep_literal(block) {
            *block = &block[length..];
            fields.set_source(|name, value| match is_indexed {
                true => self.table.insert(name, value),
                false => Source::LITERAL,
            });
            return Ok(());
        }
        let before = *block;
        let name_index = integer(&mut { before }, prefix_bits)?;
        let name_end = self.literal(block, prefix_bits)?;
        let (name, value) = self.literal.split_at(name_end);
        let source = if is_indexed { self.table.insert(name, value) } else { Source::LITERAL };
        if name_index <= STATIC_TABLE.len() {
            let coded = &before[..before.len() - block.len()];
            fields.push_literal((name, value), coded, source, list_max);
        } else {
            fields.push(name, value, source, list_max);
        }
        Ok(())
    }

    /// Reads a literal field; where its name ends.
    fn literal(&mut self, block: &mut &[u8], prefix_bits: u32) -> Result<usize, HpackError> {
        let mut literal = std::mem::take(&mut self.literal);
        literal.clear();
        let name_end = self.read_literal(block, prefix_bits, &mut literal);
        steps::add(steps::FIELD + 2 * steps::of_bytes(literal.len()));
        self.literal = literal;
        name_end
    }

    fn read_literal(
        &self,
        block: &mut &[u8],
        prefix_bits: u32,
        literal: &mut Vec<u8>,
    ) -> Result<usize, HpackError> {
        match integer(block, prefix_bits)? {
            0 => string(block, literal)?,
            index => literal.extend_from_slice(self.entry(index)?.name),
        }
        let name_end = literal.len();
        string(block, literal)?;
        Ok(name_end)
    }

    fn entry(&self, index: usize) -> Result<Stored<'_>, HpackError> {
        let index = index.checked_sub(1).ok_or(HpackError::Index)?;
        if let Some(&(name, value)) = STATIC_TABLE.get(index) {
            return Ok(Stored { name, value, is_coded: false });
        }
        self.table.get(index - STATIC_TABLE.len()).ok_or(HpackError::Index)
    }

    fn resize(&mut self, capacity: usize) -> Result<(), HpackError> {
        if capacity > DEFAULT_TABLE_SIZE {
            return Err(HpackError::TableSize);
        }
        self.table.resize(capacity);
        Ok(())
    }
}

fn integer(block: &mut &[u8], prefix_bits: u32) -> Result<usize, HpackError> {
    let mask = (1_usize << prefix_bits) - 1;
    let mut value = usize::from(*block.split_off_first().ok_or(HpackError::Truncated)?) & mask;
    if value < mask {
        return Ok(value);
    }
    // Four more bytes reach 2^28: beyond any length or index that could be right here.
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
