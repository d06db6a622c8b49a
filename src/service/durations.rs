//! Histograms of durations: how long responses took by code, and how long queued requests waited.

use super::lines::{LINES, ThreadLine};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tidegate_core::limit::Code;

/// Maximum number of bounds of a histogram.
pub const BOUNDS_MAX: usize = 31;

/// Upper bounds of a histogram's buckets, ascending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DurationBounds(Box<[Duration]>);

/// The bounds of a histogram cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BoundsError {
    /// Too few or too many.
    #[error("{0} bounds; write 1 to {BOUNDS_MAX}")]
    Number(usize),
    /// Not ascending, or zero.
    #[error("{0:?} is not above the bound before it; write ascending durations above zero")]
    Order(Duration),
}

impl DurationBounds {
    /// Checks the bounds.
    pub fn new(bounds: impl Into<Box<[Duration]>>) -> Result<Self, BoundsError> {
        let bounds = bounds.into();
        if !(1..=BOUNDS_MAX).contains(&bounds.len()) {
            return Err(BoundsError::Number(bounds.len()));
        }
        let before = std::iter::once(&Duration::ZERO).chain(&bounds);
        match bounds.iter().zip(before).find(|(bound, before)| bound <= before) {
            Some((bound, _)) => Err(BoundsError::Order(*bound)),
            None => Ok(Self(bounds)),
        }
    }

    fn of_micros(micros: &[u64]) -> Self {
        Self(micros.iter().map(|micros| Duration::from_micros(*micros)).collect())
    }

    /// The bounds of queue waits: 1 ms to 10 s.
    fn of_queue_waits() -> Self {
        Self::of_micros(&[
            1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
            5_000_000, 10_000_000,
        ])
    }

    /// The bounds in seconds.
    pub fn in_seconds(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(Duration::as_secs_f64)
    }

    /// The bucket that a duration belongs to; the last has no bound.
    #[inline]
    fn bucket(&self, duration: Duration) -> usize {
        self.0.iter().position(|bound| duration <= *bound).unwrap_or(self.0.len())
    }
}

impl Default for DurationBounds {
    /// 10 µs to 100 ms.
    fn default() -> Self {
        Self::of_micros(&[10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000])
    }
}

/// The counts of one histogram and one thread.
#[derive(Default)]
struct Cells {
    buckets: [AtomicU64; BOUNDS_MAX + 1],
    nanos: AtomicU64,
}

impl Cells {
    #[inline]
    fn add(&self, thread: ThreadLine, bucket: usize, duration: Duration, count: u64) {
        thread.add(&self.buckets[bucket], count);
        thread.add(&self.nanos, (duration.as_nanos() as u64).wrapping_mul(count));
    }
}

/// The histograms of one thread.
#[derive(Default)]
#[repr(align(128))]
struct Line {
    admitted: Cells,
    denied: Cells,
    queue_waits: Cells,
}

/// Numbers of responses by code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CodeCounts {
    /// Number of OK.
    pub admitted: u32,
    /// Number of OVER_LIMIT.
    pub denied: u32,
}

/// Histograms of durations.
pub struct Durations {
    bounds: DurationBounds,
    queue_wait_bounds: DurationBounds,
    lines: Box<[Line]>,
}

/// The sums of one histogram.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    /// Upper bounds of the buckets, in seconds.
    pub bounds: Vec<f64>,
    /// Numbers of durations within each bucket; one more than there are bounds.
    pub buckets: Vec<u64>,
    /// Sum of all durations, in seconds.
    pub sum: f64,
}

impl Default for Durations {
    fn default() -> Self {
        Self::new(DurationBounds::default())
    }
}

impl Durations {
    /// Histograms with these bounds for responses.
    pub fn new(bounds: DurationBounds) -> Self {
        let lines = (0..LINES).map(|_| Line::default()).collect();
        Self { bounds, queue_wait_bounds: DurationBounds::of_queue_waits(), lines }
    }

