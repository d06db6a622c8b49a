//! How used hits become free again: what leases, quotas, reservations and statuses need of an algorithm.

use super::Rate;
use crate::limit::Window;
use std::num::NonZeroU32;

/// How used hits become free again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freeing {
    /// When they have left a window of so many nanoseconds; `u64::MAX` for a calendar, whose windows differ.
    Window(u64),
    /// One by one, at a rate.
    Evenly(Rate),
    /// `tokens` at once, at every multiple of the interval.
    Intervals {
        /// Hits that become free at once.
        tokens: NonZeroU32,
        /// Time from one refill to the next.
        interval: Window,
    },
    /// In another way: a slot by its release, a ban by its end. After so many nanoseconds at most.
    Otherwise(u64),
}
