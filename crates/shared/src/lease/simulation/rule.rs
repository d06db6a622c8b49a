//! Random rules: an algorithm, and the oracle's model of it.

use super::{
    oracle::{BERLIN_BILLING, BERLIN_MONTHS, Model},
    rng::Rng,
};
use std::num::NonZeroU32;
use tidegate_core::{
    algorithm::{
        Algorithm, Anchor, Calendar, FixedWindow, LeakyBucket, Period, Rate, Schedule, SlidingLog,
        SlidingWindow, SubWindows, TokenBucket, Zone,
    },
    limit::Window,
};

/// The start of every world: shortly before the end of a month in Berlin.
pub(super) const START: u64 = BERLIN_MONTHS[5] - 700_000_000;

#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) algorithm: Algorithm,
    pub(super) model: Model,
}

impl Rule {
    /// Every algorithm, with `limit` hits in `nanos`.
    pub(super) fn each(limit: u32, nanos: u64) -> Vec<Self> {
        (0..KINDS).map(|kind| Self::of(kind, limit, nanos, 8, limit)).collect()
    }

    /// A random rule of one of these kinds.
    pub(super) fn random(rng: &mut Rng, kinds: &[u64]) -> Self {
        let nanos = rng.pick(&[200_000_000, 250_000_003, 300_000_000, 500_000_000, 1_000_000_000]);
        let limit = rng.between(3, 60) as u32;
        // No faster than the limit in 200 ms, the length of a lease.
        let hits = rng.between(1, u64::from(limit) * nanos / 200_000_000) as u32;
        Self::of(rng.pick(kinds), limit, nanos, rng.pick(&[2, 3, 8]), hits)
    }

    pub(super) fn is_from_first_hit(&self) -> bool {
        matches!(self.model, Model::FirstHitWindow { .. })
    }

    fn of(kind: u64, limit: u32, nanos: u64, precision: u8, hits: u32) -> Self {
        let window = Window::from_nanos(nanos).expect("a window");
        let (wide, rate) = (u64::from(limit), NonZeroU32::new(hits).expect("at least one"));
        let tokens = u64::from(hits);
        let fixed = |schedule| Algorithm::FixedWindow(FixedWindow { limit, schedule });
        let (algorithm, model) = match kind {
            0 => (
                Algorithm::SlidingWindow(SlidingWindow { limit, window }),
                Model::SlidingWindow { limit: wide, window: nanos, precision: 1 },
            ),
            1 => (
                Algorithm::SubWindows(SubWindows::new(limit, window, precision)),
                Model::SlidingWindow { limit: wide, window: nanos, precision: u64::from(precision) },
            ),
            2 => (
                Algorithm::SlidingLog(SlidingLog { limit, window }),
                Model::SlidingLog { limit: wide, window: nanos },
            ),
            3 => (fixed(Schedule::Clock(window)), Model::FixedWindow { limit: wide, window: nanos }),
            4 => (fixed(Schedule::FirstHit(window)), Model::FirstHitWindow { limit: wide, window: nanos }),
            5 => {
                let berlin = Zone::named("Europe/Berlin").expect("a zone");
                let (anchor, ends) = match limit % 2 {
                    0 => ("1", &BERLIN_MONTHS[..]),
                    _ => ("31 02:30", &BERLIN_BILLING[..]),
                };
                let anchor = Anchor::parse(Period::Month, anchor).expect("a day");
                let months = Schedule::Calendar(Calendar::anchored(Period::Month, anchor, berlin));
                (fixed(months), Model::CalendarWindow { limit: wide, ends })
            }
            6 => (
                Algorithm::TokenBucket(TokenBucket::greedy(limit, rate, window)),
                Model::GreedyBucket { size: wide, tokens, interval: nanos },
            ),
            7 => (
                Algorithm::TokenBucket(TokenBucket::by_intervals(limit, rate, window)),
                Model::IntervalBucket { size: wide, tokens, interval: nanos },
            ),
            _ => (
                Algorithm::LeakyBucket(LeakyBucket {
                    burst: limit,
                    rate: Rate::new(rate, window),
                    queue: None,
                }),
                Model::LeakyBucket { burst: wide, hits: tokens, per: nanos },
            ),
        };
        Self { algorithm, model }
    }
}

const KINDS: u64 = 9;

/// Every kind; more often those that leases can harm most.
pub(super) const ALL: &[u64] = &[0, 0, 1, 1, 2, 2, 3, 4, 4, 4, 5, 6, 7, 8];
pub(super) const FROM_FIRST_HIT: &[u64] = &[4];