    /// Counts responses that took equally long.
    #[inline]
    pub(super) fn count_responses(&self, duration: Duration, counts: CodeCounts) {
        let thread = ThreadLine::current();
        let (line, bucket) = (thread.of(&self.lines), self.bounds.bucket(duration));
        for (cells, count) in [(&line.admitted, counts.admitted), (&line.denied, counts.denied)] {
            if count > 0 {
                cells.add(thread, bucket, duration, count.into());
            }
        }
    }

    /// Counts the wait of a queued request that was released.
    pub(super) fn count_queue_wait(&self, wait: Duration) {
        let thread = ThreadLine::current();
        thread.of(&self.lines).queue_waits.add(thread, self.queue_wait_bounds.bucket(wait), wait, 1);
    }

    /// The durations of responses with this code, from the request's bytes read to the response's bytes written.
    pub fn responses(&self, code: Code) -> Histogram {
        self.sum(&self.bounds, |line| match code {
            Code::Ok => &line.admitted,
            Code::OverLimit => &line.denied,
        })
    }

    /// The waits of queued requests that were released.
    pub fn queue_waits(&self) -> Histogram {
        self.sum(&self.queue_wait_bounds, |line| &line.queue_waits)
    }

    fn sum(&self, bounds: &DurationBounds, cells: impl Fn(&Line) -> &Cells) -> Histogram {
        let sum =
            |count: &dyn Fn(&Cells) -> u64| self.lines.iter().map(|line| count(cells(line))).sum::<u64>();
        let bounds: Vec<f64> = bounds.in_seconds().collect();
        let bucket = |bucket: usize| sum(&|cells| cells.buckets[bucket].load(Ordering::Relaxed));
        let buckets = (0..=bounds.len()).map(bucket).collect();
        let nanos = sum(&|cells| cells.nanos.load(Ordering::Relaxed));
        Histogram { bounds, buckets, sum: Duration::from_nanos(nanos).as_secs_f64() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn bounds_are_inclusive_and_counts_are_by_code() {
        let durations = Durations::new(DurationBounds::new([micros(10), micros(20)]).expect("valid"));
        durations.count_responses(micros(10), CodeCounts { admitted: 3, denied: 1 });
        durations.count_responses(micros(11), CodeCounts { admitted: 2, denied: 0 });
        durations.count_responses(micros(21), CodeCounts { admitted: 0, denied: 4 });
        let admitted = durations.responses(Code::Ok);
        assert_eq!((admitted.buckets, admitted.bounds), (vec![3, 2, 0], vec![1e-5, 2e-5]));
        assert!((admitted.sum - 52e-6).abs() < 1e-12);
        assert_eq!(durations.responses(Code::OverLimit).buckets, [1, 0, 4]);
        assert_eq!(durations.queue_waits().buckets.iter().sum::<u64>(), 0);
    }

    #[test]
    fn queue_waits_have_bounds_of_their_own() {
        let durations = Durations::default();
        durations.count_queue_wait(Duration::from_millis(300));
        durations.count_queue_wait(Duration::from_secs(60));
        let waits = durations.queue_waits();
        let found: Vec<_> =
            waits.bounds.iter().zip(&waits.buckets).filter(|(_, count)| **count > 0).collect();
        assert_eq!(found, [(&0.5, &1)]);
        assert_eq!((waits.buckets.last(), waits.sum), (Some(&1), 60.3));
    }

    #[test]
    fn bounds_that_do_not_ascend_are_refused() {
        for (bounds, error) in [
            (vec![], BoundsError::Number(0)),
            (vec![micros(1); 40], BoundsError::Number(40)),
            (vec![micros(2), micros(2)], BoundsError::Order(micros(2))),
            (vec![Duration::ZERO], BoundsError::Order(Duration::ZERO)),
        ] {
            assert_eq!(DurationBounds::new(bounds), Err(error));
        }
    }
}
