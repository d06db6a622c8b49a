//! Checks that Huffman-coded strings are field values of a known length, several strings side by side.
//!
//! The position of a code depends on all codes before it, so that a processor is idle for most of the time that the check of one
//! string takes. A string that was received with another one is therefore checked together with it, ahead of time. A result is
//! used for the very bytes alone that it was found for.

use super::{PAIR_BITS, PAIRS, PAIRS_AT_ONCE, Pair, SHORT, SHORT_BITS};
use crate::http2::steps;

/// Length of the longest string that is checked.
const CODED_MAX: usize = 64;

/// Strings that are checked side by side: so many that another one takes longer, since the registers do not suffice for it.
const LANES: usize = 4;

/// Symbols that are decoded without another access to the string.
const SYMBOLS_AT_ONCE: usize = 2 * PAIRS_AT_ONCE;

/// The length of the longest text in [`CODED_MAX`] bytes whose symbols all have six bits.
const TEXT_MAX: usize = 8 * CODED_MAX / 6;

/// Set in [`SIX_BIT_PAIRS`] where the bits do not start with two such codes.
const OTHER: u8 = 0x80;

/// For each twelve bits: length of the first two codes, if each has at most six bits. All digits and hyphens have, and most
/// small letters.
static SIX_BIT_PAIRS: [u8; 1 << PAIR_BITS] = {
    let mut pairs = [OTHER; 1 << PAIR_BITS];
    let mut bits = 0;
    while bits < pairs.len() {
        let (_, first) = SHORT[bits >> (PAIR_BITS - SHORT_BITS)];
        let rest = (bits << first) & ((1 << PAIR_BITS) - 1);
        let (_, second) = SHORT[rest >> (PAIR_BITS - SHORT_BITS)];
        if 0 < first && first <= 6 && 0 < second && second <= 6 {
            pairs[bits] = first + second;
        }
        bits += 1;
    }
    pairs
};

/// The last strings that were checked.
#[derive(Default)]
pub(in crate::http2::hpack) struct Texts {
    strings: [Coded; LANES],
    /// Whether each is a text of `text_len` bytes.
    are_texts: [bool; LANES],
    text_len: usize,
    /// Those that no call has used yet.
    unused: std::ops::Range<usize>,
}

impl Texts {
    /// Whether it is certain that a string is a field value of this length of visible characters and spaces: all have short
    /// codes, and none but visible ones is at either end. False also for some such values. `next` are strings that are
    /// likely to be checked next.
    #[inline]
    pub(in crate::http2::hpack) fn has_len<'b>(
        &mut self,
        coded: &'b [u8],
        text_len: usize,
        next: impl Iterator<Item = &'b [u8]>,
    ) -> bool {
        steps::add(steps::of_bytes(coded.len()));
        if let Some(lane) = self.unused.next()
            && self.strings[lane].bytes() == coded
            && self.text_len == text_len
        {
            return self.are_texts[lane];
        }
        self.check(coded, text_len, next)
    }

    #[inline(never)]
    fn check<'b>(&mut self, coded: &'b [u8], text_len: usize, next: impl Iterator<Item = &'b [u8]>) -> bool {
        let mut count = 0;
        for (string, coded) in self.strings.iter_mut().zip(std::iter::once(coded).chain(next)) {
            // Copied, and its codes looked up at most twice.
            steps::add(3 * steps::of_bytes(coded.len()));
            if !string.set(coded) {
                break;
            }
            count += 1;
        }
        (self.text_len, self.unused) = (text_len, 1..count);
        match count {
            0 => return false,
            1 => [self.are_texts[0]] = have_len([&self.strings[0]], text_len),
            _ => self.are_texts = have_len(self.strings.each_ref(), text_len),
        }
        self.are_texts[0]
    }
}

/// Positions of [`Coded`] at which a word starts: a power of two, so that a remainder is one.
const WORDS: usize = 2 * CODED_MAX;

/// A Huffman-coded string.
struct Coded {
    /// The string, and then 64 ones, with which no short code starts. The rest is of no meaning.
    padded: [u8; WORDS + size_of::<u64>()],
    len: usize,
}

impl Default for Coded {
    fn default() -> Self {
        Self { padded: [0xff; WORDS + size_of::<u64>()], len: 0 }
    }
}

