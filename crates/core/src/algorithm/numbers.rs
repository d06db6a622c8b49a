//! Numbers read from bytes that were stored: little-endian, one after the other.

use super::microseconds::NANOS;
use crate::limit::{Timestamp, Window};

/// Doubles below represent every whole number.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

/// The whole number in a double, if it is one.
pub fn whole_double(bytes: [u8; 8]) -> Option<u64> {
    let number = f64::from_le_bytes(bytes);
    ((0.0..EXACT_BELOW).contains(&number) && number.fract() == 0.0).then_some(number as u64)
}

/// The numbers that are left to read.
#[derive(Debug)]
pub struct StoredNumbers<'b>(pub &'b [u8]);

impl<'b> StoredNumbers<'b> {
    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    /// A whole number in a double.
    pub fn double(&mut self) -> Option<u64> {
        whole_double(self.bytes()?)
    }

    /// A byte.
    pub fn byte(&mut self) -> Option<u8> {
        self.bytes().map(u8::from_le_bytes)
    }

    /// A count of four bytes.
    pub fn count(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    /// A number of eight bytes, such as an id.
    pub fn long(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// A number of sixteen bytes.
    pub(super) fn place(&mut self) -> Option<u128> {
        self.bytes().map(u128::from_le_bytes)
    }

    /// A time of eight bytes, in nanoseconds.
    pub(super) fn time(&mut self) -> Option<Timestamp> {
        self.long().map(Timestamp::from_nanos)
    }

    /// A time in microseconds, as nanoseconds.
    pub(super) fn nanos(&mut self) -> Option<u64> {
        self.double()?.checked_mul(NANOS)
    }

    /// A window in microseconds.
    pub(super) fn window(&mut self) -> Option<Window> {
        Window::from_nanos(self.nanos()?).ok()
    }

    /// So many bytes.
    pub(super) fn take(&mut self, length: u64) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    /// All bytes that are left.
    pub(super) fn rest(&mut self) -> &'b [u8] {
        std::mem::take(&mut self.0)
    }
}
