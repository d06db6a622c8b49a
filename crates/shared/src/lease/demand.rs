//! Demand of one node for one counter: hits in about the last lease length.

use super::Monotonic;

/// Binary digits after the point.
const FRACTION_BITS: u32 = 8;

/// An exponential average of hits per lease length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Hits in a lease length, as of `since`.
    average: u64,
    /// Hits after `since`.
    newer: u64,
    since: Monotonic,
    /// Time of the first hit.
    began: Monotonic,
}

impl Demand {
    pub(super) fn new(now: Monotonic) -> Self {
        Self { average: 0, newer: 0, since: now, began: now }
    }

    /// Counts hits that were demanded, admitted or not.
    #[inline]
    pub(super) fn record(&mut self, hits: u64, length_nanos: u64, now: Monotonic) {
        // Advances only eight times per lease length, so that a decision rarely divides.
        if now.nanos_since(self.since) >= length_nanos / 8 {
            self.advance(length_nanos, now);
        }
        self.newer = self.newer.saturating_add(hits);
    }

    /// Hits that are expected in one lease length. During the first length, hits before it are unknown, not zero: the rate so far is taken,
    /// as over a sixteenth of the length or more.
    pub(super) fn expected(&self, length_nanos: u64, now: Monotonic) -> u64 {
        let (hits, age) = (self.hits(length_nanos, now), now.nanos_since(self.began));
        let known = age.max(length_nanos / 16).max(1);
        let expected = u128::from(hits) * u128::from(length_nanos) / u128::from(known);
        if age < length_nanos { u64::try_from(expected).unwrap_or(u64::MAX) } else { hits }
    }

    /// Hits in the last lease length, about.
    pub(super) fn hits(&self, length_nanos: u64, now: Monotonic) -> u64 {
        let mut at_now = *self;
        at_now.advance(length_nanos, now);
        at_now.average >> FRACTION_BITS
    }

    fn advance(&mut self, length_nanos: u64, now: Monotonic) {
        let (elapsed, length) = (u128::from(now.nanos_since(self.since)), u128::from(length_nanos.max(1)));
        let newer = u128::from(self.newer.min(u64::from(u32::MAX))) << FRACTION_BITS;
        let average = if now.nanos_since(self.began) <= length_nanos {
            // All hits so far are in the last lease length.
            u128::from(self.average) + newer
        } else if elapsed < length {
            u128::from(self.average) * (length - elapsed) / length + newer
        } else if elapsed < length + length / 8 {
            newer * length / elapsed
        } else {
            // `record` advances eight times per length: the newer hits are from the first eighth after `since`.
            0
        };
        *self = Self { average: u64::try_from(average).unwrap_or(u64::MAX), newer: 0, since: now, ..*self };
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
    fn the_demand_for_a_new_counter_is_not_taken_for_a_low_one() {
        let mut demand = Demand::new(at(0));
        for millis in 0..20 {
            demand.record(3, LENGTH, at(millis));
        }
        let hits = demand.expected(LENGTH, at(20));
        assert!((500..=700).contains(&hits), "{hits} instead of 600");
    }

    #[test]
    fn demand_that_ended_is_forgotten() {
        let mut demand = Demand::new(at(0));
        demand.record(1_000, LENGTH, at(10));
        assert!(demand.hits(LENGTH, at(20)) > 900);
        demand.record(0, LENGTH, at(100));
        assert_eq!(demand.hits(LENGTH, at(400)), 0);
    }
    #[test]
    fn demand_that_ended_abruptly_is_forgotten_after_a_lease_length() {
        let mut demand = Demand::new(at(0));
        (0..1_000).for_each(|millis| demand.record(50, LENGTH, at(millis)));
        assert!(demand.hits(LENGTH, at(1_000)) > 9_000);
        assert_eq!(demand.hits(LENGTH, at(1_300)), 0);
    }
}
