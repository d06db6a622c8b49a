//! The simulator: random rules and traffic, every answer, and the turns of those who wait, compared with what a naive
//! oracle says.
//!
//! A seed decides everything. `cargo test --test sim` plays a fixed number of them; `TIDEGATE_SIM_SEEDS=100000` plays as
//! many, `TIDEGATE_SIM_FIRST=7` begins with another than 0. A failure prints the seed, the shortest trace that still
//! fails, the rules, and the two answers. The fuzzer of `decide` (fuzz/) plays the same worlds from bytes of its own.

mod judge;
mod naive;
mod oracle;
mod queue;
mod rng;
mod rules;
mod server;
mod traffic;
mod waits;
mod world;

use rng::Rng;
use std::{env, fs, panic::catch_unwind, path::Path};
use world::World;

/// Seeds of an ordinary test run.
const SEEDS: u64 = 1_000;

#[test]
fn every_answer_of_the_limiter_is_the_oracles() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a whole number"));
    let (first, seeds) =
        (number("TIDEGATE_SIM_FIRST").unwrap_or(0), number("TIDEGATE_SIM_SEEDS").unwrap_or(SEEDS));
    for seed in first..first + seeds {
        // A panic, of the limiter or of the oracle, is a find too, and has said where it was.
        let played = catch_unwind(|| World::random(&mut Rng::of_seed(seed)).played());
        if let Err(difference) = played.unwrap_or_else(|_| Err("it panicked, see above".into())) {
            panic!("seed {seed}\n{difference}");
        }
    }
    println!("{seeds} seeds from {first} on");
}

/// What the fuzzer starts from, and whatever it found before.
#[test]
fn every_answer_in_a_world_of_the_fuzzers_is_the_oracles_too() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/decide");
    let inputs =
        fs::read_dir(corpus).expect("a folder of inputs").map(|entry| entry.expect("an entry").path());
    for input in inputs {
        let bytes = fs::read(&input).expect("an input");
        if let Err(difference) = World::random(&mut Rng::of_bytes(&bytes)).played() {
            panic!("{}\n{difference}", input.display());
        }
    }
}
