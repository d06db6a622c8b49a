//! Algorithms in whole microseconds: the form in which counters of a shared store are computed.
//!
//! A store computes with doubles, which are exact up to 2^53: enough for microseconds since 1970, not for nanoseconds. An
//! algorithm in this form has the same results there as here, at every whole microsecond.

use crate::limit::Window;

pub(super) const NANOS: u64 = 1_000;

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
    #[error("a shared log holds at most {0} hits; write `algorithm: sliding_window` and `precision: 60`")]
    Log(u32),
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

/// Whether a window is a whole number of microseconds.
pub(super) fn whole(window: Window) -> Result<(), NotShareable> {
    if window.nanos().get().is_multiple_of(NANOS) { Ok(()) } else { Err(NotShareable::Window) }
}
