//! Counters as a shared store keeps them: the signature of their limit, then numbers.
//!
//! The signature is a letter and the parameters on which the meaning of a state depends. It is stored with each state: a state with another
//! signature is converted by the script. Numbers are doubles, which are exact below 2^53, or counts of four bytes; times are whole
//! microseconds. These bytes are in stores: they never change.

use super::{Algorithm, State, microseconds::NANOS};
use crate::limit::{Timestamp, Window};
use smallvec::SmallVec;

/// Bytes in the form of the store; those of most limits fit.
pub type StoredBytes = SmallVec<[u8; 48]>;

/// Doubles below represent every whole number.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

/// The form in a shared store, which each algorithm states in its file. The arithmetic there is that of `arithmetic.lua`.
pub(super) trait Stored: Sized {
    /// Appends the letter and the parameters of which the meaning of a state depends.
    fn write_signature(&self, out: &mut StoredBytes);

    /// Appends the other parameters. `now` is the time of this machine, which need not be that of the store.
    fn write_parameters(&self, _now: Timestamp, _out: &mut StoredBytes) {}

    /// The algorithm with this signature. The store does not have the number that the limit admits: it is the greatest there is.
    fn of_signature(letter: u8, parameters: &mut StoredNumbers<'_>) -> Option<Self>;

    /// Reads the numbers of a state.
    fn read(&self, numbers: &mut StoredNumbers<'_>) -> Option<State>;

    /// Appends the numbers of a state; none if it is of another algorithm. Times are rounded up, so that no hit counts for a shorter time.
    fn write(&self, state: &State, out: &mut StoredBytes) -> Option<()>;

    /// The number that a counter with reservations has beside its states; 0 if the algorithm needs none.
    fn number_of_reserved(&self) -> u32 {
        0
    }

    /// The place of reserved hits, as [`Algorithm::insert`] takes it, from the two numbers of the store.
    fn place_from_store(&self, place: u128, part: u128) -> Option<u128>;

    /// The two numbers of the store for a place.
    fn place_to_store(&self, place: u128) -> Option<(u128, u128)>;
}

/// The algorithm of a signature.
macro_rules! of_signature {
    (($letter:expr, $parameters:expr) $($name:ident)*) => {
        None$(.or_else(|| {
            let mut numbers = StoredNumbers($parameters);
            let algorithm = super::$name::of_signature($letter, &mut numbers)?;
            numbers.0.is_empty().then_some(Algorithm::$name(algorithm))
        }))*
    };
}

impl Algorithm {
    /// The signature, with its length before it.
    pub fn signature(&self) -> StoredBytes {
        let mut bytes = StoredBytes::new();
        bytes.push(0);
        each!(self, algorithm => algorithm.write_signature(&mut bytes));
        // The names of time zones are the longest part, and much shorter.
        bytes[0] = u8::try_from(bytes.len() - 1).expect("a signature is shorter than 256 bytes");
        bytes
    }

    /// The signature and the other parameters, as the script reads them. `now` is the time of this machine.
    pub fn parameters_in_store(&self, now: Timestamp) -> StoredBytes {
        let mut bytes = self.signature();
        each!(self, algorithm => algorithm.write_parameters(now, &mut bytes));
        bytes
    }

    /// The algorithm with this signature, given without its length; its limit is the greatest there is.
    pub fn of_signature(signature: &[u8]) -> Option<Self> {
        let (&letter, parameters) = signature.split_first()?;
        for_all!(of_signature!(letter, parameters))
    }

    /// Decodes the state of a counter without reservations that counts by this algorithm; none if the bytes are of another one, or damaged.
    /// No bytes are an empty counter.
    pub fn decode_stored(&self, bytes: &[u8]) -> Option<State> {
        if bytes.is_empty() {
            return Some(State::EMPTY);
        }
        let mut numbers = StoredNumbers(bytes.strip_prefix(&self.signature()[..])?);
        let state = each!(self, algorithm => algorithm.read(&mut numbers))?;
        numbers.0.is_empty().then_some(state)
    }

    /// Encodes a state of this algorithm [in microseconds](Self::in_microseconds), without leases and reservations; none for any other.
    pub fn encode_stored(&self, state: &State) -> Option<StoredBytes> {
        let mut bytes = self.signature();
        each!(self, algorithm => algorithm.write(state, &mut bytes))?;
        Some(bytes)
    }

    /// The number that a counter with reservations has beside its states.
    pub fn number_of_reserved(&self) -> u32 {
        each!(self, algorithm => algorithm.number_of_reserved())
    }

    /// The place of reserved hits from the two numbers of the store.
    pub fn place_from_store(&self, place: u64, part: u64) -> Option<u128> {
        each!(self, algorithm => algorithm.place_from_store(place.into(), part.into()))
    }

    /// The two numbers of the store for the place of reserved hits.
    pub fn place_to_store(&self, place: u128) -> Option<(u64, u64)> {
        let (place, part) = each!(self, algorithm => algorithm.place_to_store(place))?;
        Some((u64::try_from(place).ok()?, u64::try_from(part).ok()?))
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
