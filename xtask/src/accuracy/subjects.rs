//! The subjects: every algorithm of Tidegate, and the plain estimate of two buckets for comparison.

use super::{LIMIT, WINDOW_NANOS};
use std::num::NonZeroU32;
use tidegate_core::{
    algorithm::{
        Algorithm, FixedWindow, LeakyBucket, Rate, Schedule, SlidingLog, SlidingWindow, State, SubWindows,
        TokenBucket,
    },
    limit::{Timestamp, Window},
};

/// An algorithm with the parameters that are measured.
pub(super) struct Subject {
    pub(super) name: &'static str,
    /// The most hits in any true window, where it is known.
    pub(super) bound: Option<u32>,
    /// Whether its used hits are a count of the last window.
    pub(super) counts_a_window: bool,
    /// Absent for a subject that is not Tidegate's: two weighted buckets that count every request, including denied requests.
    algorithm: Option<Algorithm>,
}

/// The decision on a request.
pub(super) struct Outcome {
    pub(super) is_admitted: bool,
    /// Whether its hit is counted.
    pub(super) is_counted: bool,
    /// Hits used before it.
    pub(super) used: u64,
}

pub(super) fn subjects() -> impl Iterator<Item = Subject> {
    let (limit, window) = (LIMIT, Window::from_nanos(WINDOW_NANOS).expect("a minute is a good window"));
    let rate = NonZeroU32::new(LIMIT).expect("not zero");
    let log = Algorithm::SlidingLog(SlidingLog { limit, window });
    let sliding = Algorithm::SlidingWindow(SlidingWindow { limit, window });
    let parts = |precision| Algorithm::SubWindows(SubWindows::new(limit, window, precision));
    let fixed = |schedule| Algorithm::FixedWindow(FixedWindow { limit, schedule });
    let greedy = Algorithm::TokenBucket(TokenBucket::greedy(limit, rate, window));
    let by_intervals = Algorithm::TokenBucket(TokenBucket::by_intervals(limit, rate, window));
    let leaky = LeakyBucket { burst: limit, rate: Rate::new(rate, window), queue: None };
    let ours = [
        ("sliding_log", limit, true, log),
        ("sliding_window, precision 60", limit + limit / 60, true, parts(60)),
        ("sliding_window, precision 8", limit + limit / 8, true, parts(8)),
        ("sliding_window, precision 2", limit + limit / 2, true, parts(2)),
        ("sliding_window", 2 * limit, true, sliding),
        ("fixed_window", 2 * limit, true, fixed(Schedule::Clock(window))),
        ("fixed_window, first_hit", 2 * limit, true, fixed(Schedule::FirstHit(window))),
        ("token_bucket", 2 * limit - 1, false, greedy),
        ("token_bucket, by intervals", 2 * limit, false, by_intervals),
        ("leaky_bucket", 2 * limit - 1, false, Algorithm::LeakyBucket(leaky)),
    ];
    let ours = ours.map(|(name, bound, counts_a_window, algorithm)| Subject {
        name,
        bound: Some(bound),
        counts_a_window,
        algorithm: Some(algorithm),
    });
    let plain = Subject { name: "plain two buckets", bound: None, counts_a_window: true, algorithm: None };
    ours.into_iter().chain([plain])
}

impl Subject {
    /// A counter without hits: decides requests for one hit each, at the given times.
    pub(super) fn counter(&self) -> Box<dyn FnMut(u64) -> Outcome + '_> {
        let Some(algorithm) = &self.algorithm else { return Box::new(plain()) };
        let mut state = State::EMPTY;
        Box::new(move |now| {
            let now = Timestamp::from_nanos(now);
            let used = algorithm.used(&state, now);
            let is_admitted = algorithm.remaining(&state, now) >= 1;
            if is_admitted {
                state = algorithm.add(std::mem::take(&mut state), 1, now);
            }
            Outcome { is_admitted, is_counted: is_admitted, used }
        })
    }
}

fn plain() -> impl FnMut(u64) -> Outcome {
    // Number of the present window, the requests in it, and the requests in the window before.
    let (mut window, mut current, mut previous) = (0, 0, 0);
    move |now| {
        if now / WINDOW_NANOS != window {
            previous = if now / WINDOW_NANOS == window + 1 { current } else { 0 };
            (window, current) = (now / WINDOW_NANOS, 0);
        }
        let used = current + previous * (WINDOW_NANOS - now % WINDOW_NANOS) / WINDOW_NANOS;
        current += 1;
        Outcome { is_admitted: used < u64::from(LIMIT), is_counted: true, used }
    }
}
