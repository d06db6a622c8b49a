//! Facts about an algorithm that the rest of the system needs besides its counting. Every algorithm states them in its own file; nothing
//! else matches over algorithms.

use super::{Freeing, NotShareable, State, memory::HeapBytes};
use crate::limit::{Timestamp, Window};
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

    /// Whether a state of the other algorithm means the same under this one: only the number admitted differs.
    fn reads_as(&self, other: &Self) -> bool;

    /// See [`Algorithm::with_requests`](super::Algorithm::with_requests).
    fn with_requests(&self, requests: u32, former: u32, window: Window) -> Self;

    /// See [`Algorithm::replaced`](super::Algorithm::replaced). None if it cannot have this limit.
    fn replaced(&self, limit: u32, window: Window, size: u32) -> Option<Self>;

    /// The same in whole microseconds, for counters of a shared store with at most `most` hits for a limit.
    fn in_microseconds(&self, most: &dyn Fn(u32) -> u32) -> Result<Self, NotShareable>;

    /// Counts hits at a place of a window or a log: see [`Algorithm::insert`](super::Algorithm::insert). Others have no places.
    fn insert(&self, state: State, _hits: u64, _place: u64, _now: Timestamp) -> State {
        state
    }

    /// The state at `at` with its ends moved to the earlier time `now`; none if it has no ends but those of its hits.
    fn with_ends_at(&self, _state: &State, _at: Timestamp, _now: Timestamp) -> Option<State> {
        None
    }

    /// See [`Algorithm::numbers`](super::Algorithm::numbers).
    fn numbers(&self, length: fn(Duration) -> String) -> String;
}
