//! How used hits become free again: what leases, quotas, reservations and statuses have to know of an algorithm.

use super::{Algorithm, Rate, facts::Facts};
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

impl Algorithm {
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
}
