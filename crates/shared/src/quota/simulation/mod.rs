//! Simulation of quota: random worlds of clients that behave as Envoy's filter, networks, faults and restarts. A naive limit counts
//! everything that clients, holders of leases and the server itself admit, at its true time.
//!
//! A world depends on its seed alone. `cargo test --package tidegate-shared quota::simulation` runs a fixed number of worlds;
//! `TIDEGATE_QUOTA_WORLDS=10000` runs as many, `TIDEGATE_QUOTA_FIRST=7` starts at 7 instead of 0.

mod client;
mod conditions;
mod counter_model;
#[path = "../../../../../tests/sim/divided_counter.rs"]
mod divided_counter;
mod fault;
mod holders;
mod hostile;
mod limit;
mod network;
mod process;
mod servers;
mod starts;
mod usefulness;
mod world;
mod worst_case;

use super::{KNOWN_BURST, OtherPart, PART_LIFE, Part, PartGrant, PartRequest};
use crate::lease::{NodeId, simulation::rng::Rng};
use client::SECOND;
use conditions::Conditions;
use fault::Fault;
use process::Memory;
use std::env;
use tidegate_core::rules::Percent;
use world::World;

/// Worlds of an ordinary test run.
const WORLDS: u64 = 100;

/// Every kind of limit.
const ALL: &[u64] = &[0, 0, 0, 1, 2, 3, 4, 5, 9, 10];
const BUCKETS: &[u64] = &[0, 1];

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().expect("a whole number"))
}

fn run(seed: u64, kinds: &[u64], fault: Option<Fault>) -> World {
    let mut rng = Rng::of_seed(seed);
    let mut conditions = Conditions { fault, ..Conditions::random(&mut rng, kinds) };
    if fault.is_some() {
        // Clients join, leave and move, and spend all that is assigned.
        conditions.load = 20.0;
        (conditions.close_gap, conditions.stall_gap) = (8 * SECOND, 8 * SECOND);
        (conditions.join_gap, conditions.move_gap) = (10 * SECOND, 15 * SECOND);
        (conditions.restart_gap, conditions.keeps_counters) = (30 * SECOND, true);
        if fault == Some(Fault::ForgetsUnrecorded) {
            // The process restarts before anything is recorded.
            (conditions.memory, conditions.unrecorded) = (Memory::New, Percent::ALL);
            (conditions.restart_gap, conditions.down_max) = (5 * SECOND, SECOND);
            conditions.write_max = 20 * SECOND;
        }
    }
    let length = conditions.length;
    let mut world = World::new(conditions, rng);
    world.run_for(length);
    world
}

#[test]
fn clients_and_requests_together_keep_the_limit() {
    let first = number("TIDEGATE_QUOTA_FIRST").unwrap_or(0);
    let worlds = number("TIDEGATE_QUOTA_WORLDS").unwrap_or(WORLDS);
    let (mut by_clients, mut direct, mut by_credits, mut pushes) = (0, 0, 0, 0);
    for seed in first..first + worlds {
        let world = run(seed, ALL, None);
        let (excess, at) = world.excess;
        let after = (at.saturating_sub(world::START)) as f64 / 1e9;
        assert!(excess == 0, "seed {seed}: {excess} too many after {after} s\n{:#?}", world.conditions);
        (by_clients, direct) = (by_clients + world.admitted(), direct + world.direct_admitted);
        (by_credits, pushes) = (by_credits + world.holders.by_credits, pushes + world.pushes);
    }
    println!(
        "{worlds} worlds: {by_clients} admitted by clients, {direct} by the server, {by_credits} by credits, {pushes} assignments"
    );
    assert!(by_clients > 10_000 && direct > 1_000 && by_credits > 1_000);
}

/// Whether a fault is found within the default number of worlds.
fn finds(fault: Fault, kinds: &[u64]) -> bool {
    let found = (0..WORLDS).find(|&seed| run(seed, kinds, Some(fault)).excess.0 > 0);
    println!("{fault:?}: {found:?}");
    found.is_some()
}

#[test]
fn forgetting_clients_that_are_gone_is_found() {
    assert!(finds(Fault::ForgetsClosed, BUCKETS));
}

#[test]
fn a_start_without_a_learning_phase_is_found() {
    assert!(finds(Fault::NoLearning, BUCKETS));
}

#[test]
fn a_start_that_forgets_what_a_process_without_a_record_assigned_is_found() {
    assert!(finds(Fault::ForgetsUnrecorded, BUCKETS));
}

#[test]
fn a_counter_that_holds_nothing_is_found() {
    assert!(finds(Fault::HoldsNothing, BUCKETS));
}

/// Some clients begin to demand more than there is, beside others that still do. Assignments take up to half a second: one client has grown
/// before another has received less.
#[test]
fn growing_before_others_have_shrunk_is_found() {
    let excess = |fault, seed| {
        let mut rng = Rng::of_seed(seed);
        let limit = limit::Limit::bucket("token_bucket", 1_000, 50);
        let calm = usefulness::calm(3, 1, 3.0, true);
        let conditions = Conditions { limit, delay_max: 480 * client::MILLIS, fault, ..calm };
        let mut world = World::new(conditions, Rng::of_seed(seed));
        for _ in 0..40 {
            world.clients.iter_mut().for_each(|client| client.demand = rng.pick(&[20.0, 3_000.0]));
            world.run_for(8 * SECOND);
        }
        world.excess.0
    };
    let found = (0..20).filter(|&seed| excess(Some(Fault::GrowsAtOnce), seed) > 0).count();
    println!("found in {found} of 20 worlds");
    assert!(found >= 5);
    assert_eq!((0..20).map(|seed| excess(None, seed)).max(), Some(0));
}

/// What clients may have is held in full. Only hits of requests in the sub-window that is just ending may be overlooked. One world of 300
/// admitted 1,001 of 1,000, another 8,003 of 8,000.
#[test]
fn clients_and_requests_together_exceed_sub_windows_by_one_of_them_at_most() {
    let mut most = 0;
    for seed in 0..20 {
        let (hits, precision) = (1_000, 8);
        let mut rng = Rng::of_seed(seed);
        let conditions = Conditions {
            limit: limit::Limit::sub_windows(hits, 10, precision),
            direct: rng.pick(&[0.3, 0.7, 2.0]),
            clump: rng.pick(&[1, 50]),
            move_gap: 10 * SECOND,
            ..usefulness::calm(3, 1, rng.pick(&[0.5, 1.2, 3.0]), true)
        };
        let mut world = World::new(conditions, rng);
        world.run_for(60 * SECOND);
        most = most.max(world.excess.0);
        assert!(world.excess.0 <= hits / precision, "seed {seed}: {:?}", world.excess);
    }
    println!("at most {most} beyond the limit");
}
