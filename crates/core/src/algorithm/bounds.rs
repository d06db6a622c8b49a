//! The most hits that each algorithm admits in any half-open stretch of its window's length.
//!
//! For few hits and few sub-windows all sequences of requests are tried, so that the bound holds and is reached.
//! For many, the proof is in the module; here an adversary reaches the bound, and random requests do not exceed it.

use super::*;
use crate::limit::{Timestamp, Window};
use proptest::prelude::*;
use std::num::NonZeroU32;

/// 2^40 ms: a multiple of every window used here.
const START: u64 = 1 << 40;

/// Divisible by 1, 2, 3, 8 and 60.
const NANOS: u64 = 1_200_000;

fn window() -> Window {
    Window::from_nanos(NANOS).unwrap()
}

fn sliding(limit: u32, precision: u8) -> Algorithm {
    match precision {
        1 => Algorithm::SlidingWindow(SlidingWindow { limit, window: window() }),
        _ => Algorithm::SubWindows(SubWindows::new(limit, window(), precision)),
    }
}

/// The start of a window, whatever its number of sub-windows.
fn start() -> u64 {
    START / NANOS * NANOS
}

/// The most hits in any half-open stretch of a window's length.
fn most_in_any_window(admitted: &[(u64, u64)]) -> u64 {
    let from = |start: u64| admitted.iter().filter(move |(at, _)| (start..start + NANOS).contains(at));
    admitted.iter().map(|&(start, _)| from(start).map(|(_, hits)| hits).sum()).max().unwrap_or(0)
}

/// Tries every number of hits at each of the moments that are left; returns the most in any window.
fn try_everything(
    algorithm: &Algorithm,
    state: &State,
    moments: &[u64],
    admitted: &mut Vec<(u64, u64)>,
) -> u64 {
    let Some((&at, later)) = moments.split_first() else { return most_in_any_window(admitted) };
    let now = Timestamp::from_nanos(at);
    let mut most = 0;
    for hits in 0..=algorithm.remaining(state, now) {
        admitted.push((at, hits));
        let state = if hits == 0 { state.clone() } else { algorithm.add(state.clone(), hits, now) };
        most = most.max(try_everything(algorithm, &state, later, admitted));
        admitted.pop();
    }
    most
}

/// The first nanosecond, the middle, and the last two nanoseconds of each of the first `parts` parts of a window.
fn moments(part: u64, parts: u64) -> Vec<u64> {
    let of_part =
        |index: u64| [0, part / 2, part - 2, part - 1].map(|offset| start() + index * part + offset);
    (0..parts).flat_map(of_part).collect()
}

#[test]
fn in_any_window_a_sliding_window_admits_the_limit_and_its_share_of_one_sub_window() {
    for (precision, limit) in [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3), (2, 4), (3, 2), (3, 3)]
    {
        let algorithm = sliding(limit, precision);
        let moments = moments(NANOS / u64::from(precision), u64::from(precision) + 2);
        let most = try_everything(&algorithm, &State::EMPTY, &moments, &mut Vec::new());
        assert_eq!(
            most,
            u64::from(limit + limit / u32::from(precision)),
            "limit {limit}, precision {precision}"
        );
    }
}

/// All hits at the end of a sub-window, and then all that are admitted until a window later.
#[test]
fn a_burst_at_the_end_of_a_sub_window_reaches_the_bound() {
    for (precision, bound) in [(1, 1_200), (2, 900), (8, 675), (60, 610)] {
        let algorithm = sliding(600, precision);
        let part = NANOS / u64::from(precision);
        let burst = start() + part - 1;
        let mut state = algorithm.add(State::EMPTY, 600, Timestamp::from_nanos(burst));
        let mut admitted = vec![(burst, 600)];
        for at in burst + 1..burst + NANOS {
            let now = Timestamp::from_nanos(at);
            let hits = algorithm.remaining(&state, now);
            if hits > 0 {
                state = algorithm.add(state, hits, now);
                admitted.push((at, hits));
            }
        }
        assert_eq!(most_in_any_window(&admitted), bound, "precision {precision}");
    }
}

/// Takes all hits that remain, or part of them, at moments near the edges of sub-windows and anywhere else.
fn most_admitted(algorithm: &Algorithm, precision: u64, arrivals: &[(u64, i64, u64)]) -> u64 {
    let part = NANOS / precision;
    let (mut state, mut now, mut admitted) = (State::EMPTY, start(), Vec::new());
    for &(parts, offset, share) in arrivals {
        now = ((now / part + parts) * part).saturating_add_signed(offset).max(now);
        let moment = Timestamp::from_nanos(now);
        let hits = algorithm.remaining(&state, moment) * share / 4;
        if hits > 0 {
            state = algorithm.add(state, hits, moment);
            admitted.push((now, hits));
        }
    }
    most_in_any_window(&admitted)
}

fn arrivals() -> impl Strategy<Value = Vec<(u64, i64, u64)>> {
    let parts = prop_oneof![4 => 0..2u64, 2 => 2..12u64, 1 => 50..70u64];
    let offset = prop_oneof![Just(-1), Just(0), 0..1_200_000i64];
    prop::collection::vec((parts, offset, 1..=4u64), 1..150)
}

proptest! {
    #[test]
    fn no_requests_exceed_the_bound_of_a_sliding_window(
        arrivals in arrivals(), limit in 1..400u32, precision in prop_oneof![Just(1_u8), Just(2), Just(8), Just(60)],
    ) {
        let bound = u64::from(limit + limit / u32::from(precision));
        prop_assert!(most_admitted(&sliding(limit, precision), u64::from(precision), &arrivals) <= bound);
    }

    /// A fixed window admits two windows' hits around its end; a bucket its size and what is refilled.
    #[test]
    fn no_requests_exceed_the_bounds_of_the_other_algorithms(arrivals in arrivals(), limit in 1..100u32, refill in 1..100u32) {
        let rate = NonZeroU32::new(refill).unwrap();
        let (once, refilled) = (u64::from(limit), u64::from(refill));
        let leaky = LeakyBucket { burst: limit, rate: Rate::new(rate, window()), queue: None };
        let first_hit = FixedWindow { limit, schedule: Schedule::FirstHit(window()) };
        for (algorithm, bound) in [
            (Algorithm::SlidingLog(SlidingLog { limit, window: window() }), once),
            (Algorithm::FixedWindow(FixedWindow::on_the_clock(limit, window())), 2 * once),
            (Algorithm::FixedWindow(first_hit), 2 * once),
            (Algorithm::TokenBucket(TokenBucket::greedy(limit, rate, window())), once + refilled - 1),
            (Algorithm::TokenBucket(TokenBucket::by_intervals(limit, rate, window())), once + refilled),
            (Algorithm::LeakyBucket(leaky), once + refilled - 1),
        ] {
            prop_assert!(most_admitted(&algorithm, 1, &arrivals) <= bound, "{}", algorithm.name());
        }
    }
}
