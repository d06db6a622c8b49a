//! The wait before the next attempt: exponential with jitter, so that the servers of one control plane do not connect at
//! once when it returns.

use std::time::Duration;

/// Waits of consecutive failures.
#[derive(Debug)]
pub(super) struct Backoff {
    least: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    pub(super) fn new((least, most): (Duration, Duration)) -> Self {
        Self { least, most: most.max(least), failures: 0 }
    }

    /// Returns the wait after one more failure: between half and all of `least · 2^failures`, at most `most`; `random` chooses.
    pub(super) fn next(&mut self, random: u32) -> Duration {
        let full = self.least.saturating_mul(1 << self.failures.min(20)).min(self.most);
        self.failures += 1;
        let half = full / 2;
        half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
    }

    /// Forgets the failures.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A random number; 0 if the operating system has none.
pub(super) fn random() -> u32 {
    getrandom::u32().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_maximum_and_has_jitter() {
        let mut backoff = Backoff::new((Duration::from_secs(1), Duration::from_secs(5)));
        let longest: Vec<u64> = (0..5).map(|_| backoff.next(u32::MAX).as_millis() as u64).collect();
        assert_eq!(longest, [1_000, 2_000, 4_000, 5_000, 5_000]);
        backoff.reset();
        assert_eq!(backoff.next(0), Duration::from_millis(500));
        (0..100).for_each(|_| _ = backoff.next(0));
        assert_eq!(backoff.next(0), Duration::from_millis(2_500));
    }
}
