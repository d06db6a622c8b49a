//! Counts of recent requests by counter, in fixed memory: which counters deserve a holder.

use super::super::lease::Monotonic;
use std::sync::atomic::{AtomicU32, Ordering};
use tidegate_core::store::Key;

/// Number of cells, a power of two. Counters that share a cell are counted together. This may make a holder too many, which is dropped when
/// idle.
const CELLS: usize = 1 << 14;

/// A counter gets a holder at this many requests within one interval.
const REQUESTS_MIN: u32 = 4;

/// Bits of a cell for the count; the others are the number of the interval.
const COUNT_BITS: u32 = 4;

/// Cells, each for some of all keys. A cell has the last interval in which such a key was requested, and the number of requests in that
/// interval.
pub(super) struct Recent {
    cells: Box<[AtomicU32]>,
    interval_nanos: u64,
}

impl Recent {
    /// With intervals of this length.
    pub(super) fn new(interval_nanos: u64) -> Self {
        Self { cells: (0..CELLS).map(|_| AtomicU32::new(0)).collect(), interval_nanos: interval_nanos.max(1) }
    }

    /// Counts a request; true if there were enough in this interval.
    #[inline]
    pub(super) fn is_hot(&self, key: Key, now: Monotonic) -> bool {
        let interval = (now.as_nanos() / self.interval_nanos) as u32 & (u32::MAX >> COUNT_BITS);
        let cell = &self.cells[key.halves().1 as usize % CELLS];
        let former = cell.load(Ordering::Relaxed);
        let count = if former >> COUNT_BITS == interval { former & ((1 << COUNT_BITS) - 1) } else { 0 };
        let count = (count + 1).min(REQUESTS_MIN);
        // Two threads may lose a count here: the holder is then made one request later.
        cell.store(interval << COUNT_BITS | count, Ordering::Relaxed);
        count >= REQUESTS_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::store::Key;

    #[test]
    fn a_counter_is_hot_with_four_requests_in_one_interval() {
        let (recent, key) = (Recent::new(100), Key::from_halves(7, 9));
        let hot = |nanos| recent.is_hot(key, Monotonic::from_nanos(nanos));
        assert_eq!([hot(0), hot(10), hot(99), hot(100)], [false; 4]);
        assert_eq!([hot(110), hot(120), hot(130), hot(140)], [false, false, true, true]);
        assert!(!hot(200));
    }
}
