//! Simulation of leases: random worlds of nodes, networks, faults and stores. All admissions, in the order of their true
//! times, are checked against a naive exact limiter.
//!
//! A world depends on its seed alone. `cargo test --package tidegate-shared lease::simulation` runs a fixed number of worlds;
//! `TIDEGATE_LEASE_WORLDS=1000000` runs as many, `TIDEGATE_LEASE_FIRST=7` starts at 7 instead of 0.

mod conditions;
mod fault;
mod journal;
#[expect(dead_code, reason = "the rest serves the simulator of decisions")]
#[path = "../../../../../tests/sim/oracle.rs"]
mod oracle;
#[expect(dead_code, reason = "the rest serves the simulator of decisions")]
#[path = "../../../../../tests/sim/rng.rs"]
pub(crate) mod rng;
mod rule;
#[expect(dead_code, reason = "the tests of the script use the rest")]
#[path = "../../../../../tests/sim/shared_counter.rs"]
pub(crate) mod shared_counter;
mod store;
mod usefulness;
mod world;

use super::{Epoch, LeaseRequest, LeaseResponse, Terms, lease};
use conditions::Conditions;
use fault::Fault;
use rng::Rng;
use std::env;
use world::World;

/// Worlds of an ordinary test run.
const WORLDS: u64 = 1_000;

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    worlds: u64,
    admitted: u64,
    by_credits: u64,
    lost: u64,
}

/// Runs the world of the seed, and returns what it admitted too much.
fn run(seed: u64, kinds: &[u64], loses_writes: bool, totals: &mut Totals) -> Vec<String> {
    let mut rng = Rng::of_seed(seed);
    let conditions = Conditions::random(&mut rng, kinds, loses_writes);
    run_in(&conditions, rng, totals)
}

fn run_in(conditions: &Conditions, rng: Rng, totals: &mut Totals) -> Vec<String> {
    let mut world = World::new(conditions, rng);
    world.run();
    totals.worlds += 1;
    totals.admitted += world.tally.by_credits + world.tally.by_store;
    totals.by_credits += world.tally.by_credits;
    totals.lost += world.journal.lost_hits();
    world.journal.violations(&conditions.rules)
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().expect("a whole number"))
}

/// Runs worlds; fails on the first that admits too much.
fn no_world_admits_too_much(loses_writes: bool) -> Totals {
    let first = number("TIDEGATE_LEASE_FIRST").unwrap_or(0);
    let worlds = number("TIDEGATE_LEASE_WORLDS").unwrap_or(WORLDS) / 2;
    let mut totals = Totals::default();
    for seed in first..first + worlds {
        let violations = run(seed, rule::ALL, loses_writes, &mut totals);
        if let Some(violation) = violations.first() {
            let conditions = Conditions::random(&mut Rng::of_seed(seed), rule::ALL, loses_writes);
            panic!("seed {seed}: {} violations, first: {violation}\n{conditions:#?}", violations.len());
        }
    }
    totals
}

#[test]
fn all_nodes_together_admit_what_one_exact_limiter_would() {
    let totals = no_world_admits_too_much(false);
    println!("store keeps its writes: {totals:?}, violations 0");
    assert!(totals.by_credits * 10 > totals.admitted, "leases are hardly used: {totals:?}");
}

/// Beyond what the lost writes had counted, nothing is admitted.
#[test]
fn a_store_that_loses_writes_forgets_these_alone() {
    let totals = no_world_admits_too_much(true);
    println!("store loses writes: {totals:?}, violations beyond the loss 0");
    assert!(totals.lost > 0, "nothing was lost: {totals:?}");
}

/// Whether a fault is found within the default number of worlds, with rules of these kinds.
fn finds(fault: Fault, kinds: &[u64]) -> bool {
    let violates = |seed, loses_writes| {
        let mut rng = Rng::of_seed(seed);
        let random = Conditions::random(&mut rng, kinds, loses_writes);
        let conditions = Conditions { fault: Some(fault), ..random };
        !run_in(&conditions, rng, &mut Totals::default()).is_empty()
    };
    let found = (0..WORLDS / 2).find(|&seed| violates(seed, false) || violates(seed, true));
    println!("{fault:?}: {found:?}");
    found.is_some()
}

macro_rules! planted {
    ($($test:ident: $fault:ident in $kinds:ident,)*) => {
        $(#[test]
        fn $test() {
            assert!(finds(Fault::$fault, rule::$kinds));
        })*
    };
}

planted! {
    dating_hits_at_the_grant_is_found: DateAtGrant in ALL,
    freeing_the_credits_of_a_silent_node_is_found: FreeExpiredCredits in ALL,
    ignoring_credits_in_exact_decisions_is_found: IgnoreCredits in ALL,
    a_double_grant_after_a_failover_is_found: NoLearningPhase in ALL,
    processing_old_requests_is_found: AcceptOldRequests in ALL,
    accepting_old_responses_is_found: AcceptOldResponses in ALL,
    ignoring_a_pause_is_found: IgnorePause in ALL,
    counting_validity_from_the_response_is_found: ValidFromResponse in ALL,
    a_lease_beyond_its_window_is_found: NotClipped in ALL,
    a_grant_that_opens_a_window_is_found: GrantOpensWindow in FROM_FIRST_HIT,
    a_give_back_that_closes_a_leased_window_is_found: GiveBackClosesWindow in FROM_FIRST_HIT,
}

/// A thread that was suspended after it had read the clock spends credits that have expired since.
#[test]
fn a_reading_of_the_clock_before_the_lock_is_found() {
    let violates = |seed: u64| {
        let mut rng = Rng::of_seed(seed);
        let random = Conditions::random(&mut rng, rule::ALL, false);
        let conditions = Conditions {
            stale_max: 300 * conditions::MILLIS,
            fault: Some(Fault::DecideByStaleClock),
            ..random
        };
        !run_in(&conditions, rng, &mut Totals::default()).is_empty()
    };
    assert!((0..WORLDS / 2).any(violates));
}