impl Coded {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.padded[..self.len]
    }

    /// False if the string is too long.
    #[inline]
    fn set(&mut self, coded: &[u8]) -> bool {
        self.len = 0;
        if coded.len() > CODED_MAX {
            return false;
        }
        let (string, ones) = self.padded.split_at_mut(coded.len());
        let Some(ones) = ones.first_chunk_mut::<{ size_of::<u64>() }>() else { return false };
        string.copy_from_slice(coded);
        *ones = [0xff; _];
        self.len = coded.len();
        true
    }

    /// The bits from this one on: at least 57, if the string has it or ends there.
    #[inline]
    fn window_at(&self, bit: usize) -> u64 {
        let start = bit / 8 % WORDS;
        let word = self.padded[start..start + size_of::<u64>()].first_chunk();
        u64::from_be_bytes(word.copied().unwrap_or_default()) << (bit % 8)
    }

    fn has_blank_at_an_end(&self) -> bool {
        const SPACE: u8 = 0b01_0100;
        // The code of a space ends with a zero, so that the ones after it are padding.
        let before_ones = |last: u32| last.checked_shr(last.trailing_ones());
        let last = self.bytes().last_chunk().and_then(|last| before_ones(u32::from_be_bytes(*last)));
        self.padded[0] >> 2 == SPACE || last.is_none_or(|last| last & 0x3f == u32::from(SPACE))
    }

    /// Whether the bits from this one on are padding: fewer than eight, all ones.
    fn is_padding_at(&self, bit: usize) -> bool {
        let end = 8 * self.len;
        bit <= end && end - bit < 8 && self.window_at(bit) >> (64 - 8) == 0xff
    }
}

/// Whether each string has this length; see [`Texts::has_len`].
#[inline]
fn have_len<const N: usize>(strings: [&Coded; N], text_len: usize) -> [bool; N] {
    let ends = six_bit_ends(strings, text_len);
    std::array::from_fn(|lane| match ends {
        Some(ends) if ends[lane].is_some_and(|end| strings[lane].is_padding_at(end)) => {
            !strings[lane].has_blank_at_an_end()
        }
        _ => len(strings[lane]) == Some(text_len),
    })
}

/// For each string: the end of so many codes, if each has at most six bits. None if they may be too many.
#[inline]
fn six_bit_ends<const N: usize>(strings: [&Coded; N], codes: usize) -> Option<[Option<usize>; N]> {
    if codes > TEXT_MAX {
        return None;
    }
    let mut lanes = strings.map(|string| Lane { string, end: 0, sums: 0 });
    for _ in 0..codes / SYMBOLS_AT_ONCE {
        lanes = add_pairs(lanes, PAIRS_AT_ONCE);
    }
    lanes = add_pairs(lanes, codes % SYMBOLS_AT_ONCE / 2);
    if codes % 2 == 1 {
        lanes = lanes.map(Lane::with_last);
    }
    Some(lanes.map(|lane| (lane.sums < usize::from(OTHER)).then_some(lane.end)))
}

/// A string of which some codes are known.
struct Lane<'s> {
    string: &'s Coded,
    end: usize,
    /// The sums that were added to the end, one or the other: [`OTHER`] or more if some code may have more than six bits. The end is
    /// then of no meaning.
    sums: usize,
}

/// Adds so many pairs of codes to each lane.
#[inline(always)]
fn add_pairs<const N: usize>(lanes: [Lane<'_>; N], pairs: usize) -> [Lane<'_>; N] {
    let mut windows: [u64; N] = std::array::from_fn(|lane| lanes[lane].window());
    let mut sums = [0; N];
    for _ in 0..pairs {
        for (window, sum) in windows.iter_mut().zip(&mut sums) {
            let bits = SIX_BIT_PAIRS[(*window >> (64 - PAIR_BITS)) as usize];
            *window <<= bits & 63;
            *sum += usize::from(bits);
        }
    }
    let mut sums = sums.into_iter();
    lanes.map(|lane| lane.plus(sums.next().unwrap_or_default()))
}

impl Lane<'_> {
    #[inline]
    fn window(&self) -> u64 {
        self.string.window_at(self.end)
    }

    /// With codes of so many bits, or [`OTHER`] and more.
    #[inline]
    fn plus(self, bits: usize) -> Self {
        Self { end: self.end + bits, sums: self.sums | bits, ..self }
    }

    /// With one more code.
    #[inline]
    fn with_last(self) -> Self {
        let (_, bits) = SHORT[(self.window() >> (64 - SHORT_BITS)) as usize];
        self.plus(if bits > 0 { bits.into() } else { OTHER.into() })
    }
}

