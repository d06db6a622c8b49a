//! Random worlds of servers keep their limit, and planted faults are found.

use super::{
    super::{WORLDS, client::SECOND, limit::Limit, number},
    World,
    conditions::{RATES, SLICES, StoreConditions, StoreFault, WINDOWS},
};
use crate::{lease::simulation::rng::Rng, quota::simulation::world::START};

fn run(seed: u64, kinds: &[u64], fault: Option<StoreFault>) -> World {
    let mut rng = Rng::of_seed(seed);
    let mut conditions = StoreConditions { fault, ..StoreConditions::random(&mut rng, kinds) };
    if let Some(fault) = fault {
        // Clients that move between servers spend all that is assigned.
        conditions.load = if kinds == SLICES { 200.0 } else { 20.0 };
        (conditions.hop_gap, conditions.move_gap, conditions.lost_calls) = (5 * SECOND, 15 * SECOND, 5);
        (conditions.kill_gap, conditions.join_gap) = (20 * SECOND, 15 * SECOND);
        conditions.stops = fault == StoreFault::FreesAll;
        conditions.empty_gap = if fault == StoreFault::NoLearning { 20 * SECOND } else { 0 };
        if fault == StoreFault::TakesLateRequests {
            // Shares grow much, in a limit with a small burst.
            conditions.limit = Limit::bucket("token_bucket", 1_000, 50);
            (conditions.servers, conditions.clients, conditions.hot) = (3, 4, 1);
            (conditions.move_gap, conditions.kill_gap) = (3 * SECOND, 0);
        }
        if kinds == SLICES {
            // Otherwise clients report what they have spent to another server, and it counts twice.
            (conditions.takes_clients, conditions.hop_gap) = (true, 0);
            let forgets_closed = fault == StoreFault::ForgetsClosed;
            (conditions.client_gap, conditions.kill_gap) =
                if forgets_closed { (2 * SECOND, 0) } else { (0, 20 * SECOND) };
        }
        conditions.direct = match fault {
            StoreFault::HoldsNothing | StoreFault::ForgetsRates => 2.0,
            _ => 0.0,
        };
    }
    let length = conditions.length;
    let mut world = World::new(conditions, rng);
    world.run_for(length);
    world
}

fn worlds() -> std::ops::Range<u64> {
    let first = number("TIDEGATE_QUOTA_FIRST").unwrap_or(0);
    first..first + number("TIDEGATE_QUOTA_WORLDS").unwrap_or(WORLDS)
}

fn keeps_the_limit(kinds: &[u64]) {
    let (mut by_clients, mut direct) = (0, 0);
    for seed in worlds() {
        let world = run(seed, kinds, None);
        let (excess, at) = world.excess;
        let after = at.saturating_sub(START) as f64 / 1e9;
        assert!(excess == 0, "seed {seed}: {excess} too many after {after} s\n{:#?}", world.conditions);
        (by_clients, direct) = (by_clients + world.admitted(), direct + world.direct_admitted);
    }
    println!("{by_clients} admitted by clients, {direct} by servers");
    assert!(by_clients > 10_000 && direct > 1_000);
}

#[test]
fn clients_of_several_servers_and_requests_to_these_keep_the_limit() {
    keeps_the_limit(RATES);
}

#[test]
fn the_same_keep_the_limit_of_a_window_that_is_divided_by_rates() {
    keeps_the_limit(WINDOWS);
}

#[test]
fn the_same_keep_the_limit_of_a_long_window() {
    keeps_the_limit(SLICES);
}

fn finds(fault: StoreFault, kinds: &[u64]) {
    let found = (0..WORLDS).find(|&seed| run(seed, kinds, Some(fault)).excess.0 > 0);
    println!("{fault:?}: {found:?}");
    assert!(found.is_some(), "{fault:?}");
}

#[test]
fn faults_of_the_division_among_servers_are_found() {
    for fault in [
        StoreFault::ForgetsVanished,
        StoreFault::NoLearning,
        StoreFault::ShrinksAtOnce,
        StoreFault::FreesAll,
        StoreFault::TakesLateRequests,
        StoreFault::HoldsNothing,
    ] {
        finds(fault, RATES);
    }
}

#[test]
fn faults_of_the_division_of_a_window_by_rates_are_found() {
    for fault in [
        StoreFault::ForgetsVanished,
        StoreFault::ShrinksAtOnce,
        StoreFault::FreesAll,
        StoreFault::TakesLateRequests,
        StoreFault::HoldsNothing,
        StoreFault::ForgetsRates,
    ] {
        finds(fault, WINDOWS);
    }
}

#[test]
fn faults_of_the_division_of_a_long_window_are_found() {
    for fault in [
        StoreFault::ForgetsVanished,
        StoreFault::HoldsNothing,
        StoreFault::FreesAll,
        StoreFault::CountsNothing,
        StoreFault::ForgetsClosed,
    ] {
        finds(fault, SLICES);
    }
}
