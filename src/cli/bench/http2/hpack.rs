//! HPACK (RFC 7541): reading any header block, and the two shapes of field that a client writes.
//!
//! A decoder sees every header block of its connection, in order: the dynamic table is state, and a block skipped
//! would make every later block mean something else.

use super::{huffman, static_table::STATIC_TABLE};
use std::collections::VecDeque;

/// The table size that both sides have unless SETTINGS say otherwise; this client leaves it so.
pub(super) const DEFAULT_TABLE_SIZE: usize = 4096;
/// What an entry costs in the table beyond the bytes of its name and value.
const ENTRY_OVERHEAD: usize = 32;

/// A header block that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HpackError {
    #[error("a header block ends in the middle of a field")]
    Truncated,
    #[error("a header block has an integer out of range")]
    Integer,
    #[error("a header block has a bad Huffman code")]
    Huffman,
    #[error("a header block refers to an entry that no table has")]
    Index,
    #[error("a header block enlarges the table beyond what was allowed")]
    TableSize,
}

/// A field's name and value.
type Field = (Box<[u8]>, Box<[u8]>);

/// The reading side of a connection's header compression.
pub(super) struct Decoder {
    /// The dynamic table, newest entry first.
    entries: VecDeque<Field>,
    /// The size of `entries` as HPACK counts it. Never above `capacity`.
    size: usize,
    /// What the server last set, at most [`DEFAULT_TABLE_SIZE`].
    capacity: usize,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self { entries: VecDeque::new(), size: 0, capacity: DEFAULT_TABLE_SIZE }
    }

    /// Reads a whole header block and hands each field's name and value to `field`.
    pub(super) fn decode(
        &mut self,
        mut block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        while let Some(&first) = block.first() {
            match first {
                0x80.. => {
                    let index = integer(&mut block, 7)?;
                    let (name, value) = self.entry(index)?;
                    field(name, value);
                }
                0x40..0x80 => {
                    let (name, value) = self.literal(&mut block, 6)?;
                    field(&name, &value);
                    self.insert(name, value);
                }
                0x20..0x40 => {
                    let capacity = integer(&mut block, 5)?;
                    if capacity > DEFAULT_TABLE_SIZE {
                        return Err(HpackError::TableSize);
                    }
                    self.capacity = capacity;
                    self.evict_down_to(capacity);
                }
                // Not to be indexed, or never to be: the same to a client.
                ..0x20 => {
                    let (name, value) = self.literal(&mut block, 4)?;
                    field(&name, &value);
                }
            }
        }
        Ok(())
    }

    fn literal(&self, block: &mut &[u8], prefix_bits: u32) -> Result<Field, HpackError> {
        let name = match integer(block, prefix_bits)? {
            0 => string(block)?,
            index => self.entry(index)?.0.into(),
        };
        Ok((name, string(block)?))
    }

    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        let index = index.checked_sub(1).ok_or(HpackError::Index)?;
        if let Some(&field) = STATIC_TABLE.get(index) {
            return Ok(field);
        }
        let (name, value) = self.entries.get(index - STATIC_TABLE.len()).ok_or(HpackError::Index)?;
        Ok((name, value))
    }

    fn insert(&mut self, name: Box<[u8]>, value: Box<[u8]>) {
        let size = entry_size(&name, &value);
        // An entry larger than the table is no error: it empties the table.
        self.evict_down_to(self.capacity.saturating_sub(size));
        if size <= self.capacity {
            self.size += size;
            self.entries.push_front((name, value));
        }
    }

    fn evict_down_to(&mut self, target: usize) {
        while self.size > target {
            let (name, value) = self.entries.pop_back().expect("a table with a size has entries");
            self.size -= entry_size(&name, &value);
        }
    }
}