/// Length of the text, if it is certain that this is a field value; see [`Texts::has_len`].
fn len(string: &Coded) -> Option<usize> {
    if string.has_blank_at_an_end() {
        return None;
    }
    let (end, mut at, mut length) = (8 * string.len, 0, 0);
    while at + SHORT_BITS <= end {
        let (mut window, mut pairs) = (string.window_at(at), Pair(0));
        for _ in 0..PAIRS_AT_ONCE {
            let pair = PAIRS[(window >> (64 - PAIR_BITS)) as usize];
            window <<= pair.bits() & 63;
            pairs = pairs.plus(pair);
        }
        if pairs.count() == 0 {
            return None;
        }
        (at, length) = (at + pairs.bits(), length + pairs.count());
    }
    // Fewer than eight bits: padding, perhaps after a last code.
    let first_byte = |bit| (string.window_at(bit) >> (64 - SHORT_BITS)) as u8;
    let (_, bits) = SHORT[usize::from(first_byte(at))];
    let (last_end, last_count) = (at + usize::from(bits), usize::from(bits > 0));
    (last_end <= end && first_byte(last_end) == 0xff).then_some(length + last_count)
}

#[cfg(test)]
mod tests {
    use super::{super::*, *};
    use crate::http2::field_class::is_field_value;
    use proptest::prelude::*;

    fn coded(plain: &[u8]) -> Vec<u8> {
        let mut coded = Vec::new();
        encode(plain, &mut coded);
        coded
    }

    fn string(coded: &[u8]) -> Option<Coded> {
        let mut string = Coded::default();
        // The bytes of an earlier string are overwritten.
        string.set(&[0; CODED_MAX]);
        string.set(coded).then_some(string)
    }

    /// Any bytes, and codes of texts.
    fn any_coded() -> impl Strategy<Value = Vec<u8>> {
        let text = "[ a-zA-Z0-9;:&*\\t\\\\-]{0,40}".prop_map(|text| coded(text.as_bytes()));
        let six_bits = "[ a-i0-9-]{0,80}".prop_map(|text| coded(text.as_bytes()));
        prop_oneof![any::<Vec<u8>>(), text, six_bits]
    }

    proptest! {
        #[test]
        fn a_length_is_that_of_a_valid_field_value(
            coded_string in any_coded(),
            hex in "[0-9a-f][0-9a-f-]{4,78}[0-9a-f]",
        ) {
            if let Some(length) = string(&coded_string).and_then(|string| len(&string)) {
                let mut plain = Vec::new();
                decode(&coded_string, &mut plain).expect("a valid code");
                prop_assert_eq!(length, plain.len());
                prop_assert!(is_field_value(&plain), "{:?}", plain);
            }
            let hex_coded = string(&coded(hex.as_bytes())).expect("a short code");
            prop_assert_eq!(len(&hex_coded), Some(hex.len()));
            let ends = six_bit_ends([&hex_coded], hex.len()).expect("it is short");
            prop_assert!(hex_coded.is_padding_at(ends[0].expect("six bits each")));
        }

        /// Strings that are checked ahead of time, and others in their place.
        #[test]
        fn strings_side_by_side_have_the_lengths_that_each_has_by_itself(
            strings in prop::collection::vec(any_coded(), 1..10),
            swapped in any::<prop::sample::Index>(),
            other_len in 0..90_usize,
        ) {
            let expected = |coded: &[u8], length| string(coded).is_some_and(|string| len(&string) == Some(length));
            let mut texts = Texts::default();
            for (position, coded) in strings.iter().enumerate() {
                let next = || strings.iter().skip(position + 1).map(|coded| &coded[..]);
                let length = string(coded).and_then(|string| len(&string)).unwrap_or(other_len);
                let coded = if position == swapped.index(strings.len()) { &strings[0] } else { coded };
                prop_assert_eq!(texts.has_len(coded, length, next()), expected(coded, length));
                let mut damaged = coded.clone();
                if let Some(last) = damaged.last_mut() {
                    *last ^= 1;
                }
                for (coded, length) in [(coded, other_len), (&damaged, length)] {
                    prop_assert_eq!(texts.has_len(coded, length, next()), expected(coded, length));
                }
            }
        }
    }
}
