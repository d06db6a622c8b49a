//! Encodes header blocks: fields by index, or as literals.

use super::{huffman, static_table::STATIC_TABLE};

/// Appends an integer, with `pattern` in the first byte above its `prefix_bits` low bits.
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

/// Appends a field by its index in the tables.
pub(crate) fn write_indexed(index: usize, block: &mut Vec<u8>) {
    write_integer(0x80, 7, index, block);
}

/// Appends a literal field; with `indexed`, it is added to the dynamic table.
pub(crate) fn write_literal(name: &[u8], value: &[u8], indexed: bool, block: &mut Vec<u8>) {
    let (pattern, prefix_bits) = if indexed { (0x40, 6) } else { (0, 4) };
    let known = STATIC_TABLE.iter().position(|&(known, _)| known == name);
    write_integer(pattern, prefix_bits, known.map_or(0, |position| position + 1), block);
    if known.is_none() {
        write_string(name, block);
    }
    write_string(value, block);
}

/// Appends a literal field with the name of an entry. It is added to the dynamic table.
pub(crate) fn write_literal_of(name_index: usize, value: &[u8], block: &mut Vec<u8>) {
    write_integer(0x40, 6, name_index, block);
    write_string(value, block);
}

/// Appends a size update.
pub(crate) fn write_table_size(size: usize, block: &mut Vec<u8>) {
    write_integer(0x20, 5, size, block);
}

/// Appends a size update to zero, which clears the dynamic table.
pub(crate) fn write_no_table(block: &mut Vec<u8>) {
    write_integer(0x20, 5, 0, block);
}
