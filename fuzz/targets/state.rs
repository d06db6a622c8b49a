//! Stored states: a decoded state is encoded to the same bytes again, and no algorithm panics on a state that no algorithm wrote.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::{num::NonZeroU32, sync::LazyLock};
use tidegate_core::{
    algorithm::{
        Algorithm, FixedWindow, LeakyBucket, Rate, Schedule, SlidingLog, SlidingWindow, State, SubWindows,
        TokenBucket,
    },
    limit::{Timestamp, Window},
};

const LIMIT: u32 = 100;

const MOMENTS: [u64; 5] = [0, 1, 1_700_000_000_000_000_000, 1_700_000_123_456_789_012, u64::MAX];

static ALGORITHMS: LazyLock<Vec<Algorithm>> = LazyLock::new(|| {
    let (limit, window) = (LIMIT, Window::from_secs(60).expect("a minute is a good window"));
    let some = NonZeroU32::new(7).expect("not zero");
    vec![
        Algorithm::SlidingWindow(SlidingWindow { limit, window }),
        Algorithm::SubWindows(SubWindows::new(limit, window, 8)),
        Algorithm::SlidingLog(SlidingLog { limit, window }),
        Algorithm::FixedWindow(FixedWindow::on_the_clock(limit, window)),
        Algorithm::FixedWindow(FixedWindow { limit, schedule: Schedule::FirstHit(window) }),
        Algorithm::TokenBucket(TokenBucket::greedy(limit, some, window)),
        Algorithm::TokenBucket(TokenBucket::by_intervals(limit, some, window)),
        Algorithm::LeakyBucket(LeakyBucket { burst: limit, rate: Rate::new(some, window), queue: None }),
    ]
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(state) = State::decode(bytes) else { return };
    let mut again = Vec::new();
    state.encode(&mut again);
    assert_eq!(State::decode(&again), Ok(state.clone()));
    for algorithm in ALGORITHMS.iter() {
        for now in MOMENTS.map(Timestamp::from_nanos) {
            let used = algorithm.used(&state, now);
            assert_eq!(algorithm.remaining(&state, now), u64::from(LIMIT).saturating_sub(used));
            algorithm.until_admits(&state, 1, now);
            algorithm.until_full(&state, now);
            algorithm.expires(&state);
            algorithm.add(state.clone(), 3, now);
            algorithm.give_back(state.clone(), 3, now);
            for other in ALGORITHMS.iter() {
                other.take_over(algorithm, state.clone(), u64::MAX, now);
            }
        }
    }
});
