//! The simulator: random rules and traffic. Every decision, and the release time of every queued request, is compared with the result of a
//! naive limiter.
//!
//! A run depends on its seed alone. `cargo test --test sim` runs a fixed number of seeds; `TIDEGATE_SIM_SEEDS=100000`
//! runs as many, `TIDEGATE_SIM_FIRST=7` starts at 7 instead of 0. A failure prints the seed, the shortest trace that
//! still fails, the rules, and the two results. The fuzz target `decide` (fuzz/) derives the same worlds from its
//! bytes.

mod comparison;
mod leases;
mod machine;
mod naive;
mod naive_queue;
mod oracle;
mod outcome;
mod queue;
mod reserved;
mod rng;
mod rules;
mod schedule;
mod server;
mod slots;
mod traffic;
mod world;

use rng::Rng;
use std::{env, fs, panic::catch_unwind, path::Path};
use world::{Kind, World};

/// Seeds of an ordinary test run.
const SEEDS: u64 = 1_000;

/// Seeds of worlds with reloads.
const SEEDS_WITH_RELOADS: u64 = 500;

/// Seeds of worlds with bans and schedules.
const SEEDS_WITH_TIMES: u64 = 500;

#[test]
fn every_decision_equals_that_of_the_naive_limiter() {
    check_seeds(SEEDS, &[7_385], |rng| World::random_of(rng, Kind::Plain).check());
}

/// Checks this many seeds, and seeds that once failed, unless the environment sets the number.
fn check_seeds(seeds: u64, failed: &[u64], check: fn(&mut Rng) -> Result<(), String>) {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a whole number"));
    let first = number("TIDEGATE_SIM_FIRST").unwrap_or(0);
    let (seeds, failed) = match number("TIDEGATE_SIM_SEEDS") {
        Some(seeds) => (seeds, &[][..]),
        None => (seeds, failed),
    };
    for seed in (first..first + seeds).chain(failed.iter().copied()) {
        // A panic of the limiter or of the oracle is a failure too; its own message has the location.
        let checked = catch_unwind(|| check(&mut Rng::of_seed(seed)));
        if let Err(difference) = checked.unwrap_or_else(|_| Err("it panicked, see above".into())) {
            panic!("seed {seed}\n{difference}");
        }
    }
    println!("{seeds} seeds from {first} on");
}

/// Rules are reloaded while decisions are made and snapshots are written; some files have errors, and some processes are killed
/// while they read them.
#[test]
fn every_decision_around_reloads_equals_that_of_the_naive_limiter() {
    check_seeds(SEEDS_WITH_RELOADS, &[1_252, 4_603, 5_114], |rng| {
        World::random_of(rng, Kind::Reloads).check()
    });
}

/// Limits have bans, and other numbers at times of the week, in zones whose clocks change; many traces are around a change of the clocks
/// or a leap day.
#[test]
fn every_decision_with_bans_and_schedules_equals_that_of_the_naive_limiter() {
    check_seeds(
        SEEDS_WITH_TIMES,
        &[2_396, 3_729, 5_159, 6_157, 10_400, 13_851, 16_815, 24_400, 31_111],
        |rng| World::random_of(rng, Kind::Times).check(),
    );
}

/// The fuzzer's seed inputs, and inputs that once failed.
#[test]
fn every_decision_of_the_fuzz_corpus_equals_that_of_the_naive_limiter() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/decide");
    let inputs =
        fs::read_dir(corpus).expect("a folder of inputs").map(|entry| entry.expect("an entry").path());
    for input in inputs {
        let bytes = fs::read(&input).expect("an input");
        for kind in Kind::ALL {
            if let Err(difference) = World::random_of(&mut Rng::of_bytes(&bytes), kind).check() {
                panic!("{}\n{difference}", input.display());
            }
        }
    }
}
