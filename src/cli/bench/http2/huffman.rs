//! The Huffman code of HPACK (RFC 7541, appendix B).
//!
//! The code is canonical: symbols in order of length, then of value, take consecutive codes. So the lengths say it all.

use super::hpack::HpackError;

/// The symbol that never stands in a string; its first bits pad the last byte.
const END_OF_STRING: usize = 256;
const LONGEST: usize = 30;

#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// The codes, grouped by length.
struct Canonical {
    /// All symbols, shortest code first.
    symbols: [u16; 257],
    /// For each length: its first code.
    first_code: [u32; LONGEST + 1],
    /// For each length: where its symbols start in `symbols`.
    first_symbol: [u16; LONGEST + 1],
    /// For each length: how many symbols have it.
    count: [u16; LONGEST + 1],
    /// For each symbol: its code.
    codes: [u32; 257],
}

static CODE: Canonical = Canonical::new();

impl Canonical {
    const fn new() -> Self {
        let mut code = Self {
            symbols: [0; 257],
            first_code: [0; LONGEST + 1],
            first_symbol: [0; LONGEST + 1],
            count: [0; LONGEST + 1],
            codes: [0; 257],
        };
        let (mut next_code, mut placed, mut length) = (0, 0, 1);
        // `while`, because a const function has no `for`.
        while length <= LONGEST {
            code.first_code[length] = next_code;
            code.first_symbol[length] = placed as u16;
            let mut symbol = 0;
            while symbol < LENGTHS.len() {
                if LENGTHS[symbol] as usize == length {
                    code.symbols[placed] = symbol as u16;
                    code.codes[symbol] = next_code;
                    code.count[length] += 1;
                    placed += 1;
                    next_code += 1;
                }
                symbol += 1;
            }
            next_code <<= 1;
            length += 1;
        }
        code
    }
}

/// Decodes a Huffman-coded string.
pub(super) fn decode(coded: &[u8]) -> Result<Vec<u8>, HpackError> {
    let mut plain = Vec::with_capacity(coded.len() * 8 / 5);
    let (mut code, mut length) = (0_u32, 0_usize);
    for byte in coded {
        for shift in (0..8).rev() {
            code = code << 1 | u32::from(byte >> shift & 1);
            length += 1;
            if length > LONGEST {
                return Err(HpackError::Huffman);
            }
            let nth = code.wrapping_sub(CODE.first_code[length]);
            if nth < u32::from(CODE.count[length]) {
                let symbol = CODE.symbols[usize::from(CODE.first_symbol[length]) + nth as usize];
                // The only symbol beyond a byte is the end of string, which no sender may send.
                plain.push(u8::try_from(symbol).map_err(|_| HpackError::Huffman)?);
                (code, length) = (0, 0);
            }
        }
    }
    // What is left over is padding: fewer than eight bits, all ones.
    if length < 8 && code == (1 << length) - 1 { Ok(plain) } else { Err(HpackError::Huffman) }
}

/// Appends `plain`, Huffman-coded.
pub(super) fn encode(plain: &[u8], coded: &mut Vec<u8>) {
    let (mut pending, mut bits) = (0_u64, 0_u32);
    for &byte in plain {
        let length = u32::from(LENGTHS[usize::from(byte)]);
        pending = pending << length | u64::from(CODE.codes[usize::from(byte)]);
        bits += length;
        while bits >= 8 {
            bits -= 8;
            coded.push((pending >> bits) as u8);
        }
    }
    if bits > 0 {
        let padding = 8 - bits;
        let ones = u64::from(CODE.codes[END_OF_STRING]) >> (u32::from(LENGTHS[END_OF_STRING]) - padding);
        coded.push((pending << padding | ones) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(plain: &[u8]) -> Vec<u8> {
        let mut coded = Vec::new();
        encode(plain, &mut coded);
        coded
    }

    #[test]
    fn the_examples_of_the_rfc_are_coded_as_there() {
        assert_eq!(coded(b"www.example.com"), *b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff");
        assert_eq!(coded(b"no-cache"), *b"\xa8\xeb\x10\x64\x9c\xbf");
        assert_eq!(coded(b"302"), *b"\x64\x02");
    }

    #[test]
    fn every_byte_survives() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&coded(&all)), Ok(all));
    }

    #[test]
    fn bad_padding_and_a_coded_end_of_string_are_refused() {
        assert_eq!(decode(&[0x18]), Err(HpackError::Huffman), "padding of zeros");
        assert_eq!(decode(&[0xff]), Err(HpackError::Huffman), "eight bits of padding");
        assert_eq!(decode(&[0xff; 4]), Err(HpackError::Huffman), "the end of string itself");
        assert_eq!(decode(&[]), Ok(Vec::new()));
    }
}
