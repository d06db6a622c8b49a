//! Counts and latencies of a run.

use crate::outcome::{Failure, Outcome};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Longer than any run waits for a response.
const LONGEST_NANOS: u64 = 600_000_000_000;

/// Counts and latencies of the measured requests.
pub struct Tally {
    /// Number of admitted requests.
    pub ok: u64,
    /// Number of denied requests.
    pub over_limit: u64,
    /// Numbers of requests without a verdict.
    pub failures: BTreeMap<Failure, u64>,
    /// Latencies of decided requests in nanoseconds, with three significant digits.
    latency: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let latency = Histogram::new_with_max(LONGEST_NANOS, 3).expect("the bounds are good");
        Self { ok: 0, over_limit: 0, failures: BTreeMap::new(), latency }
    }

    pub(crate) fn record(&mut self, outcome: Outcome, latency: u64) {
        match outcome {
            Outcome::Ok => self.ok += 1,
            Outcome::OverLimit => self.over_limit += 1,
            // Failures are often fast; their latency would improve the percentiles.
            Outcome::Failed(failure) => return self.fail(failure, 1),
        }
        self.latency.saturating_record(latency);
    }

    pub(crate) fn fail(&mut self, failure: Failure, count: u64) {
        if count > 0 {
            *self.failures.entry(failure).or_default() += count;
        }
    }

    /// Number of decided requests.
    pub fn decided(&self) -> u64 {
        self.ok + self.over_limit
    }

    /// Number of requests without a verdict.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Number of finished requests, decided or failed.
    pub(crate) fn finished(&self) -> u64 {
        self.decided() + self.failed()
    }

    /// Latency in microseconds that `percent` of the decided requests did not exceed.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        // The bounds of a histogram bucket can exceed the largest recorded value.
        self.latency.value_at_percentile(percent).min(self.latency.max()) as f64 / 1e3
    }

    pub(crate) fn mean_us(&self) -> f64 {
        self.latency.mean() / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_recorded_latencies() {
        let mut tally = Tally::new();
        for microseconds in 1..=10_000 {
            tally.record(Outcome::Ok, microseconds * 1_000);
        }
        for (percent, expected) in [(50.0, 5_000.0), (90.0, 9_000.0), (99.0, 9_900.0), (99.9, 9_990.0)] {
            let measured = tally.percentile_us(percent);
            assert!((measured / expected - 1.0_f64).abs() < 0.001, "p{percent}: {measured}");
        }
        assert!((tally.percentile_us(100.0) / 10_000.0 - 1.0).abs() < 0.001);
        assert!((tally.mean_us() / 5_000.5 - 1.0).abs() < 0.001);
    }

    #[test]
    fn a_failure_is_counted_by_its_kind_and_not_timed() {
        let mut tally = Tally::new();
        tally.record(Outcome::OverLimit, 1_000_000);
        tally.record(Outcome::Failed(Failure::Status(14)), 1);
        tally.record(Outcome::Failed(Failure::Status(14)), 1);
        tally.fail(Failure::NoAnswer, 0);
        assert_eq!(tally.failures, BTreeMap::from([(Failure::Status(14), 2)]));
        assert_eq!((tally.decided(), tally.failed(), tally.finished()), (1, 2, 3));
        assert!(tally.percentile_us(0.0) > 999.0);
    }
}
