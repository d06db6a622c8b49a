//! Ten holders of credits and one server, in true time: no admission exceeds what a naive limiter has left at that moment, and hardly any
//! is missing.
//!
//! A run depends on its seed alone. `TIDEGATE_SIM_SEEDS=1000` runs as many seeds with faults for each kind of limit.

mod fleet;
mod node;
mod server;

use crate::{
    oracle::{BERLIN_BILLING, BERLIN_MONTHS, Model},
    rng::Rng,
};
use fleet::{Faults, Fleet};
use std::env;

const MILLI: u64 = 1_000_000;

const SECOND: u64 = 1_000 * MILLI;

/// A month in Berlin ends in each run.
const START: u64 = BERLIN_MONTHS[5] - 1_700 * MILLI;

/// Hits in a second, or in a month.
const LIMIT: u64 = 1_000;

/// A limit of every algorithm.
fn kinds() -> [(&'static str, Model); 10] {
    let (limit, window) = (LIMIT, SECOND);
    [
        ("unit: second", Model::SlidingWindow { limit, window, precision: 1 }),
        ("unit: second, precision: 8", Model::SlidingWindow { limit, window, precision: 8 }),
        ("unit: second, algorithm: sliding_log", Model::SlidingLog { limit, window }),
        ("unit: second, algorithm: fixed_window", Model::FixedWindow { limit, window }),
        (
            "unit: second, algorithm: fixed_window, aligned: first_hit",
            Model::FirstHitWindow { limit, window },
        ),
        (
            "unit: month, algorithm: fixed_window, calendar: true, time_zone: Europe/Berlin",
            Model::CalendarWindow { limit, ends: &BERLIN_MONTHS },
        ),
        (
            "algorithm: fixed_window, calendar: {month: 31 02:30}, time_zone: Europe/Berlin",
            Model::CalendarWindow { limit, ends: &BERLIN_BILLING },
        ),
        (
            "unit: second, algorithm: token_bucket, size: 1000",
            Model::GreedyBucket { size: limit, tokens: limit, interval: window },
        ),
        (
            "unit: second, algorithm: token_bucket, refill: intervals, size: 1000",
            Model::IntervalBucket { size: limit, tokens: limit, interval: window },
        ),
        (
            "unit: second, algorithm: leaky_bucket, burst: 1000",
            Model::LeakyBucket { burst: limit, hits: limit, per: window },
        ),
    ]
}

/// Most of the demand is at one node, and moves to another node twice in a second.
#[test]
fn ten_nodes_admit_97_per_cent_of_what_one_limiter_would_and_nothing_beyond() {
    for (keys, model) in kinds() {
        for percent in [80, 150] {
            let mut fleet = Fleet::new(keys, &model, Rng::of_seed(percent), Faults::NONE);
            fleet.run(3 * SECOND, percent);
            let (admitted, possible) = (fleet.admitted(), fleet.admitted_by_one());
            println!(
                "{keys}, demand {percent} %: {}.{} % of {possible}, {} % by credits",
                admitted * 100 / possible,
                admitted * 1_000 / possible % 10,
                fleet.by_credits * 100 / admitted,
            );
            assert_eq!(fleet.beyond, 0, "{keys}, demand {percent} %");
            assert!(
                admitted * 1_000 >= possible * 970,
                "{keys}, demand {percent} %: {admitted} of {possible}"
            );
            assert!(fleet.by_credits * 2 > admitted, "{keys}, demand {percent} %: {}", fleet.by_credits);
        }
    }
}

/// Nodes and the server are killed, the server is stopped for a while and continues, messages are lost and late. Only hits that a killed
/// process held, and hits that it could not decide, are missing.
#[test]
fn no_kill_no_stop_and_no_lost_message_exceeds_a_limit() {
    let seeds = env::var("TIDEGATE_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    for (keys, model) in kinds() {
        let (mut admitted, mut possible, mut by_credits, mut happened) = (0, 0, 0, [0; 4]);
        for seed in 0..seeds {
            let mut fleet = Fleet::new(keys, &model, Rng::of_seed(seed), Faults::ALL);
            fleet.run(4 * SECOND, 150);
            assert_eq!(fleet.beyond, 0, "{keys}, seed {seed}: {:?}", fleet.happened);
            fleet.happened.iter().zip(&mut happened).for_each(|((_, times), sum)| *sum += times);
            (admitted, possible) = (admitted + fleet.admitted(), possible + fleet.admitted_by_one());
            by_credits += fleet.by_credits;
        }
        println!(
            "{keys} with faults: {} % of {possible}, {} % by credits, faults {happened:?}",
            admitted * 100 / possible,
            by_credits * 100 / admitted
        );
        assert!(happened.iter().all(|&times| times > 0), "{keys}: {happened:?}");
        assert!(by_credits * 10 > admitted, "{keys}: {by_credits} of {admitted} by credits");
        assert!(admitted * 2 > possible, "{keys}: {admitted} of {possible}");
    }
}

/// The check finds a fault: a killed server forgets the outstanding credits.
#[test]
fn credits_that_a_killed_server_forgets_are_found() {
    let faults = Faults { forgets: true, ..Faults::ALL };
    let is_found = |(keys, model): (&str, Model)| {
        let mut fleet = Fleet::new(keys, &model, Rng::of_seed(1), faults);
        fleet.run(4 * SECOND, 150);
        fleet.beyond > 0
    };
    assert!(kinds().into_iter().any(is_found));
}
