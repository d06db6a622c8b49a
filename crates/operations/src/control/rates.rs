//! Hits per second of each limit, from readings of the counts at different times. Pure: the time is an argument.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};
use tidegate_core::limit::{SeriesId, Timestamp};

/// Time between two readings that are kept.
const INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time over which a rate is measured.
const SPAN_MIN: Duration = Duration::from_millis(500);
/// The time over which a rate is measured if there are enough readings.
const SPAN: Duration = Duration::from_secs(5);
/// Readings of this age are dropped.
const AGE_MAX: Duration = Duration::from_secs(30);

/// Hits by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HitCounts {
    /// Admitted, at once or after a wait.
    pub admitted: u64,
    /// Denied by the limit.
    pub denied: u64,
    /// Over the limit, but not denied by it.
    pub shadow_denied: u64,
}

impl HitCounts {
    /// The sums, saturating: callers choose the number of hits of a request.
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// The greater number for each outcome.
    pub fn or_more(self, other: Self) -> Self {
        self.with(other, u64::max)
    }

    fn with(self, other: Self, of: fn(u64, u64) -> u64) -> Self {
        Self {
            admitted: of(self.admitted, other.admitted),
            denied: of(self.denied, other.denied),
            shadow_denied: of(self.shadow_denied, other.shadow_denied),
        }
    }
}

/// Readings of the last seconds.
#[derive(Default)]
pub struct RateHistory(VecDeque<Reading>);

struct Reading {
    at: Timestamp,
    hits: HashMap<SeriesId, HitCounts>,
}

/// Rates between two readings.
pub struct Rates {
    seconds: f64,
    before: HashMap<SeriesId, HitCounts>,
    /// The counts of the last reading.
    pub hits: HashMap<SeriesId, HitCounts>,
}

impl Rates {
    /// Hits per second of one limit: admitted, denied, denied in shadow.
    pub fn of(&self, series: SeriesId) -> [f64; 3] {
        let (before, after) = (self.before.get(&series), self.hits.get(&series));
        let (before, after) = (before.copied().unwrap_or_default(), after.copied().unwrap_or_default());
        // The count of an id that another limit has now starts at zero.
        let rate = |before: u64, after: u64| after.checked_sub(before).unwrap_or(after) as f64 / self.seconds;
        [
            rate(before.admitted, after.admitted),
            rate(before.denied, after.denied),
            rate(before.shadow_denied, after.shadow_denied),
        ]
    }
}

impl RateHistory {
    /// Adds a reading, and returns the rates since an earlier one. None if no other reading is old enough.
    pub fn read(&mut self, now: Timestamp, hits: HashMap<SeriesId, HitCounts>) -> Option<Rates> {
        while self.0.front().is_some_and(|reading| now.since(reading.at) > AGE_MAX) {
            self.0.pop_front();
        }
        let age = |reading: &&Reading| now.since(reading.at);
        let old_enough = self.0.iter().rfind(|reading| age(reading) >= SPAN);
        let before = old_enough.or(self.0.front()).filter(|reading| age(reading) >= SPAN_MIN);
        let rates = before.map(|before| Rates {
            seconds: now.since(before.at).as_secs_f64(),
            before: before.hits.clone(),
            hits: hits.clone(),
        });
        if self.0.back().is_none_or(|last| now.since(last.at) >= INTERVAL) {
            self.0.push_back(Reading { at: now, hits });
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIES: SeriesId = SeriesId::OTHER;

    fn read(history: &mut RateHistory, millis: u64, admitted: u64) -> Option<f64> {
        let hits = HashMap::from([(SERIES, HitCounts { admitted, ..HitCounts::default() })]);
        history.read(Timestamp::from_millis(millis), hits).map(|rates| rates.of(SERIES)[0])
    }

    #[test]
    fn rates_are_over_the_last_seconds_and_absent_before_two_readings() {
        let mut history = RateHistory::default();
        assert_eq!(read(&mut history, 10_000, 100), None);
        assert_eq!(read(&mut history, 10_400, 104), None);
        assert_eq!(read(&mut history, 11_000, 110), Some(10.0));
        assert_eq!(read(&mut history, 20_000, 380), Some(30.0), "since 11 s");
        assert_eq!(read(&mut history, 60_000, 400), None, "all readings are too old");
    }

    /// The sum overflowed after a call with 2^64 - 15 hits.
    #[test]
    fn sums_of_hits_saturate() {
        let most = HitCounts { admitted: u64::MAX, denied: u64::MAX - 1, shadow_denied: 1 };
        let sum = HitCounts { admitted: u64::MAX, denied: u64::MAX, shadow_denied: 2 };
        assert_eq!(most.plus(HitCounts { admitted: 7, denied: 1, shadow_denied: 1 }), sum);
    }

    #[test]
    fn a_count_that_began_anew_is_counted_from_zero() {
        let mut history = RateHistory::default();
        assert_eq!(read(&mut history, 0, 1_000), None);
        assert_eq!(read(&mut history, 2_000, 10), Some(5.0));
    }
}
