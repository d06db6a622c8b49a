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
    name: &'static str,
    /// The most hits in any true window, where it is known.
    bound: Option<u32>,
    /// Whether its used hits are a count of the last window.
    counts_a_window: bool,
    kind: Kind,
}

enum Kind {
    Ours(Algorithm),
    /// Two weighted buckets that count every request, denied ones too.
    Plain,
}

/// State of a subject for one source.
pub(super) enum Memory {
    Ours(State),
    Plain(Plain),
}

/// Number of the present window, and the requests in it and in the one before it.
#[derive(Default)]
pub(super) struct Plain {
    window: u64,
    current: u64,
    previous: u64,
}

/// The decision on a request.
pub(super) struct Outcome {
    pub(super) is_admitted: bool,
    /// Whether its hit is counted.
    pub(super) is_counted: bool,
    /// Hits used before it.
    pub(super) used: u64,
}

impl Subject {
    pub(super) fn all() -> Vec<Self> {
        let (limit, window) = (LIMIT, Window::from_nanos(WINDOW_NANOS).expect("a minute is a good window"));
        let rate = NonZeroU32::new(LIMIT).expect("not zero");
        let fixed = |schedule| Algorithm::FixedWindow(FixedWindow { limit, schedule });
        let leaky = LeakyBucket { burst: limit, rate: Rate::new(rate, window), queue: None };
        let ours = |name, bound, counts_a_window, algorithm| Self {
            name,
            bound: Some(bound),
            counts_a_window,
            kind: Kind::Ours(algorithm),
        };
        let parts = |precision| Algorithm::SubWindows(SubWindows::new(limit, window, precision));
        vec![
            ours("sliding_log", limit, true, Algorithm::SlidingLog(SlidingLog { limit, window })),
            ours("sliding_window, precision 60", limit + limit / 60, true, parts(60)),
            ours("sliding_window, precision 8", limit + limit / 8, true, parts(8)),
            ours("sliding_window, precision 2", limit + limit / 2, true, parts(2)),
            ours(
                "sliding_window",
                2 * limit,
                true,
                Algorithm::SlidingWindow(SlidingWindow { limit, window }),
            ),
            ours("fixed_window", 2 * limit, true, fixed(Schedule::Clock(window))),
            ours("fixed_window, first_hit", 2 * limit, true, fixed(Schedule::FirstHit(window))),
            ours(
                "token_bucket",
                2 * limit - 1,
                false,
                Algorithm::TokenBucket(TokenBucket::greedy(limit, rate, window)),
            ),
            ours(
                "token_bucket, by intervals",
                2 * limit,
                false,
                Algorithm::TokenBucket(TokenBucket::by_intervals(limit, rate, window)),
            ),
            ours("leaky_bucket", 2 * limit - 1, false, Algorithm::LeakyBucket(leaky)),
            Self { name: "plain two buckets", bound: None, counts_a_window: true, kind: Kind::Plain },
        ]
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn bound(&self) -> Option<u32> {
        self.bound
    }

    pub(super) fn counts_a_window(&self) -> bool {
        self.counts_a_window
    }

    /// State of a source without requests.
    pub(super) fn initial(&self) -> Memory {
        match self.kind {
            Kind::Ours(_) => Memory::Ours(State::EMPTY),
            Kind::Plain => Memory::Plain(Plain::default()),
        }
    }

    /// Decides a request for one hit.
    pub(super) fn decide(&self, memory: &mut Memory, now: u64) -> Outcome {
        match (&self.kind, memory) {
            (Kind::Ours(algorithm), Memory::Ours(state)) => {
                let now = Timestamp::from_nanos(now);
                let used = algorithm.used(state, now);
                let is_admitted = algorithm.remaining(state, now) >= 1;
                if is_admitted {
                    *state = algorithm.add(std::mem::take(state), 1, now);
                }
                Outcome { is_admitted, is_counted: is_admitted, used }
            }
            (Kind::Plain, Memory::Plain(plain)) => plain.decide(now),
            _ => unreachable!("a memory is used by the subject that made it"),
        }
    }
}

impl Plain {
    fn decide(&mut self, now: u64) -> Outcome {
        let window = now / WINDOW_NANOS;
        if window != self.window {
            self.previous = if window == self.window + 1 { self.current } else { 0 };
            (self.window, self.current) = (window, 0);
        }
        let inside = WINDOW_NANOS - now % WINDOW_NANOS;
        let used = self.current + self.previous * inside / WINDOW_NANOS;
        self.current += 1;
        Outcome { is_admitted: used < u64::from(LIMIT), is_counted: true, used }
    }
}
