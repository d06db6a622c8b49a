//! Limits, and a naive count of what they admit. Imports nothing of the code under test.

use super::client::SECOND;
use crate::lease::simulation::rng::Rng;
use std::collections::VecDeque;

/// A limit.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    /// Text of the limit in a rule file.
    pub(super) rule: String,
    /// Hits per second in the long run.
    pub(super) rate: f64,
    bound: Bound,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    /// No more than `burst` and `hits` in every `nanos`, in any interval.
    Bucket { burst: u64, hits: u64, nanos: u64 },
    /// No more than `hits` in any interval of `nanos`.
    Log { hits: u64, nanos: u64 },
    /// No more than `hits` from one multiple of `nanos` to the next.
    Fixed { hits: u64, nanos: u64 },
}

/// What was admitted.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    bound: Bound,
    /// In a bucket: hits times nanoseconds that have not drained.
    level: u128,
    /// Hits that count, by their times.
    hits: VecDeque<(u64, u64)>,
    count: u64,
    at: u64,
}

impl Limit {
    pub(super) fn random(rng: &mut Rng, kinds: &[u64]) -> Self {
        let rate = rng.pick(&[2, 10, 40, 100, 300, 1_000]);
        match rng.pick(kinds) {
            0 => Self::bucket("token_bucket", rate, rate * rng.pick(&[1, 1, 2, 4]) / rng.pick(&[1, 1, 2])),
            1 => Self::bucket("leaky_bucket", rate, rate),
            2 => Self::log(rate * 10, 10),
            3 => Self::fixed(rate * 20, 20),
            4 => Self::fixed(rate * 60, 1_200),
            // A window begins 51 s after a world does.
            6 => Self::fixed(rate * 30, 643),
            // It takes more than ten minutes to fill.
            7 => Self::bucket("token_bucket", rate.div_ceil(20), rate * 50),
            8 => Self::log(rate * 10, 1_200),
            // A minute with few hits.
            9 => Self::log(rate.min(15) * 60, 60),
            10 => Self::fixed(rate.min(15) * 60, 60),
            // A log in a store has at most this many hits.
            11 => Self::log((rate * 20).clamp(1_000, 10_000), 40),
            12 => Self::log(rate, 1),
            _ => Self::log(rate * 30, 1_200),
        }
    }

    pub(super) fn bucket(algorithm: &str, rate: u64, burst: u64) -> Self {
        let burst = burst.max(1);
        let size = if algorithm == "token_bucket" { "size" } else { "burst" };
        let rule =
            format!("algorithm: {algorithm}, {size}: {burst}, unit: second, requests_per_unit: {rate}");
        let bound = Bound::Bucket { burst, hits: rate, nanos: SECOND };
        Self { rule, rate: rate as f64, bound }
    }

    /// A token bucket of `size` tokens, with `hits` in `secs` seconds.
    pub(super) fn bucket_of(hits: u64, secs: u64, size: u64) -> Self {
        let rule = format!("algorithm: token_bucket, size: {size}, per: {secs}s, requests_per_unit: {hits}");
        let bound = Bound::Bucket { burst: size, hits, nanos: secs * SECOND };
        Self { rule, rate: hits as f64 / secs as f64, bound }
    }

    pub(super) fn log(hits: u64, secs: u64) -> Self {
        let rule = format!("algorithm: sliding_log, per: {secs}s, requests_per_unit: {hits}");
        Self { rule, rate: hits as f64 / secs as f64, bound: Bound::Log { hits, nanos: secs * SECOND } }
    }

    /// Counted as a log, because the sub-windows may overlook one part of `precision`.
    pub(super) fn sub_windows(hits: u64, secs: u64, precision: u64) -> Self {
        let rule = format!(
            "algorithm: sliding_window, precision: {precision}, per: {secs}s, requests_per_unit: {hits}"
        );
        Self { rule, ..Self::log(hits, secs) }
    }

    pub(super) fn fixed(hits: u64, secs: u64) -> Self {
        let rule = format!("algorithm: fixed_window, per: {secs}s, requests_per_unit: {hits}");
        Self { rule, rate: hits as f64 / secs as f64, bound: Bound::Fixed { hits, nanos: secs * SECOND } }
    }

    /// Whether it is divided by slices, so that hits count when they are reported.
    pub(super) fn counts_reports(&self) -> bool {
        matches!(
            self.bound,
            Bound::Log { hits, nanos } | Bound::Fixed { hits, nanos }
                if nanos >= 600 * SECOND || hits < 1_000 && nanos >= 30 * SECOND
        )
    }

    /// A rule file with this limit.
    pub(super) fn rules(&self) -> String {
        format!("{{ domain: d, descriptors: [{{ key: a, rate_limit: {{ {} }} }}] }}", self.rule)
    }

    pub(super) fn tally(&self) -> Tally {
        Tally { bound: self.bound, level: 0, hits: VecDeque::new(), count: 0, at: 0 }
    }
}

impl Tally {
    /// Counts hits that were admitted. Returns the hits beyond the limit.
    pub(super) fn admit(&mut self, hits: u64, now: u64) -> u64 {
        match self.bound {
            Bound::Bucket { burst, hits: rate, nanos } => {
                let drained = u128::from(rate) * u128::from(now - self.at.min(now));
                self.level = self.level.saturating_sub(drained) + u128::from(hits) * u128::from(nanos);
                self.at = now;
                let most = u128::from(burst) * u128::from(nanos);
                self.level.saturating_sub(most).div_ceil(u128::from(nanos)) as u64
            }
            Bound::Log { hits: limit, nanos } => {
                self.hits.push_back((now, hits));
                self.count += hits;
                while let Some((_, old)) = self.hits.pop_front_if(|(at, _)| *at + nanos <= now) {
                    self.count -= old;
                }
                self.count.saturating_sub(limit)
            }
            Bound::Fixed { hits: limit, nanos } => {
                if now / nanos != self.at / nanos {
                    self.count = 0;
                }
                (self.count, self.at) = (self.count + hits, now);
                self.count.saturating_sub(limit)
            }
        }
    }
}
