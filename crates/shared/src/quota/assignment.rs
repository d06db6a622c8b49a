//! The assignments of a bucket that clients are sent: only what Envoy obeys.

use super::Settings;
use std::time::Duration;

/// The longest fill interval of a rate, in seconds. The least share is one request in it.
const FILL_SECS_MAX: u64 = 60;

/// The fill interval of slices, which are not to be filled: a year.
const NEVER: Duration = Duration::from_secs(365 * 86_400);

/// How a client decides requests of a bucket, from now on and for the time to live of the [settings](super::Settings).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignment {
    /// Admits them by a token bucket.
    ///
    /// Envoy reads the whole seconds of the interval. An assignment is a new one to Envoy only if one of the two numbers or the nanoseconds
    /// of the interval differ. Envoy then fills the new bucket to the ratio of the former one. The first bucket is full.
    Tokens {
        /// Size of the bucket.
        max_tokens: u32,
        /// Tokens in each interval.
        tokens_per_fill: u32,
        /// Whole seconds, and a number of the assignment in the nanoseconds.
        fill_interval: Duration,
    },
    /// Admits all of them: no limit divides the bucket.
    AllowAll,
    /// Denies all of them.
    DenyAll,
    /// Forgets the bucket. The next request makes it anew and reports at once.
    Abandon,
}

/// A rate as Envoy has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fill {
    tokens: u32,
    secs: u64,
}

impl Fill {
    /// The highest rate up to `rate`, in thousandths of a token per second. Takes the shortest interval that is exact enough. None if the
    /// rate is too low.
    pub(super) fn at_most(rate: u64) -> Option<Self> {
        let fill = |secs: u64| {
            let tokens = u32::try_from(rate.saturating_mul(secs) / 1_000).unwrap_or(u32::MAX);
            Self { tokens, secs }
        };
        let is_close = |fill: &Self| rate - fill.rate_below() <= rate / 512;
        let close = [1, 2, 5, 10, 20, 30].into_iter().map(fill).find(is_close);
        Some(close.unwrap_or_else(|| fill(FILL_SECS_MAX))).filter(|fill| fill.tokens > 0)
    }

    fn rate_below(self) -> u64 {
        u64::from(self.tokens) * 1_000 / self.secs
    }

    /// The rate, rounded up.
    pub(super) fn rate(self) -> u64 {
        (u64::from(self.tokens) * 1_000).div_ceil(self.secs)
    }

    /// The assignment of a bucket of this size.
    pub(super) fn assignment(self, max_tokens: u32, salt: u16) -> Assignment {
        let fill_interval = Duration::new(self.secs, salt.into());
        Assignment::Tokens { max_tokens, tokens_per_fill: self.tokens, fill_interval }
    }
}

impl Assignment {
    /// Time for which the assignment is in force, in whole seconds. None for [`Self::Abandon`], which forgets the bucket.
    pub fn ttl(self) -> Option<Duration> {
        (self != Self::Abandon).then(|| Settings::default().ttl)
    }

    /// A slice of `max_tokens`, which is not refilled.
    pub(super) fn slice(max_tokens: u32, salt: u16) -> Self {
        let fill_interval = NEVER + Duration::from_nanos(salt.into());
        Self::Tokens { max_tokens, tokens_per_fill: 1, fill_interval }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_rate_is_sent_in_whole_seconds() {
        assert_eq!(Fill::at_most(100_000), Some(Fill { tokens: 100, secs: 1 }));
        assert_eq!(Fill::at_most(3_700), Some(Fill { tokens: 37, secs: 10 }));
        assert_eq!(Fill::at_most(17), Some(Fill { tokens: 1, secs: 60 }));
        assert_eq!(Fill::at_most(16), None);
    }

    proptest! {
        #[test]
        fn a_rate_is_never_exceeded_and_hardly_missed(rate in 1..10_000_000_u64) {
            if let Some(fill) = Fill::at_most(rate) {
                prop_assert!(fill.rate_below() <= rate && u128::from(fill.tokens) * 1_000 <= u128::from(rate) * u128::from(fill.secs));
                prop_assert!(rate < 10_000 || rate - fill.rate_below() <= rate / 256);
            }
        }
    }
}
