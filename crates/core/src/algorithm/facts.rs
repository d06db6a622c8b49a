//! What the rest of the system knows of an algorithm beside its counting. Every algorithm states it in its own file; elsewhere nothing
//! matches over algorithms.

use super::{Algorithm, Freeing, NotShareable, State, memory::HeapBytes};
use crate::limit::Window;
use std::time::Duration;

/// The facts that an algorithm states of itself.
pub(super) trait Facts: Sized {
    /// The name in rule files.
    const NAME: &'static str;
    /// The largest limit.
    const LIMIT_MAX: u32 = u32::MAX;
    /// Whether its states are two words.
    const KEEPS_WORDS: bool;
    /// Whether it counts hits by their number alone. Slots are known by their ids, and denials are no hits.
    const COUNTS_HITS: bool = true;

    /// The most hits of a bucket at once, if it is one.
    #[inline]
    fn capacity(&self) -> Option<u32> {
        None
    }

    /// Bytes of a counter on the heap.
    fn heap_bytes(&self) -> HeapBytes {
        HeapBytes::default()
    }

    /// How used hits become free again.
    fn freeing(&self) -> Freeing;

    /// Whether a state of the other's means the same under this one: only the number admitted differs.
    fn reads_as(&self, other: &Self) -> bool;

    /// See [`Algorithm::with_requests`].
    fn with_requests(&self, requests: u32, former: u32, window: Window) -> Self;

    /// See [`Algorithm::replaced`].
    fn replaced(&self, limit: u32, window: Window, size: u32) -> Algorithm;

    /// The same in whole microseconds, for counters of a shared store that have at most `most` hits of its limit.
    fn in_microseconds(&self, most: &dyn Fn(u32) -> u32) -> Result<Self, NotShareable>;

    /// Counts hits at a place of a window or a log: see [`Algorithm::insert`].
    fn insert(&self, state: State, hits: u64, place: u64) -> State;

    /// See [`Algorithm::numbers`].
    fn numbers(&self, length: fn(Duration) -> String) -> String;
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

    /// The algorithm of a limit of an override that names no algorithm, and replaces a limit of this one: with another number and window, and
    /// with another size if it is a bucket.
    pub fn replaced(&self, limit: u32, window: Window, size: u32) -> Self {
        each!(self, algorithm => algorithm.replaced(limit, window, size))
    }

    /// The numbers of the limit, for people; `length` writes lengths of time that are no window of a rule.
    pub fn numbers(&self, length: fn(Duration) -> String) -> String {
        each!(self, algorithm => algorithm.numbers(length))
    }
}
