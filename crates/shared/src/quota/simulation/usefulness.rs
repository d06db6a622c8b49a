//! The part of the limit that clients get.

use super::{
    client::{MILLIS, SECOND},
    conditions::Conditions,
    limit::Limit,
    process::Memory,
    world::World,
};
use crate::lease::simulation::rng::Rng;
use tidegate_core::rules::Percent;

/// Conditions without events, for tests that make their own.
pub(super) fn calm(clients: usize, hot: usize, load: f64, acknowledges: bool) -> Conditions {
    Conditions {
        limit: Limit::bucket("token_bucket", 1_000, 1_000),
        clients,
        share_max: Percent::ALL,
        hostile: (None, 0),
        load,
        direct: 0.0,
        holders: 0,
        hot,
        clump: 1,
        length: 0,
        delay_max: 20 * MILLIS,
        acknowledges,
        move_gap: 0,
        join_gap: 0,
        kill_gap: 0,
        close_gap: 0,
        stall_gap: 0,
        lost_report_gap: 0,
        restart_gap: 0,
        down_max: 12 * SECOND,
        keeps_counters: false,
        memory: Memory::None,
        unrecorded: Percent::new(50).expect("a percentage"),
        write_max: 20 * MILLIS,
        fault: None,
    }
}

/// Hits admitted in `nanos`, as a part of the limit or the demand, whichever is less.
pub(super) fn part_of_possible(world: &mut World, nanos: u64) -> f64 {
    let before = world.admitted();
    world.run_for(nanos);
    let possible =
        world.conditions.limit.rate * world.conditions.load.min(1.0) * nanos as f64 / SECOND as f64;
    (world.admitted() - before) as f64 / possible
}

/// The more clients there are, the fewer tokens each has for demand that varies by chance, and the less is admitted: see docs/rlqs.md.
#[test]
fn steady_demand_gets_nearly_what_is_possible() {
    for (clients, least) in [(2, 0.99), (10, 0.98), (50, 0.965)] {
        for hot in [1, 3, clients] {
            for load in [0.3, 0.7, 1.0, 1.5, 3.0] {
                let mut world = World::new(calm(clients, hot, load, true), Rng::of_seed(clients as u64));
                world.run_for(40 * SECOND);
                let before = world.pushes;
                let part = part_of_possible(&mut world, 30 * SECOND);
                let pushes = (world.pushes - before) / 30;
                println!("{clients} clients, {hot} hot, load {load}: {part:.3}, {pushes} assignments/s");
                assert!(part >= least, "{clients} clients, {hot} hot, load {load}: {part}");
            }
        }
    }
}

/// If the demand of a client fits, its report needs no look at all others: divisions only renew the counter's part.
#[test]
fn steady_demand_is_divided_anew_only_to_renew_the_part_of_the_counter() {
    for load in [0.7, 3.0] {
        let mut world = World::new(calm(50, 50, load, true), Rng::of_seed(1));
        world.run_for(60 * SECOND);
        let before = world.quota.counts();
        world.run_for(60 * SECOND);
        let counts = world.quota.counts();
        let (reports, divisions) = (counts.reports - before.reports, counts.divisions - before.divisions);
        println!("load {load}: {reports} reports, {divisions} divisions");
        assert!(reports == 600 && divisions <= 60, "load {load}: {divisions} divisions");
    }
}

/// A report that crosses the abandonment subscribes the bucket again. The client has forgotten the bucket, and ignores the assignment.
#[test]
fn a_bucket_that_is_made_anew_while_it_is_abandoned_has_its_share_within_two_round_trips() {
    let limits = [Limit::bucket("token_bucket", 1_000, 1_000), Limit::fixed(100_000, 1_200)];
    for (seed, limit) in (0..20).flat_map(|seed| limits.each_ref().map(|limit| (seed, limit.clone()))) {
        let conditions = Conditions { limit, delay_max: 480 * MILLIS, ..calm(2, 1, 0.5, seed % 2 == 0) };
        let mut world = World::new(conditions, Rng::of_seed(seed));
        world.run_for(30 * SECOND);
        world.clients[0].demand = 0.0;
        while world.quota.counts().abandoned == 0 {
            world.run_for(20 * MILLIS);
        }
        world.report_now(0);
        world.run_for(SECOND);
        world.clients[0].demand = 20.0;
        world.run_for(1_500 * MILLIS);
        let before = world.clients[0].admitted;
        world.run_for(SECOND);
        let admitted = world.clients[0].admitted - before;
        assert!(admitted >= 10, "seed {seed}, {}: {admitted} of 20", world.conditions.limit.rule);
        assert_eq!(world.excess.0, 0);
    }
}

/// Two intervals suffice if the connection acknowledges what it has received. Otherwise another report has to show it.
#[test]
fn demand_that_moves_gets_95_percent_after_two_intervals() {
    let mut least = f64::MAX;
    for seed in 0..24 {
        let clients = [2, 10, 10, 50][seed as usize % 4];
        let load = [0.7, 1.5, 2.0][seed as usize % 3];
        let mut world = World::new(calm(clients, 1 + seed as usize % 3, load, true), Rng::of_seed(seed));
        world.run_for(40 * SECOND);
        let mut demands: Vec<f64> = world.clients.iter().map(|client| client.demand).collect();
        demands.rotate_left(1);
        for (client, demand) in world.clients.iter_mut().zip(demands) {
            client.demand = demand;
        }
        let at_once = part_of_possible(&mut world, 10 * SECOND);
        let then = part_of_possible(&mut world, 5 * SECOND);
        println!(
            "seed {seed}: {clients} clients, load {load}: {at_once:.3} in 10 s, {then:.3} in the next 5 s"
        );
        least = least.min(then);
    }
    assert!(least >= 0.95, "{least}");
}