fn entry_size(name: &[u8], value: &[u8]) -> usize {
    name.len() + value.len() + ENTRY_OVERHEAD
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

fn string(block: &mut &[u8]) -> Result<Box<[u8]>, HpackError> {
    let is_huffman = block.first().is_some_and(|byte| byte & 0x80 != 0);
    let length = integer(block, 7)?;
    let bytes = block.split_off(..length).ok_or(HpackError::Truncated)?;
    if is_huffman { Ok(huffman::decode(bytes)?.into()) } else { Ok(bytes.into()) }
}

/// Appends an integer whose first byte carries `pattern` above its `prefix_bits` low bits.
fn write_integer(pattern: u8, prefix_bits: u32, value: usize, block: &mut Vec<u8>) {
    let mask = (1_usize << prefix_bits) - 1;
    if value < mask {
        return block.push(pattern | value as u8);
    }
    block.push(pattern | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

fn write_string(plain: &[u8], block: &mut Vec<u8>) {
    let mut coded = Vec::new();
    huffman::encode(plain, &mut coded);
    if coded.len() < plain.len() {
        write_integer(0x80, 7, coded.len(), block);
        block.extend_from_slice(&coded);
    } else {
        write_integer(0, 7, plain.len(), block);
        block.extend_from_slice(plain);
    }
}

/// Appends a field that stands in a table, by its index.
pub(super) fn write_indexed(index: usize, block: &mut Vec<u8>) {
    write_integer(0x80, 7, index, block);
}

/// Appends a field in full; with `indexed`, both sides also add it to their dynamic tables.
pub(super) fn write_literal(name: &[u8], value: &[u8], indexed: bool, block: &mut Vec<u8>) {
    let (pattern, prefix_bits) = if indexed { (0x40, 6) } else { (0, 4) };
    let known = STATIC_TABLE.iter().position(|&(known, _)| known == name);
    write_integer(pattern, prefix_bits, known.map_or(0, |position| position + 1), block);
    if known.is_none() {
        write_string(name, block);
    }
    write_string(value, block);
}

/// Appends the instruction that empties the dynamic table and keeps it empty.
pub(super) fn write_no_table(block: &mut Vec<u8>) {
    write_integer(0x20, 5, 0, block);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, HpackError> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        decoder.decode(block, |name, value| fields.push((text(name), text(value))))?;
        Ok(fields)
    }

    fn field(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    /// RFC 7541, appendix C.6, first two responses: Huffman coding and a table that is full.
    #[test]
    fn the_responses_of_the_rfc_are_read_as_there() {
        let mut decoder = Decoder::new();
        decoder.capacity = 256;
        let first = b"\x48\x82\x64\x02\x58\x85\xae\xc3\x77\x1a\x4b\x61\x96\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\
                      \x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff\x6e\x91\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\
                      \x97\xc8\xe9\xae\x82\xae\x43\xd3";
        let expected = [
            field(":status", "302"),
            field("cache-control", "private"),
            field("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
            field("location", "https://www.example.com"),
        ];
        assert_eq!(fields(&mut decoder, first).as_deref(), Ok(&expected[..]));
        assert_eq!(decoder.size, 222);

        let second = fields(&mut decoder, b"\x48\x83\x64\x0e\xff\xc1\xc0\xbf").expect("a good block");
        assert_eq!(second[0], field(":status", "307"));
        assert_eq!(second[1..], expected[1..]);
        assert_eq!(
            (decoder.size, decoder.entries.len()),
            (222, 4),
            "(:status, 302) made room for (:status, 307)"
        );
    }

    #[test]
    fn what_is_written_is_read_back_and_shortens_from_the_second_time() {
        let (mut decoder, long) = (Decoder::new(), "x".repeat(300));
        let mut block = Vec::new();
        write_indexed(3, &mut block);
        write_literal(b":path", b"/a", false, &mut block);
        write_literal(b"grpc-timeout", long.as_bytes(), true, &mut block);
        let expected = [field(":method", "POST"), field(":path", "/a"), field("grpc-timeout", &long)];
        assert_eq!(fields(&mut decoder, &block).as_deref(), Ok(&expected[..]));

        let mut again = Vec::new();
        write_indexed(62, &mut again);
        assert_eq!(fields(&mut decoder, &again).as_deref(), Ok(&expected[2..]));

        let mut without = Vec::new();
        write_no_table(&mut without);
        write_indexed(62, &mut without);
        assert_eq!(fields(&mut decoder, &without), Err(HpackError::Index));
    }

    #[test]
    fn damaged_blocks_are_refused() {
        for (block, error) in [
            (&b"\x80"[..], HpackError::Index),
            (b"\xbe", HpackError::Index),
            (b"\x40\x05ab", HpackError::Truncated),
            (b"\x40", HpackError::Truncated),
            (b"\xff\xff\xff\xff\xff\xff", HpackError::Integer),
            (b"\x3f\xe2\x1f", HpackError::TableSize),
        ] {
            assert_eq!(fields(&mut Decoder::new(), block), Err(error), "{block:x?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_block_panics_nor_overfills_the_table(blocks: Vec<Vec<u8>>) {
            let mut decoder = Decoder::new();
            for block in blocks {
                let _ = decoder.decode(&block, |_, _| {});
                proptest::prop_assert!(decoder.size <= decoder.capacity);
            }
        }
    }
}
