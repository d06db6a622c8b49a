//! Waits in headers: seconds from now, a time, or a date. Denials have some random seconds more.
//!
//! A stated wait is never shorter than the exact wait: all are rounded up.

use std::time::{Duration, SystemTime};
use tidegate_core::limit::Timestamp;

/// The form of `Retry-After`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryAfter {
    /// Seconds from now.
    Seconds,
    /// The date of HTTP: `Sun, 06 Nov 1994 08:49:37 GMT`.
    Date,
}

/// What stated waits need besides the decision.
#[derive(Clone, Copy, Debug)]
pub(in crate::client_headers) struct Stated {
    now: Timestamp,
    /// Added to each wait.
    more: u64,
}

/// The moment at which a response is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// The time.
    pub(crate) now: Timestamp,
    /// A random number.
    pub(crate) chance: u64,
}

impl Sent {
    /// Adds up to `jitter_seconds` to the waits of a denial. Each number is equally likely.
    pub(in crate::client_headers) fn of(self, is_denial: bool, jitter_seconds: u32) -> Stated {
        let numbers = u64::from(jitter_seconds) + 1;
        Stated { now: self.now, more: if is_denial { self.chance % numbers } else { 0 } }
    }
}

impl Stated {
    /// Seconds from now.
    pub(in crate::client_headers) fn seconds(self, wait: Duration) -> u64 {
        rounded_up(wait).saturating_add(self.more)
    }

    /// Seconds since 1970.
    pub(in crate::client_headers) fn unix_seconds(self, wait: Duration) -> u64 {
        let now = Duration::from_nanos(self.now.as_nanos());
        rounded_up(now.saturating_add(wait)).saturating_add(self.more)
    }

    /// `Retry-After`.
    pub(in crate::client_headers) fn retry_after(self, form: RetryAfter, wait: Duration) -> String {
        match form {
            RetryAfter::Seconds => self.seconds(wait).to_string(),
            RetryAfter::Date => {
                // The format has years with four digits.
                let seconds = self.unix_seconds(wait).min(253_402_300_799);
                httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
            }
        }
    }
}

fn rounded_up(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stated(millis: u64, more: u64) -> Stated {
        Stated { now: Timestamp::from_millis(millis), more }
    }

    #[test]
    fn waits_are_seconds_times_and_dates() {
        let (at, wait) = (stated(784_111_776_400, 0), Duration::from_millis(700));
        assert_eq!((at.seconds(wait), at.unix_seconds(wait)), (1, 784_111_778));
        assert_eq!(at.retry_after(RetryAfter::Seconds, wait), "1");
        assert_eq!(at.retry_after(RetryAfter::Date, wait), "Sun, 06 Nov 1994 08:49:38 GMT");
        let last = at.retry_after(RetryAfter::Date, Duration::MAX);
        assert_eq!(last, "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    proptest! {
        #[test]
        fn a_stated_wait_is_never_shorter_than_the_exact_one_and_at_most_the_jitter_longer(
            now in 0_u64..1 << 62,
            wait in 0_u64..1 << 60,
            (chance, jitter) in (any::<u64>(), 0_u32..100),
        ) {
            let (now, wait) = (Timestamp::from_nanos(now), Duration::from_nanos(wait));
            let stated = Sent { now, chance }.of(true, jitter);
            let exact = Sent { now, chance }.of(false, jitter);
            let jitter = u64::from(jitter);
            prop_assert!(Duration::from_secs(exact.seconds(wait)) >= wait);
            prop_assert!((exact.seconds(wait)..=exact.seconds(wait) + jitter).contains(&stated.seconds(wait)));
            let at = Duration::from_nanos(now.as_nanos()) + wait;
            prop_assert!(Duration::from_secs(exact.unix_seconds(wait)) >= at);
            let times = exact.unix_seconds(wait)..=exact.unix_seconds(wait) + jitter;
            prop_assert!(times.contains(&stated.unix_seconds(wait)));
        }
    }

    #[test]
    fn every_number_of_seconds_up_to_the_jitter_is_added() {
        let added = |chance| Sent { now: Timestamp::default(), chance }.of(true, 3).more;
        assert_eq!([0, 1, 2, 3, 4].map(added), [0, 1, 2, 3, 0]);
    }
}
