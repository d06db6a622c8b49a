//! Integers in as few bytes as they need, readable from either end.
//!
//! Seven bits a byte, the lowest first; every byte but the last has its high bit set. Read backwards, a byte without that bit is thus the
//! last of an integer, and the next such byte ends the integer before it.

/// The most bytes of an integer.
const BYTES_MAX: usize = u64::BITS.div_ceil(7) as usize;

/// Bytes that the integer takes.
#[inline]
pub(crate) fn len(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// The integer as bytes.
#[inline]
pub fn bytes(value: u64) -> impl DoubleEndedIterator<Item = u8> {
    let last = len(value) - 1;
    (0..=last).map(move |index| (value >> (7 * index)) as u8 & 0x7f | if index < last { 0x80 } else { 0 })
}

/// Reads the next integer; none at the end, or if it is incomplete.
#[inline]
pub(crate) fn read(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0;
    for index in 0..BYTES_MAX {
        let byte = bytes.next()?;
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Reads an integer from bytes in reverse order.
#[inline]
pub(crate) fn read_back(bytes: &mut std::iter::Peekable<impl Iterator<Item = u8>>) -> Option<u64> {
    let mut value = u64::from(bytes.next()?);
    while let Some(byte) = bytes.next_if(|&byte| byte >= 0x80) {
        value = value << 7 | u64::from(byte & 0x7f);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_are_read_from_either_end(values in prop::collection::vec(0..=u64::MAX, 0..9), bits in 0..64u32) {
            let values: Vec<u64> = values.iter().map(|value| value >> bits).collect();
            let written: Vec<u8> = values.iter().flat_map(|&value| bytes(value)).collect();
            prop_assert_eq!(written.len(), values.iter().map(|&value| len(value)).sum::<usize>());
            let mut forwards = written.iter().copied();
            let read: Vec<u64> = std::iter::from_fn(|| read(&mut forwards)).collect();
            prop_assert_eq!(&read, &values);
            let mut backwards = written.iter().rev().copied().peekable();
            let mut read: Vec<u64> = std::iter::from_fn(|| read_back(&mut backwards)).collect();
            read.reverse();
            prop_assert_eq!(&read, &values);
        }
    }

    #[test]
    fn an_integer_without_an_end_is_none() {
        assert_eq!(read(&mut [0x80; 4].into_iter()), None);
        assert_eq!(read(&mut [0xff; 40].into_iter()), None);
    }
}
