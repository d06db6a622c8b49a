//! How a limit is divided among clients of quota, according to its algorithm.

use tidegate_core::{
    algorithm::{Algorithm, Freeing},
    limit::Timestamp,
    rules::{SLICED_FROM, SLICED_MIN, burst_of_window, is_window_sliced},
};

const SECOND: u64 = 1_000_000_000;

/// The least rate that is divided, in thousandths of a hit per second: one hit in the time between two reports.
pub(super) const RATE_MIN: u64 = 200;

/// How a limit is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Terms {
    /// By rates: the shares of all clients add up to the rate of the limit, their buckets to a part of its burst.
    Rates(RateTerms),
    /// By slices of the hits that are left.
    Slices(SliceTerms),
}

/// A rate that is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateTerms {
    /// Thousandths of a hit per second, of all clients and requests together.
    pub(super) rate: u64,
    /// Hits that clients may spend at once, all together.
    pub(super) burst: u64,
    /// Nanoseconds for which a hit of the rate counts as a hit of the present; 0 if hits drain one by one.
    pub(super) span: u64,
    /// Whether the rate counts as time passes. Hits of a window count only within `span`.
    pub(super) accrues: bool,
}

/// Hits that are divided by slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SliceTerms {
    /// Hits that the empty counter admits.
    pub(super) limit: u64,
    /// Nanoseconds for which a hit counts, about.
    pub(super) span: u64,
}

/// The reason why a limit cannot be divided among clients of quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Indivisible {
    /// It counts requests in flight, or bans.
    #[error("a limit of {name} cannot be divided: clients of quota report numbers of requests only")]
    Algorithm {
        /// The algorithm, as in rule files.
        name: &'static str,
    },
    /// A leaky bucket with `max_wait`.
    #[error(
        "a limit with max_wait cannot be divided: clients of quota do not queue requests; remove max_wait"
    )]
    Queues,
    /// A bucket that is refilled at once and is in a shared store.
    #[error(
        "counters of buckets with refill: intervals in a shared store cannot be divided among clients of quota"
    )]
    InStore,
    /// The limit admits less than a request between two reports.
    #[error(
        "the limit is too small to be divided: clients of quota report every 5 s, and it admits less than one request in that \
         time; raise it to {SLICED_MIN} requests or more, or limit it by ShouldRateLimit"
    )]
    TooSmall,
}

impl Terms {
    /// The terms of a limit whose counter is in a shared store. Buckets that are refilled at once cannot be divided there by rates, because
    /// a store cannot distinguish the hits of this interval.
    pub fn of_shared(algorithm: &Algorithm) -> Result<Self, Indivisible> {
        match Self::of(algorithm)? {
            Self::Rates(terms) if terms.accrues && terms.span > 0 => Err(Indivisible::InStore),
            terms => Ok(terms),
        }
    }

    /// The terms of a limit. `tidegate check` reports the error.
    pub fn of(algorithm: &Algorithm) -> Result<Self, Indivisible> {
        if algorithm.queueing().is_some() {
            return Err(Indivisible::Queues);
        }
        let limit = algorithm.remaining(&Default::default(), Timestamp::EPOCH);
        let (hits, nanos, span) = match algorithm.freeing() {
            Freeing::Window(nanos) => (limit, nanos, nanos),
            Freeing::Evenly(rate) => (rate.to_parts().0, rate.to_parts().1, 0),
            Freeing::Intervals { tokens, interval } => {
                (u64::from(tokens.get()), interval.nanos().get(), interval.nanos().get())
            }
            Freeing::Otherwise(_) => return Err(Indivisible::Algorithm { name: algorithm.name() }),
        };
        let rate = millihits(hits, nanos);
        let filled = u128::from(limit) * 1_000 * u128::from(SECOND) / u128::from(rate.max(1));
        let is_sliced_window = span > 0 && is_window_sliced(limit, span.into());
        if is_sliced_window || filled >= SLICED_FROM || rate < RATE_MIN {
            let span = if span > 0 { span } else { u64::try_from(filled).unwrap_or(u64::MAX) };
            return match limit >= SLICED_MIN.into() {
                true => Ok(Self::Slices(SliceTerms { limit, span })),
                false => Err(Indivisible::TooSmall),
            };
        }
        let accrues = algorithm.is_bucket();
        let in_span = u128::from(rate) * u128::from(span) / (1_000 * u128::from(SECOND));
        // In a window, and in a bucket that is refilled at once, the rate lacks what clients spend at once.
        let beyond_span = limit.saturating_sub(u64::try_from(in_span).unwrap_or(u64::MAX));
        let burst = beyond_span.max(burst_of_window(limit));
        let burst = (burst - burst / 8).max(1);
        let in_window = limit.saturating_sub(burst + limit / 128);
        let rate = if span == 0 { rate } else { rate.min(millihits(in_window, span)) };
        match rate < RATE_MIN {
            true => Err(Indivisible::TooSmall),
            false => Ok(Self::Rates(RateTerms { rate, burst, span, accrues })),
        }
    }
}

