//! Division of the places for queued requests.
//!
//! A sender that fills them leaves some to others, in steps: one key leaves half of the places to other keys; all keys of one limit leave a
//! quarter to keys of the limit that have none, and an eighth to other limits. The others divide their part likewise (Choudhury and Hahne's
//! dynamic threshold). Clients can make up any number of keys, while limits are those of the rules.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, hash_map::Entry};
use std::hash::Hash;

/// Numbers of requests, before another request is queued.
#[derive(Clone, Copy)]
pub(super) struct Places {
    /// Requests of its key.
    pub(super) of_key: usize,
    /// Requests of all keys of its limit.
    pub(super) of_limit: usize,
    /// The number of free places.
    pub(super) free: usize,
}

impl Places {
    /// Whether there is a place for another request of the key.
    pub(super) fn has_another(self) -> bool {
        let Self { of_key, of_limit, free } = self;
        let of_limit_max = free.saturating_mul(if of_key == 0 { 7 } else { 3 });
        free > 0 && of_limit < of_limit_max && (of_key == 0 || of_key < free)
    }
}

/// Counts one request less.
pub(super) fn release_place<T: Eq + Hash>(counts: &mut HashMap<T, usize, FixedState>, of: T) {
    if let Entry::Occupied(mut count) = counts.entry(of) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}
