//! Compares the decoder with a decoder that keeps nothing from block to block and follows RFC 7541 step by step.

use super::field_class::{FieldNames, is_field_value};
use super::{
    DEFAULT_TABLE_SIZE, Decoder, ENTRY_OVERHEAD, HpackError, NEWEST, huffman, static_table::STATIC_TABLE,
    write_indexed, write_literal, write_literal_of, write_table_size,
};
use proptest::prelude::*;

const LIST_MAX: usize = 1 << 20;

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

/// An integer of a complete block.
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
    /// The index of an entry of either table. The number selects one of all entries.
    Index(usize),
    /// An index that may be in no table.
    AnyIndex(usize),
    /// A name, the length of a value, and whether the field is indexed.
    Literal(usize, usize, bool),
    /// An indexed field with the name of an entry, selected as in `Index`, and a value of this length.
    NameOf(usize, usize),
    /// A size of the table, if it is the first part.
    Resize(usize),
}

const NAMES: [&[u8]; 5] = [b"te", b":path", b"traceparent", b"x-request-id", b"b3"];

/// A value of this length. Its Huffman code may be shorter or longer than the value.
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
        // The newest entries are the most frequent.
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

/// Decodes a block as request blocks are decoded. True if it was the expected block.
fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<bool, HpackError> {
    if decoder.decode_repeated(block)?.is_some() {
        return Ok(true);
    }
    decoder.decode(block, LIST_MAX)?;
    // Only a valid block is expected again, as for requests.
    if decoder.fields().are_trailers() || decoder.fields().valid_request().is_some() {
        decoder.expect_repeated(block);
    }
    Ok(false)
}

fn decoder() -> Decoder {
    Decoder::new(FieldNames::none())
}

/// The next request of a client whose requests differ in one field.
#[derive(Clone, Debug)]
enum Next {
    /// Another value of the same length.
    Varied,
    /// The value of this many requests before, with the same length.
    Repeated(usize),
    /// Another value of any length, perhaps with blanks at its ends, or characters with long codes.
    Value(String),
    /// Also another value of another field.
    Other(usize),
    /// A change of the table's size before the block.
    Resized(usize),
    /// The block with another value of one byte.
    Damaged(usize, u8),
}

fn any_next() -> impl Strategy<Value = Next> {
    prop_oneof![
        200 => Just(Next::Varied),
        3 => (1..60_usize).prop_map(Next::Repeated),
        3 => "[ 0-9a-f\\t\\\\]{0,60}".prop_map(Next::Value),
        3 => any::<usize>().prop_map(Next::Other),
        1 => (0..=DEFAULT_TABLE_SIZE).prop_map(Next::Resized),
        1 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Next::Damaged(at, byte)),
    ]
}

/// Appends a field as most clients encode it: by its index, or as an indexed literal with the name of the newest entry that has it.
fn encode((name, value): &Field, table: &[Field], block: &mut Vec<u8>) {
    let index_of = |is_match: &dyn Fn(&[u8], &[u8]) -> bool| {
        let fixed = STATIC_TABLE.iter().position(|(name, value)| is_match(name, value)).map(|at| at + 1);
        let dynamic = || table.iter().position(|(name, value)| is_match(name, value)).map(|at| at + NEWEST);
        fixed.or_else(dynamic)
    };
    match index_of(&|n, v| n == name && v == value) {
        _ if name == b":path" => write_literal(name, value, false, block),
        Some(index) => write_indexed(index, block),
        None => match index_of(&|n, _| n == name) {
            Some(index) => write_literal_of(index, value, block),
            None => write_literal(name, value, true, block),
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Only the value that varies is decoded. Entries are evicted, and added again.
    #[test]
    fn blocks_that_vary_in_one_value_are_decoded_as_by_a_decoder_that_expects_none(
        lengths in prop::collection::vec(0..200_usize, 0..8),
        position in any::<prop::sample::Index>(),
        length in 20..60_usize,
        requests in prop::collection::vec((any_next(), any::<bool>()), 1..150),
    ) {
        let mut plain = PlainDecoder { table: Vec::new(), capacity: DEFAULT_TABLE_SIZE };
        let (mut decoder, mut reference) = (decoder(), decoder());
        let mut fields: Vec<Field> = vec![(b":method".to_vec(), b"POST".to_vec()), (b":path".to_vec(), b"/a".to_vec())];
        fields.extend(lengths.iter().enumerate().map(|(n, length)| (vec![b'a' + n as u8], value(*length, n))));
        let at = 2 + position.index(fields.len() - 1);
        fields.insert(at, (b"traceparent".to_vec(), value(length, 0)));
        for (round, (next, is_completed)) in requests.into_iter().enumerate() {
            let trace = |round: usize| format!("{:0>length$x}", round * 0x9e37_79b9).into_bytes();
            let (mut block, mut damage) = (Vec::new(), None);
            fields[at].1 = trace(round);
            match next {
                Next::Varied => {}
                Next::Repeated(back) => fields[at].1 = trace(round.saturating_sub(back)),
                Next::Value(value) => fields[at].1 = value.into_bytes(),
                Next::Other(other) => {
                    let other = other % fields.len();
                    fields[other].1 = value(fields[other].1.len(), round);
                }
                Next::Resized(size) => write_table_size(size, &mut block),
                Next::Damaged(at, byte) => damage = Some((at, byte)),
            }
            let mut start = block.len();
            plain.decode(&block).expect("a valid block");
            for field in &fields {
                encode(field, &plain.table, &mut block);
                plain.decode(&block[start..]).expect("a valid block");
                start = block.len();
            }
            if let Some((at, byte)) = damage {
                let at = at % block.len();
                block[at] = byte;
            }
            let outcome = reference.decode(&block, LIST_MAX);
            let found = decode(&mut decoder, &block);
            prop_assert_eq!(found.map(|_| ()), outcome);
            if outcome.is_err() {
                return Ok(());
            }
            if found == Ok(true) {
                let value = decoder.repeated_value().to_vec();
                prop_assert!(is_field_value(&value));
                prop_assert_eq!(reference.fields().text(at).1, value);
            }
            if is_completed {
                decoder.complete();
                prop_assert!(decoder.fields().all().eq(reference.fields().all()));
            }
            if damage.is_some() {
                return Ok(());
            }
        }
        decoder.complete();
        prop_assert!(decoder.fields().all().eq(reference.fields().all()));
    }

    /// Repeats a block several times with other values, as clients that trace requests do.
    #[test]
    fn fields_are_those_of_a_decoder_that_keeps_nothing(
        blocks in prop::collection::vec((prop::collection::vec(any_part(), 0..8), 1..6_usize), 1..20),
    ) {
        let mut plain = PlainDecoder { table: Vec::new(), capacity: DEFAULT_TABLE_SIZE };
        let mut decoder = decoder();
        for (parts, times) in blocks {
            for seed in 0..times {
                let (mut block, mut expected) = (Vec::new(), Ok(Vec::new()));
                for part in &parts {
                    let start = block.len();
                    part.write(start == 0, plain.table.len(), seed, &mut block);
                    let more = plain.decode(&block[start..]);
                    expected = expected.and_then(|fields| Ok([fields, more?].concat()));
                }
                let found = decode(&mut decoder, &block).map(|_| {
                    decoder.complete();
                    decoder.fields().all().map(|(name, value)| (name.to_vec(), value.to_vec())).collect::<Vec<_>>()
                });
                prop_assert_eq!(&found, &expected);
                if expected.is_err() {
                    return Ok(());
                }
            }
        }
    }
}
