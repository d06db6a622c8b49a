//! Reading digits and texts eight bytes at a time.

/// The highest bit of each byte.
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Eight characters as numbers from 0 to 9, the first in the lowest byte. With the number of digits before any other character.
#[inline(always)]
fn digits_of(word: [u8; 8]) -> (u64, usize) {
    const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);
    // Sets the highest bit of each byte that is more than nine.
    const ABOVE_NINE: u64 = u64::from_le_bytes([0x76; 8]);
    let word = u64::from_le_bytes(word) ^ ZEROS;
    let others = (word.wrapping_add(ABOVE_NINE) | word) & HIGH;
    (word, others.trailing_zeros() as usize / 8)
}

/// Number of digits at the start of a text.
#[inline(always)]
pub(super) fn leading_digits(bytes: &[u8]) -> usize {
    let mut end = 0;
    while let Some(word) = bytes.get(end..).and_then(|rest| rest.first_chunk()) {
        let (_, digits) = digits_of(*word);
        end += digits;
        if digits < 8 {
            return end;
        }
    }
    end + bytes[end..].iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// The number at the start of a text, and its number of digits. None if it exceeds 64 bits.
#[inline(always)]
pub(super) fn leading_number(bytes: &[u8]) -> Option<(u64, usize)> {
    const POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
    let (mut number, mut end) = (0_u64, 0);
    while let Some(word) = bytes.get(end..).and_then(|rest| rest.first_chunk()) {
        let (word, digits) = digits_of(*word);
        if digits == 0 {
            return Some((number, end));
        }
        // Puts zeros before the digits, then combines pairs, pairs of pairs, and all.
        let word = word << (64 - 8 * digits);
        let pairs = word.wrapping_mul(10).wrapping_add(word >> 8) & 0x00FF_00FF_00FF_00FF;
        let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_FFFF_0000_FFFF;
        let all = fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xFFFF_FFFF;
        number = number.checked_mul(POWERS[digits])?.checked_add(all)?;
        end += digits;
        if digits < 8 {
            return Some((number, end));
        }
    }
    while let Some(digit) = bytes.get(end).filter(|byte| byte.is_ascii_digit()) {
        number = number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        end += 1;
    }
    Some((number, end))
}

/// The position of the first quote, backslash or control character.
#[inline]
pub(super) fn end_of_text(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // Sets the highest bit of each byte that is less, and maybe of some bytes after the first such byte.
        let less = |word: u64, bound: u64| word.wrapping_sub(bound * ONES) & !word & HIGH;
        let is = |byte: u8| less(word ^ (u64::from(byte) * ONES), 1);
        let found = is(b'"') | is(b'\\') | less(word, 0x20);
        if found != 0 {
            return Some(8 * index + found.trailing_zeros() as usize / 8);
        }
    }
    let in_rest = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
    Some(8 * words.len() + in_rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_text_ends_where_the_first_byte_that_ends_one_is(text in "[ -~é\u{0}-\u{1f}]{0,40}") {
            let expected = text.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
            proptest::prop_assert_eq!(end_of_text(text.as_bytes()), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_number_ends_where_its_digits_do(text in "[0-9]{0,22}[ -~é]{0,9}") {
            let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
            let expected = if end == 0 { Some(0) } else { text[..end].parse::<u64>().ok() };
            proptest::prop_assert_eq!(leading_digits(text.as_bytes()), end);
            proptest::prop_assert_eq!(leading_number(text.as_bytes()), expected.map(|number| (number, end)));
        }
    }
}
