//! Counters as a shared store keeps them: the signature of their limit, then numbers.
//!
//! The signature is a letter and the parameters on which the meaning of a state depends. It is stored with each state: a state with another
//! signature is converted by the script. Numbers are doubles, which are exact below 2^53, or counts of four bytes; times are whole
//! microseconds. These bytes are in stores: they never change.

use super::{State, microseconds::NANOS};
use crate::limit::{Timestamp, Window};
use smallvec::SmallVec;

/// Bytes in the form of the store; the bytes of most limits fit.
pub type StoredBytes = SmallVec<[u8; 48]>;

/// Doubles below represent every whole number.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

/// The form in a shared store, which each algorithm states in its file. The arithmetic there is that of `arithmetic.lua`.
pub(super) trait Stored: Sized {
    /// Appends the letter and the parameters on which the meaning of a state depends.
    fn write_signature(&self, out: &mut StoredBytes);

    /// Appends the other parameters. `now` is the time of this machine, which need not be that of the store.
    fn write_parameters(&self, _now: Timestamp, _out: &mut StoredBytes) {}

    /// The algorithm with this signature. Its limit is the greatest there is: the store does not have the number that the limit admits.
    fn of_signature(letter: u8, parameters: &mut StoredNumbers<'_>) -> Option<Self>;

    /// Reads the numbers of a state.
    fn read(&self, numbers: &mut StoredNumbers<'_>) -> Option<State>;

    /// Appends the numbers of a state; none if it is of another algorithm. Times are rounded up, so that no hit counts for a shorter time.
    fn write(&self, state: &State, out: &mut StoredBytes) -> Option<()>;

    /// The number that a counter with reservations has beside its states; 0 if the algorithm needs none.
    fn number_of_reserved(&self) -> u32 {
        0
    }

    /// The place of reserved hits, as [`Algorithm::insert`](super::Algorithm::insert) takes it, from the two numbers of the store; none if
    /// hits of the algorithm are not reserved.
    fn place_from_store(&self, _place: u128, _part: u128) -> Option<u128> {
        None
    }

    /// The two numbers of the store for a place.
    fn place_to_store(&self, _place: u128) -> Option<(u128, u128)> {
        None
    }
}

/// Appends a number as a double. Exact below 2^53, as all times and lengths in microseconds are.
pub(super) fn double(out: &mut StoredBytes, number: u64) {
    out.extend_from_slice(&(number as f64).to_le_bytes());
}

/// Appends a count.
pub(super) fn count(out: &mut StoredBytes, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends the microseconds of a window.
pub(super) fn window(out: &mut StoredBytes, window: Window) {
    double(out, window.nanos().get() / NANOS);
}

/// The whole number in a double, if it is one.
pub fn whole_double(bytes: [u8; 8]) -> Option<u64> {
    let number = f64::from_le_bytes(bytes);
    ((0.0..EXACT_BELOW).contains(&number) && number.fract() == 0.0).then_some(number as u64)
}

/// The numbers that are left to read.
#[derive(Debug)]
pub struct StoredNumbers<'b>(pub &'b [u8]);

impl StoredNumbers<'_> {
    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A whole number in a double.
    pub fn double(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        whole_double(*bytes)
    }

    /// A byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    /// An id of eight bytes.
    pub fn id(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    /// A count of four bytes.
    pub fn count(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*bytes))
    }

    /// A time in microseconds, as nanoseconds.
    pub(super) fn nanos(&mut self) -> Option<u64> {
        self.double()?.checked_mul(NANOS)
    }

    /// A window in microseconds.
    pub(super) fn window(&mut self) -> Option<Window> {
        Window::from_nanos(self.nanos()?).ok()
    }

    /// All bytes that are left.
    pub(super) fn rest(&mut self) -> &[u8] {
        std::mem::take(&mut self.0)
    }
}
