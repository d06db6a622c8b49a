//! Demand for one counter at one node: hits in about the last lease length.

use super::Monotonic;

/// Binary digits after the point.
const FRACTION_BITS: u32 = 8;

/// An average that older hits leave exponentially.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Hits in a lease length, as of `since`.
    average: u64,
    /// Hits after `since`.
    newer: u64,
    since: Monotonic,
}

impl Demand {
    pub(super) fn new(now: Monotonic) -> Self {
        Self { average: 0, newer: 0, since: now }
    }

    /// Counts hits that were demanded, admitted or not.
    #[inline]
    pub(super) fn record(&mut self, hits: u64, length_nanos: u64, now: Monotonic) {
        // Eight times per lease length: a decision rarely has to divide.
        if now.nanos_since(self.since) >= length_nanos / 8 {
            self.advance(length_nanos, now);
        }
        self.newer = self.newer.saturating_add(hits);
    }

    /// Hits in a lease length.
    pub(super) fn hits(&self, length_nanos: u64, now: Monotonic) -> u64 {
        let mut at_now = *self;
        at_now.advance(length_nanos, now);
        at_now.average >> FRACTION_BITS
    }

    fn advance(&mut self, length_nanos: u64, now: Monotonic) {
        let (elapsed, length) = (u128::from(now.nanos_since(self.since)), u128::from(length_nanos.max(1)));
        let newer = u128::from(self.newer.min(u64::from(u32::MAX))) << FRACTION_BITS;
        let average = if elapsed < length {
            u128::from(self.average) * (length - elapsed) / length + newer
        } else {
            newer * length / elapsed
        };
        *self = Self { average: u64::try_from(average).unwrap_or(u64::MAX), newer: 0, since: now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: u64 = 200_000_000;

    fn at(millis: u64) -> Monotonic {
        Monotonic::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn steady_demand_is_measured_within_a_tenth() {
        let mut demand = Demand::new(at(0));
        for millis in 0..2_000 {
            demand.record(3, LENGTH, at(millis));
        }
        let hits = demand.hits(LENGTH, at(2_000));
        assert!((540..=660).contains(&hits), "{hits} instead of 600");
    }

    #[test]
    fn demand_that_ended_is_forgotten() {
        let mut demand = Demand::new(at(0));
        demand.record(1_000, LENGTH, at(10));
        assert!(demand.hits(LENGTH, at(20)) > 900);
        demand.record(0, LENGTH, at(100));
        assert_eq!(demand.hits(LENGTH, at(400)), 0);
    }
}