/// A limit of 60,000 in 20 minutes: demand that fits for a time, and demand that spends the limit.
#[test]
fn a_long_window_is_spent_as_it_is_demanded() {
    for (clients, hot) in [(2, 1), (10, 1), (10, 10), (50, 50)] {
        for load in [0.7, 5.0] {
            let limit = Limit::fixed(60_000, 1_200);
            let mut world = World::new(
                Conditions { limit, ..calm(clients, hot, load, true) },
                Rng::of_seed(clients as u64),
            );
            world.run_for(30 * SECOND);
            let before = world.admitted();
            world.run_for(120 * SECOND);
            let part = (world.admitted() - before) as f64 / (120.0 * 50.0 * load);
            println!("{clients} clients, {hot} hot, load {load}: {part:.3}");
            assert!(part >= 0.95, "{clients} clients, {hot} hot, load {load}: {part}");
            if load > 1.0 {
                world.run_for(180 * SECOND);
                assert!(world.admitted() >= 59_400, "{clients} clients, {hot} hot: {}", world.admitted());
            }
            assert_eq!(world.excess.0, 0);
        }
    }
}

/// The rate lacks what clients may spend at once, and each has few tokens.
#[test]
fn a_window_that_is_divided_by_rates_is_spent_for_the_most_part() {
    for (limit, least) in [
        (Limit::log(6_000, 60), [0.95, 0.95, 0.9, 0.9]),
        (Limit::fixed(1_000, 10), [0.95, 0.92, 0.82, 0.8]),
        (Limit::log(100, 1), [0.55, 0.5, 0.4, 0.5]),
    ] {
        for (clients, hot) in [(2, 1), (5, 1), (5, 5), (10, 10), (10, 3)] {
            for (load, least) in [0.3, 0.7, 1.0, 5.0].into_iter().zip(least) {
                let conditions = Conditions { limit: limit.clone(), ..calm(clients, hot, load, true) };
                let mut world = World::new(conditions, Rng::of_seed(clients as u64));
                world.run_for(70 * SECOND);
                let part = part_of_possible(&mut world, 180 * SECOND);
                let rule = &world.conditions.limit.rule;
                println!("{rule}: {clients} clients, {hot} hot, load {load}: {part:.3}");
                assert!(part >= least, "{rule}: {clients} clients, {hot} hot, load {load}: {part}");
                assert_eq!(world.excess.0, 0);
            }
        }
    }
}

/// Requests arrive when clients have all of the limit, so that most are denied. When they end, clients get all of it again.
#[test]
fn requests_to_the_server_get_a_share_as_a_client_does() {
    for limit in [
        Limit::log(1_500, 10),
        Limit::fixed(1_500, 10),
        Limit::bucket("token_bucket", 200, 600),
        Limit::bucket("leaky_bucket", 1_000, 1_000),
    ] {
        let (rule, rate) = (limit.rule.clone(), limit.rate);
        let mut world = World::new(Conditions { limit, ..calm(1, 1, 1.0, false) }, Rng::of_seed(11));
        world.run_for(60 * SECOND);
        world.conditions.direct = 0.7;
        world.run_for(30 * SECOND);
        let before = (world.admitted(), world.direct_admitted);
        world.run_for(60 * SECOND);
        let of_limit = |hits: u64| hits as f64 / (rate * 60.0);
        let (by_clients, direct) =
            (of_limit(world.admitted() - before.0), of_limit(world.direct_admitted - before.1));
        println!("{rule}: {by_clients:.2} by clients, {direct:.2} by the server");
        world.conditions.direct = 0.0;
        world.run_for(25 * SECOND);
        let before = world.admitted();
        world.run_for(60 * SECOND);
        let alone = of_limit(world.admitted() - before);
        println!("{rule}: {alone:.2} by clients alone");
        assert_eq!(world.excess.0, 0, "{rule}");
        assert!(by_clients >= 0.4 && direct >= 0.4, "{rule}: {by_clients}, {direct}");
        assert!(alone >= 0.9, "{rule}: {alone}");
    }
}

/// Requests to the server took each hit as soon as it was free: the client got nothing for 55 s.
#[test]
fn a_slow_client_is_not_starved_by_requests_to_the_server() {
    for limit in [
        Limit::bucket("token_bucket", 100, 100),
        Limit::bucket("token_bucket", 100, 10),
        Limit::bucket("leaky_bucket", 100, 20),
        Limit::log(100, 1),
        Limit::log(1_000, 10),
        Limit::fixed(1_000, 10),
    ] {
        for direct in [1.0, 3.0] {
            let conditions = Conditions { limit: limit.clone(), direct, ..calm(1, 1, 0.0, true) };
            let (rule, rate) = (limit.rule.clone(), limit.rate);
            let mut world = World::new(conditions, Rng::of_seed(7));
            world.run_for(20 * SECOND);
            // One request a second.
            world.conditions.load = 1.0 / rate;
            world.move_demand();
            world.run_for(20 * SECOND);
            let before = world.admitted();
            world.run_for(60 * SECOND);
            let admitted = world.admitted() - before;
            println!("{rule}, {direct} by requests to the server: {admitted} of 60");
            assert_eq!(world.excess.0, 0, "{rule}");
            assert!(admitted >= 15, "{rule}: {admitted} of 60");
        }
    }
}
