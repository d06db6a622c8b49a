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
pub(crate) struct Sent {
    /// The time at which the response is sent.
    now: Timestamp,
    /// Seconds that are added to each wait.
    more: u64,
}

impl Sent {
    /// Adds up to `jitter_seconds` by a random number. Each number of seconds is equally likely.
    pub(crate) fn new(now: Timestamp, chance: u64, jitter_seconds: u32) -> Self {
        Self { now, more: chance % (u64::from(jitter_seconds) + 1) }
    }

    /// Adds nothing.
    pub(in crate::client_headers) fn exactly(self) -> Self {
        Self { more: 0, ..self }
    }

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

    #[test]
    fn waits_are_seconds_times_and_dates() {
        let (at, wait) =
            (Sent::new(Timestamp::from_millis(784_111_776_400), 0, 0), Duration::from_millis(700));
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
            let stated = Sent::new(now, chance, jitter);
            let exact = stated.exactly();
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
        let added = |chance| Sent::new(Timestamp::default(), chance, 3).more;
        assert_eq!([0, 1, 2, 3, 4].map(added), [0, 1, 2, 3, 0]);
    }
}
