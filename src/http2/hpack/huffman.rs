//! The Huffman code of HPACK (RFC 7541, appendix B).
//!
//! The code is canonical: symbols in order of length, then of value, have consecutive codes. The lengths define it.

use super::HpackError;

/// The symbol that no string contains; its first bits pad the last byte.
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
    /// For each length: number of its symbols.
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

/// The longest code in [`SHORT`], which has all characters that are common in headers.
const SHORT_BITS: usize = 8;

/// For each eight bits: the symbol of the code that they start with, and its length; zero if the code is longer.
static SHORT: [(u8, u8); 1 << SHORT_BITS] = {
    let mut short = [(0, 0); 1 << SHORT_BITS];
    let mut symbol = 0;
    while symbol < 256 {
        let length = LENGTHS[symbol] as usize;
        if length <= SHORT_BITS {
            let first = (CODE.codes[symbol] as usize) << (SHORT_BITS - length);
            let mut rest = 0;
            while rest < 1 << (SHORT_BITS - length) {
                short[first + rest] = (symbol as u8, length as u8);
                rest += 1;
            }
        }
        symbol += 1;
    }
    short
};

/// Appends the plain text of a Huffman-coded string.
pub(super) fn decode(coded: &[u8], plain: &mut Vec<u8>) -> Result<(), HpackError> {
    // Bits not yet decoded: the low `length` bits of `bits`.
    let (mut bits, mut length, mut rest) = (0_u64, 0_usize, coded);
    loop {
        while length <= 56
            && let Some((&byte, after)) = rest.split_first()
        {
            (bits, length, rest) = (bits << 8 | u64::from(byte), length + 8, after);
        }
        // The last code may be shorter than eight bits: missing bits are ones, like padding.
        let next = if length >= SHORT_BITS {
            (bits >> (length - SHORT_BITS)) as u8
        } else {
            ((bits << (SHORT_BITS - length)) as u8) | (0xff >> length)
        };
        let (symbol, used) = SHORT[usize::from(next)];
        if used > 0 && usize::from(used) <= length {
            plain.push(symbol);
            length -= usize::from(used);
        } else if length < SHORT_BITS && next == 0xff {
            // Padding: fewer than eight bits, all ones.
            return Ok(());
        } else {
            let (symbol, used) = long_code(bits, length).ok_or(HpackError::Huffman)?;
            plain.push(symbol);
            length -= used;
        }
    }
}

/// The symbol of the code that the low `length` bits start with, and its own length. None if no symbol has such a code,
/// or only the end of string, which no sender may send.
fn long_code(bits: u64, length: usize) -> Option<(u8, usize)> {
    for used in SHORT_BITS + 1..=LONGEST.min(length) {
        let code = (bits >> (length - used)) as u32 & ((1 << used) - 1);
        let nth = code.wrapping_sub(CODE.first_code[used]);
        if nth < u32::from(CODE.count[used]) {
            let symbol = CODE.symbols[usize::from(CODE.first_symbol[used]) + nth as usize];
            return u8::try_from(symbol).ok().map(|symbol| (symbol, used));
        }
    }
    None
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

    fn plain(coded: &[u8]) -> Result<Vec<u8>, HpackError> {
        let mut plain = Vec::new();
        decode(coded, &mut plain).map(|()| plain)
    }

    #[test]
    fn the_examples_of_the_rfc_are_encoded() {
        assert_eq!(coded(b"www.example.com"), *b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff");
        assert_eq!(coded(b"no-cache"), *b"\xa8\xeb\x10\x64\x9c\xbf");
        assert_eq!(coded(b"302"), *b"\x64\x02");
    }

    #[test]
    fn every_byte_is_decoded_as_encoded() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(plain(&coded(&all)), Ok(all));
    }

    #[test]
    fn every_string_of_two_bytes_is_decoded_as_encoded() {
        for first in 0..=255 {
            for second in 0..=255 {
                assert_eq!(plain(&coded(&[first, second])), Ok(vec![first, second]));
            }
        }
    }

    #[test]
    fn invalid_padding_and_end_of_string_are_errors() {
        assert_eq!(plain(&[0x18]), Err(HpackError::Huffman), "padding of zeros");
        assert_eq!(plain(&[0xff]), Err(HpackError::Huffman), "eight bits of padding");
        assert_eq!(plain(&[0xff; 4]), Err(HpackError::Huffman), "the end of string itself");
        assert_eq!(plain(&[]), Ok(Vec::new()));
    }
}
