//! Dispatch over [`Algorithm`] to what each algorithm states in its file: its facts, and its forms in stores and in files.

use super::{
    Algorithm, Freeing, NotShareable, State, StoredBytes, StoredNumbers, facts::Facts, memory::HeapBytes,
    stored::Stored,
};
use crate::limit::{Timestamp, Window};
use std::time::Duration;

/// The algorithm with another limit, if there is one.
macro_rules! replaced {
    (($self:expr, $limit:expr, $window:expr, $size:expr) $($name:ident)*) => {
        match $self {
            $(Algorithm::$name(algorithm) => algorithm.replaced($limit, $window, $size).map(Algorithm::$name),)*
        }
    };
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

const fn name_of<A: Facts>(_: &A) -> &'static str {
    A::NAME
}

const fn keeps_words<A: Facts>(_: &A) -> bool {
    A::KEEPS_WORDS
}

const fn counts_hits<A: Facts>(_: &A) -> bool {
    A::COUNTS_HITS
}

const fn limit_max<A: Facts>(_: &A) -> u32 {
    A::LIMIT_MAX
}

impl Algorithm {
    /// The name in rule files.
    pub const fn name(&self) -> &'static str {
        each!(self, algorithm => name_of(algorithm))
    }

    /// The largest limit of this algorithm.
    pub const fn limit_max(&self) -> u32 {
        each!(self, algorithm => limit_max(algorithm))
    }

    /// Whether its states are two words.
    pub const fn keeps_words(&self) -> bool {
        each!(self, algorithm => keeps_words(algorithm))
    }

    /// Whether it counts hits by their number alone: neither requests in flight, which have slots, nor denials.
    pub const fn counts_hits(&self) -> bool {
        each!(self, algorithm => counts_hits(algorithm))
    }

    /// The most hits of a bucket at once, if it is one.
    #[inline]
    pub fn capacity(&self) -> Option<u32> {
        each!(self, algorithm => algorithm.capacity())
    }

    /// Bytes of a counter on the heap.
    pub fn heap_bytes(&self) -> HeapBytes {
        each!(self, algorithm => algorithm.heap_bytes())
    }

    /// The same algorithm for another number of requests per window. A bucket as large as its requests per window, which were `former`,
    /// stays so; another size is kept.
    pub fn with_requests(&self, requests: u32, former: u32, window: Window) -> Self {
        map_each!(self, algorithm => algorithm.with_requests(requests, former, window))
    }

    /// The algorithm of an override's limit that names no algorithm, and replaces a limit of this one: with another number and window and,
    /// for a bucket, another size. The default algorithm if this one cannot have such a limit.
    pub fn replaced(&self, limit: u32, window: Window, size: u32) -> Self {
        for_all!(replaced!(self, limit, window, size))
            .unwrap_or_else(|| Self::sliding_window(limit, window, 1))
    }

    /// The numbers of the limit, for people; `length` writes lengths of time that are no window of a rule.
    pub fn numbers(&self, length: fn(Duration) -> String) -> String {
        each!(self, algorithm => algorithm.numbers(length))
    }

    /// How used hits become free again.
    pub fn freeing(&self) -> Freeing {
        each!(self, algorithm => algorithm.freeing())
    }

    /// Nanoseconds that a hit counts: the length of the window, or the time in which a full bucket drains.
    pub fn span_nanos(&self) -> u64 {
        let size = self.capacity().unwrap_or_default();
        match self.freeing() {
            Freeing::Window(nanos) | Freeing::Otherwise(nanos) => nanos,
            Freeing::Evenly(rate) => {
                let (hits, nanos) = rate.to_parts();
                u64::try_from(u128::from(size) * u128::from(nanos) / u128::from(hits)).unwrap_or(u64::MAX)
            }
            Freeing::Intervals { tokens, interval } => {
                interval.nanos().get().saturating_mul(u64::from(size.div_ceil(tokens.get())))
            }
        }
    }

    /// Whether hits drain one by one, at a rate.
    pub fn drains_evenly(&self) -> bool {
        matches!(self.freeing(), Freeing::Evenly(_))
    }

    /// Whether it is a bucket: its hits drain, whenever they were added.
    pub fn is_bucket(&self) -> bool {
        matches!(self.freeing(), Freeing::Evenly(_) | Freeing::Intervals { .. })
    }

    /// Whether hits count until they have left a window.
    pub fn has_window(&self) -> bool {
        matches!(self.freeing(), Freeing::Window(_))
    }

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

    /// Decodes the state of a counter without reservations that counts by this algorithm; none if the bytes are of another algorithm, or
    /// damaged. No bytes are an empty counter.
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
        each!(self, algorithm => algorithm.place_scale())?.place_of(place.into(), part.into())
    }

    /// The two numbers of the store for the place of reserved hits.
    pub fn place_to_store(&self, place: u128) -> Option<(u64, u64)> {
        each!(self, algorithm => algorithm.place_scale())?.to_store(place)
    }

    /// The algorithm in whole microseconds. Sub-windows differ, since they are rounded up, and so do requests in flight: none waits for a
    /// slot, since a queue is the memory of one process.
    pub fn in_microseconds(&self) -> Result<Self, NotShareable> {
        self.in_microseconds_with(&|limit| limit)
    }

    /// The algorithm in whole microseconds, for a counter in this state. Bounds only the hits of the counter: the number that its limit
    /// admits may be unknown.
    pub fn in_microseconds_of(&self, state: &State, now: Timestamp) -> Result<Self, NotShareable> {
        let used = u32::try_from(self.used(state, now)).unwrap_or(u32::MAX);
        self.in_microseconds_with(&|_| used)
    }

    fn in_microseconds_with(&self, most: &dyn Fn(u32) -> u32) -> Result<Self, NotShareable> {
        Ok(map_each!(self, algorithm => algorithm.in_microseconds(most)?))
    }
}
