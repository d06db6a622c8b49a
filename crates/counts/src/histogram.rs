//! Histograms of durations.

use crate::thread_index::{PerThread, ThreadIndex};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Maximum number of bounds of a histogram.
const BOUNDS_MAX: usize = 31;

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

    /// Bounds in microseconds. Panics if [`Self::new`] refuses them.
    pub fn of_micros<const BOUNDS: usize>(micros: [u64; BOUNDS]) -> Self {
        Self::new(micros.map(Duration::from_micros)).expect("1 to 31 ascending bounds")
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
        Self::of_micros([10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000])
    }
}

/// Counts durations by bucket.
pub struct Histogram {
    bounds: DurationBounds,
    cells: PerThread<Cells>,
}

#[derive(Default)]
struct Cells {
    buckets: [AtomicU64; BOUNDS_MAX + 1],
    nanos: AtomicU64,
}

/// The sums of a histogram over all threads.
#[derive(Clone, PartialEq, Debug)]
pub struct HistogramSums {
    /// Upper bounds of the buckets, in seconds.
    pub bounds: Vec<f64>,
    /// Numbers of durations within each bucket; one more than there are bounds.
    pub buckets: Vec<u64>,
    /// Sum of all durations, in seconds.
    pub sum: f64,
}

impl HistogramSums {
    /// The durations of both histograms, which have the same bounds.
    pub fn plus(mut self, other: &Self) -> Self {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(count, other)| *count += other);
        self.sum += other.sum;
        self
    }

    /// The durations since an earlier reading of the same histogram.
    pub fn since(mut self, earlier: &Self) -> Self {
        let buckets = self.buckets.iter_mut().zip(&earlier.buckets);
        // Threads add while the sums are read.
        buckets.for_each(|(count, earlier)| *count = count.saturating_sub(*earlier));
        self.sum = (self.sum - earlier.sum).max(0.0);
        self
    }
}

impl Histogram {
    /// A histogram with these bounds.
    pub fn new(bounds: DurationBounds) -> Self {
        Self { bounds, cells: PerThread::default() }
    }

    /// Counts `count` events of this duration.
    #[inline]
    pub fn add(&self, duration: Duration, count: u64) {
        let thread = ThreadIndex::current();
        let cells = self.cells.of(thread);
        thread.add(&cells.buckets[self.bounds.bucket(duration)], count);
        thread.add(&cells.nanos, (duration.as_nanos() as u64).wrapping_mul(count));
    }

    /// The sums over all threads.
    pub fn sums(&self) -> HistogramSums {
        let sum = |cell: &dyn Fn(&Cells) -> &AtomicU64| -> u64 {
            self.cells.iter().map(|cells| cell(cells).load(Ordering::Relaxed)).sum()
        };
        let bounds: Vec<f64> = self.bounds.in_seconds().collect();
        let buckets = (0..=bounds.len()).map(|bucket| sum(&|cells| &cells.buckets[bucket])).collect();
        let nanos = sum(&|cells| &cells.nanos);
        HistogramSums { bounds, buckets, sum: Duration::from_nanos(nanos).as_secs_f64() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn bounds_are_inclusive() {
        let histogram = Histogram::new(DurationBounds::of_micros([10, 20]));
        histogram.add(micros(10), 3);
        histogram.add(micros(11), 2);
        histogram.add(Duration::from_secs(60), 1);
        let sums = histogram.sums();
        assert_eq!((sums.buckets, sums.bounds), (vec![3, 2, 1], vec![1e-5, 2e-5]));
        assert!((sums.sum - 60.000_052).abs() < 1e-9);
    }

    #[test]
    fn sums_are_added_and_subtracted_by_bucket() {
        let histogram = Histogram::new(DurationBounds::of_micros([10, 20]));
        histogram.add(micros(10), 3);
        let earlier = histogram.sums();
        histogram.add(micros(30), 2);
        let since = histogram.sums().since(&earlier);
        assert_eq!(since.buckets, [0, 0, 2]);
        assert!((since.sum - 0.000_06).abs() < 1e-9);
        assert_eq!(since.plus(&earlier), histogram.sums());
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
