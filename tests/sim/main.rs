//! The simulator: random rules and traffic, every answer compared with what a naive oracle says.
//!
//! A seed decides everything. `cargo test --test sim` plays a fixed number of them; `TIDEGATE_SIM_SEEDS=100000` plays as
//! many, `TIDEGATE_SIM_FIRST=7` begins with another than 0. A failure prints the seed, the shortest trace that still
//! fails, the rules, and the two answers.

mod judge;
mod naive;
mod oracle;
mod rng;
mod rules;
mod traffic;

use judge::play;
use rng::Rng;
use rules::Rules;
use std::{env, fmt::Write};
use traffic::{Step, What};

/// Seeds of an ordinary test run.
const SEEDS: u64 = 1_000;

#[test]
fn every_answer_of_the_limiter_is_the_oracles() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a whole number"));
    let (first, seeds) =
        (number("TIDEGATE_SIM_FIRST").unwrap_or(0), number("TIDEGATE_SIM_SEEDS").unwrap_or(SEEDS));
    for seed in first..first + seeds {
        let mut rng = Rng::new(seed);
        let rules = Rules::random(&mut rng);
        let trace = traffic::random(&mut rng, &rules);
        if play(&rules, &trace).is_err() {
            panic!("{}", told(seed, &rules, shortest(&rules, trace)));
        }
    }
    println!("{seeds} seeds from {first} on");
}

/// Leaves out whatever is not needed for a difference: halves of the trace first, then ever smaller parts, then single
/// descriptors.
fn shortest(rules: &Rules, mut trace: Vec<Step>) -> Vec<Step> {
    let mut part = trace.len();
    while part > 0 {
        let mut start = 0;
        while start < trace.len() {
            let mut without = trace.clone();
            without.drain(start..trace.len().min(start + part));
            match play(rules, &without) {
                Err(_) => trace = without,
                Ok(()) => start += part,
            }
        }
        part /= 2;
    }
    for step in 0..trace.len() {
        let mut descriptor = 0;
        while let What::Ask(asked) = &trace[step].what
            && descriptor < asked.len()
            && asked.len() > 1
        {
            let mut without = trace.clone();
            let mut fewer = asked.clone();
            fewer.remove(descriptor);
            without[step].what = What::Ask(fewer);
            match play(rules, &without) {
                Err(_) => trace = without,
                Ok(()) => descriptor += 1,
            }
        }
    }
    trace
}

fn told(seed: u64, rules: &Rules, trace: Vec<Step>) -> String {
    let mut text = format!("seed {seed}\n{}", rules.yaml());
    for Step { now, what } in &trace {
        let _ = match what {
            What::ChangeRules(rules) => writeln!(text, "{now}: new rules\n{}", rules.yaml()),
            what => writeln!(text, "{now}: {what:?}"),
        };
    }
    match play(rules, &trace) {
        Err(difference) => text + &format!("at step {}: {difference}", difference.step),
        Ok(()) => text,
    }
}