/// Hits in `nanos` as thousandths of a hit per second, rounded down.
pub(super) fn millihits(hits: u64, nanos: u64) -> u64 {
    let rate = u128::from(hits) * 1_000 * u128::from(SECOND) / u128::from(nanos.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Thousandths of hits of a rate in `nanos`, rounded up.
pub(super) fn millihits_in(rate: u64, nanos: u64) -> u64 {
    let hits = (u128::from(rate) * u128::from(nanos)).div_ceil(u128::from(SECOND));
    u64::try_from(hits).unwrap_or(u64::MAX)
}

impl RateTerms {
    /// Hits to hold for a rate and a burst.
    pub(super) fn held(&self, rate: u64, burst: u64) -> u64 {
        burst.saturating_add(millihits_in(rate, self.span).div_ceil(1_000))
    }

    /// Microseconds for which a store holds the hits of a rate; 0 if they count as time passes.
    pub(super) fn span_in_store(&self) -> u64 {
        self.span.div_ceil(1_000)
    }

    /// The highest rate for which `hits` suffice.
    pub(super) fn rate_within(&self, hits: u64) -> u64 {
        if self.span == 0 { u64::MAX } else { millihits(hits, self.span) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;
    use tidegate_core::{
        algorithm::{Refill, SlidingWindow, TokenBucket},
        limit::Window,
    };

    fn bucket(size: u32, hits: u32, secs: u64) -> Algorithm {
        let window = Window::from_secs(secs).unwrap();
        Algorithm::TokenBucket(TokenBucket::greedy(size, NonZeroU32::new(hits).unwrap(), window))
    }

    #[test]
    fn buckets_and_short_windows_are_divided_by_rates_long_ones_by_slices() {
        let Ok(Terms::Rates(terms)) = Terms::of(&bucket(800, 1_000, 1)) else { panic!() };
        assert_eq!(terms, RateTerms { rate: 1_000_000, burst: 700, span: 0, accrues: true });
        let sliding = |limit, secs| {
            let window = Window::from_secs(secs).unwrap();
            Terms::of(&Algorithm::SlidingWindow(SlidingWindow { limit, window }))
        };
        let Ok(Terms::Rates(terms)) = sliding(1_000, 1) else { panic!() };
        assert!(terms.held(terms.rate, terms.burst) <= 1_000 && terms.rate > 900_000, "{terms:?}");
        assert!(matches!(sliding(1_000, 86_400), Ok(Terms::Slices(_))));
        assert!(matches!(sliding(1_000, 60), Ok(Terms::Rates(_))));
        assert!(matches!(sliding(999, 30), Ok(Terms::Slices(_))));
        assert!(matches!(sliding(999, 29), Ok(Terms::Rates(_))));
        assert!(matches!(Terms::of(&bucket(100, 100, 3_600)), Ok(Terms::Slices(_))));
    }

    #[test]
    fn several_servers_divide_all_but_buckets_that_are_refilled_at_once() {
        let window = |limit, secs| {
            let window = Window::from_secs(secs).unwrap();
            Terms::of_shared(&Algorithm::SlidingWindow(SlidingWindow { limit, window }))
        };
        assert!(matches!(Terms::of_shared(&bucket(800, 1_000, 1)), Ok(Terms::Rates(_))));
        assert!(matches!(Terms::of_shared(&bucket(100, 100, 3_600)), Ok(Terms::Slices(_))));
        assert!(matches!(window(1_000, 600), Ok(Terms::Slices(_))));
        assert!(matches!(window(100, 60), Ok(Terms::Slices(_))));
        assert!(matches!(window(1_000, 599), Ok(Terms::Rates(_))));
        let (tokens, interval) = (NonZeroU32::new(50).unwrap(), Window::from_secs(5).unwrap());
        let refilled = TokenBucket { size: 100, refill: Refill::Intervals { tokens, interval } };
        assert_eq!(Terms::of_shared(&Algorithm::TokenBucket(refilled)), Err(Indivisible::InStore));
        assert_eq!(window(9, 600), Err(Indivisible::TooSmall));
    }

    #[test]
    fn limits_below_a_request_in_an_interval_are_indivisible() {
        assert_eq!(Terms::of(&bucket(1, 1, 10)), Err(Indivisible::TooSmall));
        assert_eq!(Terms::of(&bucket(9, 1, 60)), Err(Indivisible::TooSmall));
        assert!(Terms::of(&bucket(1, 1, 5)).is_ok());
    }
}
