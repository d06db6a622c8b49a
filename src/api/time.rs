//! Times and durations as protobuf has them: seconds and nanoseconds.

use std::time::Duration;
use tidegate_core::limit::Timestamp;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The longest duration of protobuf: 10,000 years.
pub(crate) const DURATION_SECONDS_MAX: u64 = 315_576_000_000;

/// A duration, or the longest one.
#[inline]
pub(crate) fn duration(duration: Duration) -> prost_types::Duration {
    let seconds = duration.as_secs().min(DURATION_SECONDS_MAX) as i64;
    prost_types::Duration { seconds, nanos: duration.subsec_nanos() as i32 }
}

/// A duration of protobuf as the standard library has it; none if it is negative.
pub(crate) fn from_duration(duration: prost_types::Duration) -> Option<Duration> {
    Duration::try_from(duration).ok()
}

pub(crate) fn timestamp(time: Timestamp) -> prost_types::Timestamp {
    let nanos = time.as_nanos();
    let seconds = (nanos / NANOS_PER_SECOND) as i64;
    prost_types::Timestamp { seconds, nanos: (nanos % NANOS_PER_SECOND) as i32 }
}

/// None if the time is malformed or not from 1970 to 2554.
pub(crate) fn from_timestamp(time: prost_types::Timestamp) -> Option<Timestamp> {
    let seconds = u64::try_from(time.seconds).ok()?;
    let nanos = u64::try_from(time.nanos).ok().filter(|nanos| *nanos < NANOS_PER_SECOND)?;
    Some(Timestamp::from_nanos(seconds.checked_mul(NANOS_PER_SECOND)?.checked_add(nanos)?))
}

/// The time by RFC 3339, with so many digits of the second's fraction; empty if it is malformed.
pub(crate) fn time_text(time: prost_types::Timestamp, digits: usize) -> String {
    let time = jiff::Timestamp::new(time.seconds, time.nanos);
    time.map_or_else(|_| String::new(), |time| format!("{time:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_times_are_refused_and_others_are_exact() {
        let nanos = |seconds, nanos| {
            from_timestamp(prost_types::Timestamp { seconds, nanos }).map(Timestamp::as_nanos)
        };
        assert_eq!(nanos(1_700_006_400, 999_999_999), Some(1_700_006_400_999_999_999));
        assert_eq!(nanos(0, 0), Some(0));
        for (seconds, of_second) in [(-1, 0), (0, -1), (0, 1_000_000_000), (i64::MAX, 0), (18_446_744_074, 0)]
        {
            assert_eq!(nanos(seconds, of_second), None, "{seconds} {of_second}");
        }
        let time = Timestamp::from_nanos(1_700_006_400_999_999_999);
        assert_eq!(from_timestamp(timestamp(time)), Some(time));
    }

    #[test]
    fn a_duration_beyond_the_longest_of_protobuf_is_the_longest() {
        let wait = Duration::new(3, 5);
        assert_eq!(from_duration(duration(wait)), Some(wait));
        assert_eq!(duration(Duration::MAX).seconds, 315_576_000_000);
        assert_eq!(from_duration(prost_types::Duration { seconds: -1, nanos: 0 }), None);
    }
}
