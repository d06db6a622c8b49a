//! A counter and its oracle side by side, under any algorithm and any traffic.

use super::oracle::{BERLIN_BILLING, BERLIN_MONTHS, Model, Oracle};
use crate::{
    algorithm::{
        Algorithm, Anchor, Calendar, FixedWindow, LeakyBucket, Period, Rate, Schedule, SlidingLog,
        SlidingWindow, State, SubWindows, TokenBucket, Zone,
    },
    limit::{Reset, Timestamp, Window},
};
use proptest::prelude::*;
use std::{num::NonZeroU32, time::Duration};

/// Everything happens after this: 2024-01-10.
const START: u64 = 1_704_844_800_000_000_000;

/// An algorithm, and the oracle's model of it.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) algorithm: Algorithm,
    pub(super) model: Model,
    /// The gaps between requests lie around this length.
    pub(super) nanos: u64,
}

/// The algorithm of this number, with the parameters that it uses.
fn case_of(which: usize, limit: u32, nanos: u64, precision: u8, hits: u32) -> Case {
    // A bucket of thousands that gets one back in ten years would be full again after the end of time.
    let nanos = if which >= 6 { nanos.min(7 * 86_400_000_000_000) } else { nanos };
    let (length, rate) = (Window::from_nanos(nanos).unwrap(), NonZeroU32::new(hits).unwrap());
    let (wide, hits) = (u64::from(limit), u64::from(hits));
    let (algorithm, model) = match which {
        0 => (
            Algorithm::SlidingWindow(SlidingWindow { limit, window: length }),
            Model::SlidingWindow { limit: wide, window: nanos, precision: 1 },
        ),
        1 => (
            Algorithm::SubWindows(SubWindows::new(limit, length, precision)),
            Model::SlidingWindow { limit: wide, window: nanos, precision: u64::from(precision) },
        ),
        2 => (
            Algorithm::SlidingLog(SlidingLog { limit, window: length }),
            Model::SlidingLog { limit: wide, window: nanos },
        ),
        3 => (
            Algorithm::FixedWindow(FixedWindow::on_the_clock(limit, length)),
            Model::FixedWindow { limit: wide, window: nanos },
        ),
        4 => (
            Algorithm::FixedWindow(FixedWindow { limit, schedule: Schedule::FirstHit(length) }),
            Model::FirstHitWindow { limit: wide, window: nanos },
        ),
        5 => {
            let (anchor, ends) = match limit % 2 {
                0 => ("1", &BERLIN_MONTHS[..]),
                _ => ("31 02:30", &BERLIN_BILLING[..]),
            };
            let anchor = Anchor::parse(Period::Month, anchor).unwrap();
            let months = Calendar::anchored(Period::Month, anchor, Zone::named("Europe/Berlin").unwrap());
            let schedule = Schedule::Calendar(months);
            (
                Algorithm::FixedWindow(FixedWindow { limit, schedule }),
                Model::CalendarWindow { limit: wide, ends },
            )
        }
        6 => (
            Algorithm::TokenBucket(TokenBucket::greedy(limit, rate, length)),
            Model::GreedyBucket { size: wide, tokens: hits, interval: nanos },
        ),
        7 => (
            Algorithm::TokenBucket(TokenBucket::by_intervals(limit, rate, length)),
            Model::IntervalBucket { size: wide, tokens: hits, interval: nanos },
        ),
        _ => (
            Algorithm::LeakyBucket(LeakyBucket { burst: limit, rate: Rate::new(rate, length), queue: None }),
            Model::LeakyBucket { burst: wide, hits, per: nanos },
        ),
    };
    // Short enough that all gaps of a test are within the year of the oracle's calendar.
    let nanos = if which == 5 { 5 * 86_400_000_000_000 } else { nanos };
    Case { algorithm, model, nanos }
}

fn limit() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0..9u32, 1 => 50..3_000u32]
}

/// Any algorithm under two limits, everything else the same.
pub(super) fn case_under_two_limits() -> impl Strategy<Value = (Case, Case)> {
    let nanos = prop_oneof![
        Just(Window::NANOS_MIN),
        Just(1_000_003),
        Just(10_000_000_000),
        Just(7_000_000_001),
        Just(Window::NANOS_MAX)
    ];
    let precision = prop_oneof![Just(2), Just(3), Just(8), Just(60), 2..=255u8];
    (0..9usize, limit(), limit(), nanos, precision, 1..9u32).prop_map(
        |(which, a, b, nanos, precision, hits)| {
            (case_of(which, a, nanos, precision, hits), case_of(which, b, nanos, precision, hits))
        },
    )
}

