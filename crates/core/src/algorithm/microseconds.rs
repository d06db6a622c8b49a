//! Algorithms in whole microseconds: the form in which counters of a shared store are computed.
//!
//! A store computes with doubles, which are exact up to 2^53: enough for microseconds since 1970, not for nanoseconds. An
//! algorithm in this form has the same results there as here, at every whole microsecond.

use super::{Algorithm, Rate, State, facts::Facts, sliding_log};
use crate::limit::{Timestamp, Window};

pub(super) const NANOS: u64 = 1_000;

/// The longest time in which a full bucket of a shared store drains.
const DRAIN_MICROS_MAX: u128 = 100 * 365 * 86_400 * 1_000_000;

/// Reason why counters of a limit cannot be in a shared store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotShareable {
    /// A queue is the memory of one process.
    #[error("requests are queued by one process and cannot share a queue; remove `max_wait`")]
    Queue,
    /// A ban is in the memory of one process.
    #[error("denials are counted by one process")]
    Bans,
    /// A log that is too large to be copied for each decision.
    #[error(
        "a shared log holds at most {} hits; write `algorithm: sliding_window` and `precision: 60`",
        sliding_log::SHARED_LIMIT_MAX
    )]
    Log,
    /// A bucket whose times exceed what doubles represent exactly.
    #[error("a shared bucket drains within 100 years; write a smaller burst or a higher rate")]
    Bucket,
    /// A state that is no state of a shared counter.
    #[error("its state is not one of a shared store")]
    State,
    /// A window that is not a whole number of microseconds.
    #[error("a shared window is a whole number of microseconds")]
    Window,
}

impl Algorithm {
    /// The algorithm in whole microseconds. Sub-windows differ, which are rounded up, and requests in flight: none waits for a slot, since
    /// a queue is the memory of one process.
    pub fn in_microseconds(&self) -> Result<Self, NotShareable> {
        self.in_microseconds_with(&|limit| limit)
    }

    /// The same for a counter in this state, whose hits alone are bounded: the number that its limit admits may not be known.
    pub fn in_microseconds_of(&self, state: &State, now: Timestamp) -> Result<Self, NotShareable> {
        let used = u32::try_from(self.used(state, now)).unwrap_or(u32::MAX);
        self.in_microseconds_with(&|_| used)
    }

    fn in_microseconds_with(&self, most: &dyn Fn(u32) -> u32) -> Result<Self, NotShareable> {
        Ok(map_each!(self, algorithm => algorithm.in_microseconds(most)?))
    }
}

/// Whether a window is a whole number of microseconds.
pub(super) fn whole(window: Window) -> Result<(), NotShareable> {
    if window.nanos().get().is_multiple_of(NANOS) { Ok(()) } else { Err(NotShareable::Window) }
}

/// Whether a full bucket drains in time.
pub(super) fn drains(rate: Rate, size: u32) -> Result<(), NotShareable> {
    let (hits, nanos) = rate.to_parts();
    let micros = u128::from(size) * u128::from(nanos) / u128::from(hits) / u128::from(NANOS);
    if micros <= DRAIN_MICROS_MAX { Ok(()) } else { Err(NotShareable::Bucket) }
}
