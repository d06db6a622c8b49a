//! The arithmetic of one decision, by algorithm: `cargo bench --package decisions --bench algorithms`.
//!
//! A decision reads what remains, counts one hit, and reads the status: what remains then and when all of the
//! limit will be free. No locks, no hashing, no key: those are in the other benches.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::{hint::black_box, num::NonZeroU32};
use tidegate_core::{
    algorithm::{
        Algorithm, FixedWindow, LeakyBucket, Rate, Schedule, SlidingLog, SlidingWindow, State, SubWindows,
        TokenBucket,
    },
    limit::{Timestamp, Window},
};

const LIMIT: u32 = 1_000;
const START: u64 = 1_700_000_000_000_000_000;

/// Every algorithm with a limit of 1,000 in a minute; by precision where there is a choice.
fn algorithms() -> Vec<(&'static str, Algorithm)> {
    let (limit, window) = (LIMIT, Window::from_secs(60).expect("a minute"));
    let rate = NonZeroU32::new(LIMIT).expect("a thousand");
    let first_hit = FixedWindow { limit, schedule: Schedule::FirstHit(window) };
    let leaky = LeakyBucket { burst: limit, rate: Rate::new(rate, window), queue: None };
    vec![
        ("sliding_window", Algorithm::SlidingWindow(SlidingWindow { limit, window })),
        ("sliding_window precision 2", Algorithm::SubWindows(SubWindows::new(limit, window, 2))),
        ("sliding_window precision 8", Algorithm::SubWindows(SubWindows::new(limit, window, 8))),
        ("sliding_window precision 60", Algorithm::SubWindows(SubWindows::new(limit, window, 60))),
        ("sliding_log", Algorithm::SlidingLog(SlidingLog { limit, window })),
        ("fixed_window", Algorithm::FixedWindow(FixedWindow::on_the_clock(limit, window))),
        ("fixed_window first_hit", Algorithm::FixedWindow(first_hit)),
        ("token_bucket", Algorithm::TokenBucket(TokenBucket::greedy(limit, rate, window))),
        ("token_bucket intervals", Algorithm::TokenBucket(TokenBucket::by_intervals(limit, rate, window))),
        ("leaky_bucket", Algorithm::LeakyBucket(leaky)),
    ]
}

/// One decision on one hit; returns the numbers of the status, so that none is optimised away.
#[inline]
fn decide(algorithm: &Algorithm, state: &mut State, now: Timestamp) -> (u64, u128) {
    if algorithm.remaining(state, now) >= 1 {
        *state = algorithm.add(std::mem::take(state), 1, now);
        (algorithm.remaining(state, now), algorithm.until_full(state, now).as_nanos())
    } else {
        let reset = algorithm.until_admits(state, 1, now);
        (0, if let tidegate_core::limit::Reset::After(wait) = reset { wait.as_nanos() } else { 0 })
    }
}

/// The counter after two windows of traffic at `share` of the limit's rate, and the time between two hits.
fn warmed_up(algorithm: &Algorithm, share: f64) -> (State, u64, u64) {
    let gap = (60e9 / f64::from(LIMIT) / share) as u64;
    let (mut state, mut now) = (State::EMPTY, START);
    for _ in 0..2 * LIMIT {
        now += gap;
        decide(algorithm, &mut state, Timestamp::from_nanos(now));
    }
    (state, now, gap)
}

fn decisions(criterion: &mut Criterion) {
    for (traffic, share) in [("half of the limit", 0.5), ("ten times the limit", 10.0)] {
        let mut group = criterion.benchmark_group(traffic);
        for (name, algorithm) in algorithms() {
            let (mut state, mut now, gap) = warmed_up(&algorithm, share);
            group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                bencher.iter(|| {
                    now += gap;
                    decide(black_box(&algorithm), &mut state, Timestamp::from_nanos(black_box(now)))
                });
            });
            println!("{name}: {} bytes", size_of::<State>() + state.heap_bytes());
        }
    }
}

criterion_group!(benches, decisions);
criterion_main!(benches);
