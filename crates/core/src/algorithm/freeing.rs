//! How used hits become free again: what leases, quotas, reservations and statuses have to know of an algorithm.

use super::Rate;
use crate::limit::Window;
use std::num::NonZeroU32;

/// How used hits become free again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freeing {
    /// When they have left a window of so many nanoseconds: of a calendar, whose windows differ, `u64::MAX`.
    Window(u64),
    /// One by one, at a rate.
    Evenly(Rate),
    /// So many at once, at every multiple of the interval.
    Intervals {
        /// Hits that become free at once.
        tokens: NonZeroU32,
        /// From one time to the next.
        interval: Window,
    },
    /// In another way: a slot by its release, a ban by its end. After so many nanoseconds at most.
    Otherwise(u64),
}
