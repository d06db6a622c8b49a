//! The Huffman code of HPACK (RFC 7541, appendix B).
//!
//! The code is canonical: symbols in order of length, then of value, have consecutive codes. The lengths define it.

use super::error::HpackError;

/// The symbol that is in no string. Its first bits pad the last byte.
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

/// The longest code in [`SHORT`], which has all common characters of headers.
const SHORT_BITS: usize = 8;

/// For each eight bits: the symbol of the code at their start, and its length. Zero if the code is longer.
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

/// Bits looked up at once in [`PAIRS`]: two codes of digits and most letters.
const PAIR_BITS: usize = 12;

/// The codes at the start of some bits, in one word. From the lowest byte: their length, eight times their number, and their two symbols.
/// If pairs are added up, the lowest two bytes are the sums of the lengths and of the numbers, whatever the symbols add up to.
#[derive(Clone, Copy)]
struct Pair(u32);

impl Pair {
    const fn new(symbols: [u8; 2], count: u8, bits: u8) -> Self {
        Self(u32::from_le_bytes([bits, 8 * count, symbols[0], symbols[1]]))
    }

    /// The first symbol is in the lowest byte, the second, if there is one, in the next.
    #[inline]
    fn symbols(self) -> u64 {
        u64::from(self.0 >> 16)
    }

    /// Length of the codes.
    #[inline]
    fn bits(self) -> usize {
        (self.0 & 0xff) as usize
    }

    /// Length of the symbols in bits: two symbols if both codes are short and fit, else one. Zero if the first code is not short.
    #[inline]
    fn symbol_bits(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }

    /// Number of symbols.
    #[inline]
    fn count(self) -> usize {
        self.symbol_bits() / 8
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

/// For each twelve bits: the codes at their start.
static PAIRS: [Pair; 1 << PAIR_BITS] = {
    let mut pairs = [Pair(0); 1 << PAIR_BITS];
    let mut bits = 0;
    while bits < pairs.len() {
        let (first, length) = SHORT[bits >> (PAIR_BITS - SHORT_BITS)];
        if length > 0 {
            let rest = (bits << length) & ((1 << PAIR_BITS) - 1);
            let (second, more) = SHORT[rest >> (PAIR_BITS - SHORT_BITS)];
            pairs[bits] = if more > 0 && (length + more) as usize <= PAIR_BITS {
                Pair::new([first, second], 2, length + more)
            } else {
                Pair::new([first, 0], 1, length)
            };
        }
        bits += 1;
    }
    pairs
};

/// The shortest code has five bits.
const fn plain_bytes_max(coded_bytes: usize) -> usize {
    coded_bytes * 8 / 5
}

/// Pairs that are decoded without a check for further bits.
const PAIRS_AT_ONCE: usize = Bits::REFILLED / PAIR_BITS;

/// Bytes that are written for so many pairs, even if a pair has only one symbol.
const WRITTEN_AT_ONCE: usize = 2 * PAIRS_AT_ONCE;

/// Appends the plain text of a Huffman-coded string.
pub(super) fn decode(coded: &[u8], plain: &mut Vec<u8>) -> Result<(), HpackError> {
    let start = plain.len();
    plain.resize(start + plain_bytes_max(coded.len()) + WRITTEN_AT_ONCE, 0);
    let written = decode_into(coded, &mut plain[start..]);
    plain.truncate(start + *written.as_ref().unwrap_or(&0));
    written.map(|_| ())
}

/// The bits of a string that are not decoded yet.
struct Bits<'c> {
    /// The next bits, the first at the top. `length` of them are valid. The bits after them are zeros, or the first bits of `rest`.
    window: u64,
    length: usize,
    rest: &'c [u8],
}

impl Bits<'_> {
    /// Least number of bits after [`Self::refill`], unless there are no more.
    const REFILLED: usize = 56;

    #[inline]
    fn refill(&mut self) {
        let room = (63 - self.length) / 8;
        let (word, bytes) = match self.rest.first_chunk::<8>() {
            Some(word) => (*word, room),
            None => {
                let mut word = [0; 8];
                word[..self.rest.len()].copy_from_slice(self.rest);
                (word, room.min(self.rest.len()))
            }
        };
        self.window |= u64::from_be_bytes(word) >> self.length;
        (self.length, self.rest) = (self.length + 8 * bytes, &self.rest[bytes..]);
    }

    #[inline]
    fn pair(&self) -> Pair {
        PAIRS[(self.window >> (64 - PAIR_BITS)) as usize]
    }

    #[inline]
    fn skip(&mut self, bits: usize) {
        self.window <<= bits;
        self.length -= bits;
    }

    fn long_code(&mut self) -> Result<u8, HpackError> {
        let (symbol, bits) = long_code(self.window, self.length).ok_or(HpackError::Huffman)?;
        self.skip(bits);
        Ok(symbol)
    }
}

/// Writes the plain text to `plain`, and returns its length. `plain` has room for the longest possible text and one more write.
fn decode_into(coded: &[u8], plain: &mut [u8]) -> Result<usize, HpackError> {
    let (mut bits, mut at) = (Bits { window: 0, length: 0, rest: coded }, 0);
    loop {
        bits.refill();
        if bits.length < Bits::REFILLED {
            break;
        }
        let (mut symbols, mut pairs) = (0_u64, Pair(0));
        for _ in 0..PAIRS_AT_ONCE {
            // After a code that is not short, this is the same empty pair again.
            let pair = bits.pair();
            symbols |= pair.symbols() << (pairs.symbol_bits() & 63);
            bits.window <<= pair.bits() & 63;
            pairs = pairs.plus(pair);
        }
        bits.length -= pairs.bits();
        let count = pairs.count();
        if count == 0 {
            plain[at] = bits.long_code()?;
            at += 1;
            continue;
        }
        // The length is constant, so that the copy is one store and not a call.
        if let Some(written) = plain[at..].first_chunk_mut::<WRITTEN_AT_ONCE>() {
            *written = symbols.to_le_bytes();
        }
        at += count;
    }
    // All bits are in the window.
    while bits.length >= PAIR_BITS && bits.pair().count() > 0 {
        let pair = bits.pair();
        if let Some(written) = plain[at..].first_chunk_mut() {
            *written = (pair.symbols() as u16).to_le_bytes();
        }
        bits.skip(pair.bits());
        at += pair.count();
    }
    while bits.length > 0 {
        // Missing bits are ones, as padding is.
        let missing = 0xff_u8.checked_shr(bits.length as u32).unwrap_or(0);
        let next = (bits.window >> (64 - SHORT_BITS)) as u8 | missing;
        let (symbol, length) = SHORT[usize::from(next)];
        plain[at] = if (1..=bits.length).contains(&usize::from(length)) {
            bits.skip(usize::from(length));
            symbol
        } else if bits.length < SHORT_BITS && next == 0xff {
            // Padding: fewer than eight bits, all ones.
            break;
        } else {
            bits.long_code()?
        };
        at += 1;
    }
    Ok(at)
}

/// The symbol of the code at the start of the first `length` bits of the window, and the length of the code. None if no symbol has such a
/// code, or only the end of string, which must not be sent.
#[cold]
fn long_code(window: u64, length: usize) -> Option<(u8, usize)> {
    for used in SHORT_BITS + 1..=LONGEST.min(length) {
        let code = (window >> (64 - used)) as u32;
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
mod tests;