pub(super) fn case() -> impl Strategy<Value = Case> {
    case_under_two_limits().prop_map(|(case, _)| case)
}

/// Something that happens to a counter.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Hits that are counted if they are admitted.
    Take(u64),
    /// Hits that are counted in any case.
    Charge(u64),
    GiveBack(u64),
}

/// Events, with the gap before each: a share of the length of the case, plus or minus a nanosecond.
pub(super) fn events() -> impl Strategy<Value = Vec<(f64, i8, Event)>> {
    let gap = prop_oneof![4 => Just(0.0), 8 => 0.0..0.4f64, 2 => Just(1.0), 1 => 0.9..2.5f64];
    let event = prop_oneof![
        8 => (1..5u64).prop_map(Event::Take),
        2 => (1..12u64).prop_map(Event::Charge),
        2 => (1..5u64).prop_map(Event::GiveBack),
    ];
    prop::collection::vec((gap, -1..=1i8, event), 1..24)
}

/// A counter, and its oracle, after some events.
#[derive(Clone)]
pub(super) struct Counter {
    pub(super) case: Case,
    pub(super) state: State,
    pub(super) oracle: Oracle,
    pub(super) now: u64,
}

impl Counter {
    pub(super) fn new(case: Case) -> Self {
        let oracle = Oracle::new(case.model.clone());
        Self { case, state: State::EMPTY, oracle, now: START }
    }

    pub(super) fn after(case: Case, events: &[(f64, i8, Event)]) -> Self {
        let mut counter = Self::new(case);
        for &(share, more, event) in events {
            counter.wait(share, more);
            counter.apply(event);
        }
        counter
    }

    pub(super) fn wait(&mut self, share: f64, more: i8) {
        let gap = (self.case.nanos as f64 * share) as u64;
        // Ten years are enough: the oracle's sums are to stay within 64 bits.
        let gap = gap.min(u64::MAX / 64 - START / 64);
        self.now += gap.saturating_add_signed(i64::from(more));
    }

    pub(super) fn apply(&mut self, event: Event) {
        let (algorithm, now) = (&self.case.algorithm, Timestamp::from_nanos(self.now));
        let state = std::mem::take(&mut self.state);
        self.state = match event {
            Event::Take(hits) if hits > algorithm.remaining(&state, now) => state,
            Event::Take(hits) | Event::Charge(hits) => {
                self.oracle.take(hits, self.now);
                algorithm.add(state, hits, now)
            }
            Event::GiveBack(hits) => {
                self.oracle.give_back(hits, self.now);
                algorithm.give_back(state, hits, now)
            }
        };
    }

    pub(super) fn used(&self, at: u64) -> u64 {
        self.case.algorithm.used(&self.state, Timestamp::from_nanos(at))
    }

    pub(super) fn remaining(&self, at: u64) -> u64 {
        self.case.algorithm.remaining(&self.state, Timestamp::from_nanos(at))
    }

    /// The wait in nanoseconds; none if it is never.
    pub(super) fn until_admits(&self, hits: u64) -> Option<u64> {
        match self.case.algorithm.until_admits(&self.state, hits, Timestamp::from_nanos(self.now)) {
            Reset::After(wait) => Some(nanos(wait)),
            Reset::Never => None,
        }
    }

    pub(super) fn until_full(&self) -> u64 {
        nanos(self.case.algorithm.until_full(&self.state, Timestamp::from_nanos(self.now)))
    }

    pub(super) fn equals_the_oracle(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.used(self.now), self.oracle.used(self.now), "used");
        prop_assert_eq!(self.remaining(self.now), self.oracle.remaining(self.now), "remaining");
        for hits in [1, 2, self.oracle.limit(), self.oracle.limit() + 1].into_iter().filter(|&hits| hits > 0)
        {
            prop_assert_eq!(
                self.until_admits(hits),
                self.oracle.until_admits(0, hits, self.now),
                "until {}",
                hits
            );
        }
        prop_assert_eq!(self.until_full(), self.oracle.until_full(self.now), "until full");
        Ok(())
    }
}

pub(super) fn nanos(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos()).unwrap()
}
