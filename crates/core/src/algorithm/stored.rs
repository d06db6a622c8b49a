//! Counters as a shared store keeps them: the signature of their limit, then numbers.
//!
//! The signature is a letter and the parameters on which the meaning of a state depends. It is stored with each state: a state with another
//! signature is converted by the script. Numbers are doubles, which are exact below 2^53, or counts of four bytes; times are whole
//! microseconds. These bytes are in stores: they never change.

use super::{State, microseconds::NANOS, numbers::StoredNumbers};
use crate::limit::{Timestamp, Window};
use smallvec::SmallVec;

/// Bytes in the form of the store; the bytes of most limits fit.
pub type StoredBytes = SmallVec<[u8; 48]>;

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

    /// How the store has places of reserved hits, as [`Algorithm::insert`](super::Algorithm::insert) takes them; none if hits of the
    /// algorithm are not reserved.
    fn place_scale(&self) -> Option<PlaceScale> {
        None
    }
}

/// How a store has places of reserved hits: as whole numbers, and parts of one.
#[derive(Clone, Copy)]
pub(super) struct PlaceScale {
    /// Parts of a whole number.
    pub(super) parts: u64,
    /// A part, as places count it here.
    pub(super) part: u64,
    /// By how much places of the store are ahead.
    pub(super) ahead: u64,
}

impl PlaceScale {
    /// Whole numbers that are `part` each.
    pub(super) const fn whole(part: u64) -> Self {
        Self { parts: 1, part, ahead: 0 }
    }

    /// The place from the two numbers of the store.
    pub(super) fn place_of(self, whole: u128, parts: u128) -> Option<u128> {
        let parts = whole * u128::from(self.parts) + parts;
        (parts * u128::from(self.part)).checked_sub(self.ahead.into())
    }

    /// The two numbers of the store. Rounded up, so that no hit counts for a shorter time.
    pub(super) fn to_store(self, place: u128) -> Option<(u64, u64)> {
        let parts = place.checked_add(self.ahead.into())?.div_ceil(self.part.into());
        let [whole, parts] = [parts / u128::from(self.parts), parts % u128::from(self.parts)];
        Some((u64::try_from(whole).ok()?, u64::try_from(parts).ok()?))
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
