//! The result of taking hits, and the numbers of a status.

use super::State;
use crate::limit::{Reset, Timestamp};
use std::time::Duration;

/// A counter at one time, with the numbers of a status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The state.
    pub state: State,
    /// See [`Algorithm::expires`](super::Algorithm::expires).
    pub expires: Timestamp,
    /// See [`Algorithm::remaining`](super::Algorithm::remaining).
    pub remaining: u64,
    /// See [`Algorithm::until_full`](super::Algorithm::until_full).
    pub until_full: Duration,
}

/// The result of [`Algorithm::take`](super::Algorithm::take).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The hits fit, and are counted.
    Admitted(Standing),
    /// The hits do not fit; none is counted.
    Over {
        /// See [`Algorithm::remaining`](super::Algorithm::remaining).
        remaining: u64,
        /// See [`Algorithm::until_admits`](super::Algorithm::until_admits).
        until_admits: Reset,
    },
}

/// Wait until `hits` fit under `limit`, given the wait until at most a number are used; never for more than the limit.
#[inline]
pub(super) fn until_room(limit: u32, hits: u64, until_at_most: impl FnOnce(u64) -> Duration) -> Reset {
    match u64::from(limit).checked_sub(hits) {
        None => Reset::Never,
        Some(target) => Reset::After(until_at_most(target)),
    }
}
