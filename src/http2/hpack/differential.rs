//! Compares the decoder with one that keeps nothing from block to block and follows RFC 7541 step by step.

use super::{
    DEFAULT_TABLE_SIZE, Decoder, ENTRY_OVERHEAD, Fields, HpackError, NEWEST, huffman,
    static_table::STATIC_TABLE, write_indexed, write_literal, write_literal_of, write_table_size,
};
use proptest::prelude::*;

type Field = (Vec<u8>, Vec<u8>);

struct PlainDecoder {
    /// Newest first.
    table: Vec<Field>,
    capacity: usize,
}

impl PlainDecoder {
    fn entry(&self, index: usize) -> Result<Field, HpackError> {
        let index = index.checked_sub(1).ok_or(HpackError::Index)?;
        match STATIC_TABLE.get(index) {
            Some((name, value)) => Ok((name.to_vec(), value.to_vec())),
            None => self.table.get(index - STATIC_TABLE.len()).cloned().ok_or(HpackError::Index),
        }
    }

    fn evict(&mut self) {
        let size = |table: &[Field]| {
            table.iter().map(|(name, value)| name.len() + value.len() + ENTRY_OVERHEAD).sum::<usize>()
        };
        while size(&self.table) > self.capacity {
            self.table.pop();
        }
    }

    fn decode(&mut self, mut block: &[u8]) -> Result<Vec<Field>, HpackError> {
        let mut fields = Vec::new();
        while let Some(&first) = block.first() {
            match first {
                0x80.. => {
                    let index = integer(&mut block, 7);
                    fields.push(self.entry(index)?);
                }
                0x40..0x80 => {
                    let field = self.literal(&mut block, 6)?;
                    self.table.insert(0, field.clone());
                    self.evict();
                    fields.push(field);
                }
                0x20..0x40 => {
                    self.capacity = integer(&mut block, 5);
                    self.evict();
                }
                ..0x20 => fields.push(self.literal(&mut block, 4)?),
            }
        }
        Ok(fields)
    }

    fn literal(&self, block: &mut &[u8], prefix_bits: u32) -> Result<Field, HpackError> {
        let name = match integer(block, prefix_bits) {
            0 => string(block)?,
            index => self.entry(index)?.0,
        };
        Ok((name, string(block)?))
    }
}

/// An integer of a block that is complete.
fn integer(block: &mut &[u8], prefix_bits: u32) -> usize {
    let mut next = || usize::from(*block.split_off_first().expect("a byte"));
    let mask = (1 << prefix_bits) - 1;
    let (mut value, mut shift) = (next() & mask, 0);
    if value < mask {
        return value;
    }
    loop {
        let byte = next();
        value += (byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
        shift += 7;
    }
}

fn string(block: &mut &[u8]) -> Result<Vec<u8>, HpackError> {
    let is_huffman = block[0] & 0x80 != 0;
    let length = integer(block, 7);
    let bytes = block.split_off(..length).expect("the block is complete");
    let mut plain = Vec::new();
    if is_huffman {
        huffman::decode(bytes, &mut plain)?
    } else {
        plain.extend_from_slice(bytes)
    }
    Ok(plain)
}

/// A part of a block.
#[derive(Clone, Debug)]
enum Part {
    /// An index of either table: of all that they have, one that depends on this number.
    Index(usize),
    /// An index that no table may have.
    AnyIndex(usize),
    /// A name, the length of a value, and whether the field is indexed.
    Literal(usize, usize, bool),
    /// An indexed field with the name of an entry, as for `Index`, and a value of this length.
    NameOf(usize, usize),
    /// A size of the table, where nothing precedes it.
    Resize(usize),
}

const NAMES: [&[u8]; 5] = [b"te", b":path", b"traceparent", b"x-request-id", b"b3"];

/// A value of this length whose Huffman code is shorter, or longer.
fn value(length: usize, seed: usize) -> Vec<u8> {
    let characters: &[u8] = if length.is_multiple_of(7) { b"\\^{}#~" } else { b"0123456789abcdef-" };
    (0..length).map(|at| characters[(at * 5 + seed) % characters.len()]).collect()
}

fn any_part() -> impl Strategy<Value = Part> {
    prop_oneof![
        60 => any::<usize>().prop_map(Part::Index),
        1 => (0..200_usize).prop_map(Part::AnyIndex),
        40 => (0..NAMES.len(), prop_oneof![0..60_usize, 0..1500_usize], any::<bool>())
            .prop_map(|(name, length, indexed)| Part::Literal(name, length, indexed)),
        20 => (any::<usize>(), 0..80_usize).prop_map(|(index, length)| Part::NameOf(index, length)),
        10 => (0..=DEFAULT_TABLE_SIZE).prop_map(Part::Resize),
    ]
}

impl Part {
    fn write(&self, is_first: bool, table_len: usize, seed: usize, block: &mut Vec<u8>) {
        // The newest entries are the most frequent ones.
        let index = |number: usize| match number % 3 {
            0 => 1 + number / 3 % STATIC_TABLE.len(),
            _ if table_len == 0 => 1,
            _ => NEWEST + number / 3 % 8 % table_len,
        };
        match *self {
            Self::Index(number) => write_indexed(index(number), block),
            Self::AnyIndex(index) => write_indexed(index, block),
            Self::Literal(name, length, indexed) => {
                write_literal(NAMES[name], &value(length, seed), indexed, block)
            }
            Self::NameOf(number, length) => write_literal_of(index(number), &value(length, seed), block),
            Self::Resize(size) if is_first => write_table_size(size, block),
            Self::Resize(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A block is repeated some times with other values, as clients that trace requests do.
    #[test]
    fn fields_are_those_of_a_decoder_that_keeps_nothing(
        blocks in prop::collection::vec((prop::collection::vec(any_part(), 0..8), 1..6_usize), 1..20),
    ) {
        let mut plain = PlainDecoder { table: Vec::new(), capacity: DEFAULT_TABLE_SIZE };
        let (mut decoder, mut list) = (Decoder::new(), Fields::default());
        for (parts, times) in blocks {
            for seed in 0..times {
                let (mut block, mut expected) = (Vec::new(), Ok(Vec::new()));
                for part in &parts {
                    let start = block.len();
                    part.write(start == 0, plain.table.len(), seed, &mut block);
                    let more = plain.decode(&block[start..]);
                    expected = expected.and_then(|fields| Ok([fields, more?].concat()));
                }
                let found = decoder.decode(&block, 1 << 20, &mut list).map(|()| {
                    list.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect::<Vec<_>>()
                });
                prop_assert_eq!(&found, &expected);
                if expected.is_err() {
                    return Ok(());
                }
            }
        }
    }
}
