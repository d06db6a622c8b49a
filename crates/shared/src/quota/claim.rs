//! The demand of a client for a bucket, from its reports.

use super::terms::millihits;

const SECOND: u64 = 1_000_000_000;

/// Requests of a client for a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Requests that it admitted since its last report.
    pub allowed: u64,
    /// Requests that it denied.
    pub denied: u64,
    /// Whether the client has just made the bucket. It then may have no assignment: it ignores an assignment that was sent before, if an
    /// abandonment made it forget the bucket meanwhile.
    pub is_first: bool,
}

impl Usage {
    /// Whether there were no requests.
    pub fn is_idle(self) -> bool {
        self.allowed == 0 && self.denied == 0
    }
}

/// Demand, in thousandths of a request per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Claim {
    /// Average over reports that differ only by chance.
    pub(super) average: u64,
    /// The rate to assign for it.
    pub(super) wanted: u64,
}

impl Claim {
    /// The claim of a client whose demand is not known yet.
    pub(super) fn guess(wanted: u64) -> Self {
        Self { average: 0, wanted }
    }

    /// Takes a report about the last `elapsed` nanoseconds.
    pub(super) fn measure(&mut self, usage: Usage, elapsed: u64) {
        let count = usage.allowed.saturating_add(usage.denied);
        let measured = millihits(count, elapsed.max(SECOND / 10));
        // The deviation of a Poisson process, as a rate.
        let noise = millihits(count.isqrt() + 1, elapsed.max(SECOND / 10));
        let rises = measured > self.average.saturating_add(noise.saturating_mul(2));
        self.average = if measured.abs_diff(self.average) <= noise.saturating_mul(2) {
            (u128::from(self.average) * 3 + u128::from(measured)).div_ceil(4) as u64
        } else {
            measured
        };
        // If a rise has many denials, demand may have risen in the middle of the reported interval.
        let is_short = rises && usage.denied > usage.allowed / 4 + 2;
        self.wanted = match is_short {
            true => measured.saturating_mul(2),
            false => self.average.saturating_add(noise / 16),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_that_varies_by_chance_is_averaged_and_a_change_taken_at_once() {
        let mut claim = Claim::default();
        claim.measure(Usage { allowed: 500, denied: 0, is_first: false }, 5 * SECOND);
        assert_eq!(claim.average, 100_000);
        claim.measure(Usage { allowed: 520, denied: 0, is_first: false }, 5 * SECOND);
        assert_eq!(claim.average, 101_000);
        claim.measure(Usage { allowed: 50, denied: 0, is_first: false }, 5 * SECOND);
        assert_eq!(claim.average, 10_000);
        claim.measure(Usage { allowed: 50, denied: 400, is_first: false }, 5 * SECOND);
        assert_eq!(claim.wanted, 180_000);
        claim.measure(Usage { allowed: u64::MAX, denied: u64::MAX, is_first: false }, 0);
    }
}
