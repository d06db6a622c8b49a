//! The part of the limit that clients of several servers get.

use super::super::{client::SECOND, limit::Limit};
use super::{StoreConditions, World, algorithm, shared_options};
use crate::{
    lease::simulation::rng::Rng,
    quota::{PartView, Quota},
};
use tidegate_core::{limit::Timestamp, rules::Source};

impl World {
    /// Replaces the limit in the rules. Hits admitted from now on count by the new limit.
    fn change_limit(&mut self, limit: Limit) {
        let rules = Source::file("r.yaml", limit.rules());
        let next = self.limiter.update_rules().build(&[rules], &shared_options());
        drop(next.expect("a rule").put_in_force());
        let algorithm = algorithm(&self.limiter.pin());
        let former = std::mem::replace(&mut self.algorithm, algorithm);
        let now = self.time();
        self.store.counter.take_over(&self.algorithm, &former, now);
        self.tally = limit.tally();
        self.conditions.limit = limit;
    }

    /// Hits that the store would admit.
    fn free(&mut self) -> u64 {
        let now = self.time();
        self.store.counter.free(&self.algorithm, now)
    }

    /// Hits admitted in `nanos`, as a part of the limit or the demand, whichever is less.
    fn part_of_possible(&mut self, nanos: u64) -> f64 {
        let before = self.admitted();
        self.run_for(nanos);
        let possible =
            self.conditions.limit.rate * self.conditions.load.min(1.0) * nanos as f64 / SECOND as f64;
        (self.admitted() - before) as f64 / possible
    }
}

#[test]
fn steady_demand_at_several_servers_gets_nearly_what_is_possible() {
    for (servers, clients, least) in
        [(1, 10, 0.97), (2, 2, 0.97), (2, 10, 0.97), (3, 10, 0.97), (5, 50, 0.95)]
    {
        for hot in [1, 3, clients] {
            for load in [0.3, 0.7, 1.0, 1.5, 3.0] {
                let conditions = StoreConditions::calm(servers, clients, hot, load);
                let mut world = World::new(conditions, Rng::of_seed(clients as u64));
                world.run_for(40 * SECOND);
                let part = world.part_of_possible(30 * SECOND);
                println!("{servers} servers, {clients} clients, {hot} hot, load {load}: {part:.3}");
                assert!(
                    part >= least,
                    "{servers} servers, {clients} clients, {hot} hot, load {load}: {part}"
                );
            }
        }
    }
}

/// Seconds until a second in which nearly all that is possible is admitted.
fn seconds_until_possible(world: &mut World) -> u64 {
    (1..90).find(|_| world.part_of_possible(SECOND) >= 0.95).unwrap_or(90)
}

/// Clients of a killed server go on with their last assignments until these end.
#[test]
fn the_part_of_a_killed_server_is_given_to_others_after_its_assignments_have_ended() {
    for seed in 0..6 {
        let mut world = World::new(StoreConditions::calm(2, 6, 6, 2.0), Rng::of_seed(seed));
        world.run_for(60 * SECOND);
        world.kill(0);
        let at_first = world.part_of_possible(8 * SECOND);
        let meanwhile = world.part_of_possible(16 * SECOND);
        let then = world.part_of_possible(5 * SECOND);
        println!(
            "seed {seed}: {at_first:.2} in 8 s after the kill, {meanwhile:.2} in the next 16 s, then {then:.2}"
        );
        assert!(at_first >= 0.9 && then >= 0.95, "seed {seed}");
        assert_eq!(world.excess.0, 0);
    }
}

/// Streams that end keep their shares until the end of these, as with one server.
#[test]
fn a_server_that_joins_gets_a_part_for_the_clients_that_report_to_it() {
    for seed in 0..6 {
        // Requests to the first server, which end before another server joins.
        let conditions = StoreConditions { direct: 0.3, ..StoreConditions::calm(1, 6, 6, 2.0) };
        let mut world = World::new(conditions, Rng::of_seed(seed));
        world.run_for(40 * SECOND);
        assert!(world.direct_admitted > 40 * 100, "{}", world.direct_admitted);
        world.conditions.direct = 0.0;
        world.run_for(20 * SECOND);
        world.join();
        (0..6).for_each(|client| world.hang_up(client, SECOND));
        let meanwhile = world.part_of_possible(30 * SECOND);
        let then = world.part_of_possible(5 * SECOND);
        println!("seed {seed}: {meanwhile:.2} in 30 s after the join of a server, then {then:.2}");
        assert!(then >= 0.95, "seed {seed}");
        assert_eq!(world.excess.0, 0);
    }
}

#[test]
fn demand_that_moves_to_other_servers_gets_95_percent_after_three_intervals() {
    for seed in 0..12 {
        let (servers, clients) = [(2, 4), (3, 10), (5, 20)][seed as usize % 3];
        let load = [0.7, 1.5, 2.0, 3.0][seed as usize % 4];
        let conditions = StoreConditions::calm(servers, clients, 1 + seed as usize % 3, load);
        let mut world = World::new(conditions, Rng::of_seed(seed));
        world.run_for(40 * SECOND);
        let mut demands: Vec<f64> = world.clients.iter().map(|client| client.demand).collect();
        demands.rotate_left(1);
        world.clients.iter_mut().zip(demands).for_each(|(client, demand)| client.demand = demand);
        let at_once = world.part_of_possible(15 * SECOND);
        let then = world.part_of_possible(5 * SECOND);
        println!(
            "seed {seed}: {servers} servers, load {load}: {at_once:.3} in 15 s, {then:.3} in the next 5 s"
        );
        assert!(then >= 0.95, "seed {seed}: {then}");
        assert_eq!(world.excess.0, 0);
    }
}

#[test]
fn without_the_store_assignments_end_and_with_it_they_are_on_again() {
    for (seed, is_empty) in [(1, false), (2, true)] {
        let mut world = World::new(StoreConditions::calm(3, 6, 6, 2.0), Rng::of_seed(seed));
        world.run_for(60 * SECOND);
        world.store.up_at = u64::MAX;
        world.run_for(22 * SECOND);
        let before = world.admitted();
        world.run_for(10 * SECOND);
        assert_eq!(world.admitted(), before, "nothing is assigned without the store");
        world.store.up_at = 0;
        if is_empty {
            world.empty_store();
        }
        let back = seconds_until_possible(&mut world);
        println!("{back} s after the store is back, empty: {is_empty}");
        assert!(back <= if is_empty { 30 } else { 5 });
        assert_eq!(world.excess.0, 0);
    }
}

#[test]
fn a_long_window_is_spent_as_it_is_demanded() {
    for (servers, clients, hot) in [(1, 10, 10), (2, 2, 1), (2, 10, 1), (2, 10, 10), (3, 10, 3), (5, 50, 50)]
    {
        for load in [0.7, 5.0] {
            let limit = Limit::fixed(60_000, 1_200);
            let conditions = StoreConditions { limit, ..StoreConditions::calm(servers, clients, hot, load) };
            let mut world = World::new(conditions, Rng::of_seed(clients as u64));
            world.run_for(30 * SECOND);
            let before = world.admitted();
            world.run_for(120 * SECOND);
            let part = (world.admitted() - before) as f64 / (120.0 * 50.0 * load);
            println!("{servers} servers, {clients} clients, {hot} hot, load {load}: {part:.3}");
            assert!(part >= 0.95, "{servers} servers, {clients} clients, {hot} hot, load {load}: {part}");
            if load > 1.0 {
                world.run_for(180 * SECOND);
                let admitted = world.admitted();
                assert!(admitted >= 59_400, "{servers} servers, {clients} clients, {hot} hot: {admitted}");
            }
            assert_eq!(world.excess.0, 0);
        }
    }
}

/// A store that lost its keys has forgotten what was spent. What clients still have counts.
#[test]
fn after_a_loss_of_the_store_a_long_window_begins_anew_with_what_clients_have() {
    for seed in 0..10 {
        let limit = Limit::fixed(6_000, 1_200);
        let conditions = StoreConditions { limit, ..StoreConditions::calm(3, 6, 6, 60.0) };
        let mut world = World::new(conditions, Rng::of_seed(seed));
        world.run_for(12 * SECOND);
        let (admitted, is_out) =
            (world.admitted(), world.servers.iter().any(|server| server.quota.in_force().burst > 100));
        assert!(is_out && admitted < 6_000, "seed {seed}: {admitted}");
        world.empty_store();
        world.tally = world.conditions.limit.tally();
        world.run_for(200 * SECOND);
        let since = world.admitted() - admitted;
        println!("seed {seed}: {admitted} before, {since} since, {} beyond the limit", world.excess.0);
        assert!(since > 5_000, "seed {seed}");
        assert_eq!(world.excess.0, 0, "seed {seed}");
    }
}

#[test]
fn slices_that_ended_without_the_store_count_and_others_follow_when_it_is_back() {
    let limit = Limit::fixed(60_000, 1_200);
    let conditions = StoreConditions { limit, ..StoreConditions::calm(3, 6, 6, 5.0) };
    let mut world = World::new(conditions, Rng::of_seed(1));
    world.run_for(60 * SECOND);
    world.store.up_at = u64::MAX;
    world.run_for(22 * SECOND);
    let before = world.admitted();
    world.run_for(10 * SECOND);
    assert_eq!(world.admitted(), before, "nothing is assigned without the store");
    world.store.up_at = 0;
    world.run_for(10 * SECOND);
    let at_once = world.admitted() - before;
    world.run_for(240 * SECOND);
    println!("{at_once} in 10 s after the store is back, {} in all", world.admitted());
    // What clients had at that time may have been spent.
    assert!(at_once >= 1_200 && world.admitted() >= 48_000);
    assert_eq!(world.excess.0, 0);
}

/// The rate of clients counts as spent until it ends: up to 16,000.
#[test]
fn a_rate_that_becomes_a_long_window_counts_until_it_has_ended() {
    for seed in 0..6 {
        let mut world = World::new(StoreConditions::calm(3, 6, 6, 3.0), Rng::of_seed(seed));
        world.run_for(60 * SECOND);
        world.change_limit(Limit::fixed(60_000, 1_200));
        let before = world.admitted();
        world.run_for(100 * SECOND);
        let admitted = world.admitted() - before;
        println!("seed {seed}: {admitted} of 60,000, {} beyond the limit", world.excess.0);
        assert!(admitted >= 40_000, "seed {seed}: {admitted}");
        assert_eq!(world.excess.0, 0, "seed {seed}");
    }
}

/// In a short window with few hits, a large part is in slices, or was spent since the last report.
#[test]
fn a_minute_with_few_hits_is_spent_by_slices() {
    for (limit, least) in [
        (Limit::fixed(100, 60), [0.8, 0.82, 0.65, 0.85]),
        (Limit::log(100, 60), [0.75, 0.7, 0.5, 0.7]),
        (Limit::fixed(900, 60), [0.93, 0.95, 0.78, 0.93]),
        (Limit::log(900, 60), [0.93, 0.9, 0.67, 0.7]),
    ] {
        let worlds = [(1, 5, 5), (1, 10, 10), (2, 2, 1), (2, 5, 1), (2, 10, 10), (3, 10, 3)];
        spends_at_least(&limit, &worlds, least);
    }
}

/// Asserts the least part of what is possible that is admitted, for loads of 0.3, 0.7, 1 and 5. A world is a number of servers, of clients,
/// and of hot clients among these.
fn spends_at_least(limit: &Limit, worlds: &[(usize, usize, usize)], least: [f64; 4]) {
    for &(servers, clients, hot) in worlds {
        for (load, least) in [0.3, 0.7, 1.0, 5.0].into_iter().zip(least) {
            let limit = limit.clone();
            let conditions = StoreConditions { limit, ..StoreConditions::calm(servers, clients, hot, load) };
            let mut world = World::new(conditions, Rng::of_seed(clients as u64));
            world.run_for(70 * SECOND);
            let part = world.part_of_possible(180 * SECOND);
            let rule = &world.conditions.limit.rule;
            let world_of = format!("{rule}: {servers} servers, {clients} clients, {hot} hot, load {load}");
            println!("{world_of}: {part:.3}");
            assert!(part >= least, "{world_of}: {part}");
            assert_eq!(world.excess.0, 0);
        }
    }
}

#[test]
fn operators_see_the_part_of_a_server_and_those_of_all_others() {
    for limit in [Limit::bucket("token_bucket", 1_000, 1_000), Limit::fixed(60_000, 1_200)] {
        let conditions = StoreConditions { limit, ..StoreConditions::calm(3, 9, 9, 2.0) };
        let mut world = World::new(conditions, Rng::of_seed(1));
        world.run_for(60 * SECOND);
        let is_sliced = world.conditions.limit.counts_reports();
        let views: Vec<PartView> = world.servers.iter().map(|server| part_of(&server.quota)).collect();
        let rate = views.iter().map(|view| view.own.rate).sum::<u64>();
        for view in &views {
            assert!(
                view.servers == 2 && view.end > Timestamp::from_nanos(world.now) && view.own.burst > 0,
                "{view:?}"
            );
            // Parts change while clients report.
            assert!(view.others.rate.abs_diff(rate - view.own.rate) < 20_000, "{view:?}");
            let (rate, burst) = (view.own.rate + view.others.rate, view.own.burst + view.others.burst);
            assert!(
                if is_sliced { rate == 0 && burst > 0 } else { rate > 900_000 && burst > 800 },
                "{view:?}"
            );
        }
    }
}

fn part_of(quota: &Quota) -> PartView {
    quota.buckets().next().and_then(|bucket| bucket.part).expect("a part")
}

/// About as much is spent as with a single server.
#[test]
fn a_window_that_is_divided_by_rates_is_spent_for_the_most_part() {
    for (limit, least) in
        [(Limit::log(6_000, 60), [0.97, 0.97, 0.9, 0.9]), (Limit::fixed(1_000, 10), [0.95, 0.92, 0.81, 0.82])]
    {
        spends_at_least(&limit, &RATE_WORLDS, least);
    }
}

/// Numbers of servers, of clients, and of hot clients among these.
const RATE_WORLDS: [(usize, usize, usize); 5] = [(1, 10, 10), (2, 2, 1), (2, 5, 1), (2, 10, 10), (3, 10, 3)];

/// With so few requests, what clients get depends on chance: by up to 0.08 in one world, and 0.01 over all worlds.
#[test]
fn a_second_with_few_requests_is_spent_as_far_as_chance_permits() {
    for (load, least) in [(0.3, 0.68), (0.7, 0.66), (1.0, 0.54), (5.0, 0.61)] {
        let worlds = RATE_WORLDS.iter().flat_map(|&world| (0..4).map(move |seed| (world, seed)));
        let parts = worlds.map(|((servers, clients, hot), seed)| {
            let limit = Limit::log(100, 1);
            let conditions = StoreConditions { limit, ..StoreConditions::calm(servers, clients, hot, load) };
            let mut world = World::new(conditions, Rng::of_seed(seed));
            world.run_for(40 * SECOND);
            let part = world.part_of_possible(60 * SECOND);
            assert_eq!(
                world.excess.0, 0,
                "{servers} servers, {clients} clients, {hot} hot, load {load}, seed {seed}"
            );
            part
        });
        let mean = mean(&parts.collect::<Vec<_>>());
        println!("load {load}: {mean:.3}");
        assert!(mean >= least, "load {load}: {mean}");
    }
}

fn mean(parts: &[f64]) -> f64 {
    parts.iter().sum::<f64>() / parts.len() as f64
}

/// The rate that moves to other servers is not held twice: it is spent again as soon as clients have it.
#[test]
fn the_rate_of_a_window_moves_to_other_servers_while_the_window_lasts() {
    for seed in 0..6 {
        let limit = Limit::log(6_000, 60);
        let conditions = StoreConditions { limit, ..StoreConditions::calm(3, 6, 6, 3.0) };
        let mut world = World::new(conditions, Rng::of_seed(seed));
        world.run_for(90 * SECOND);
        let before = world.part_of_possible(10 * SECOND);
        let (total, half) = (world.conditions.load * world.conditions.limit.rate, seed as usize % 2);
        for client in &mut world.clients {
            client.demand = 1.0;
        }
        let server = world.servers[half].id;
        let here: Vec<usize> =
            world.links.values().filter(|link| link.server == server).map(|link| link.client).collect();
        for &client in &here {
            world.clients[client].demand = total / here.len() as f64;
        }
        world.run_for(15 * SECOND);
        let after = world.part_of_possible(10 * SECOND);
        println!(
            "seed {seed}: {before:.3} before, {after:.3} 15 s after all load has moved to {} clients of a server",
            here.len()
        );
        assert_eq!(world.excess.0, 0);
    }
}

/// After a restart, a server took another part of the limit beside its former part, and had nearly all of it. Most requests to all servers
/// were denied, although only 4 % of the limit were demanded.
#[test]
fn a_server_that_starts_again_takes_its_former_part_and_leaves_the_rest() {
    for limit in [
        Limit::bucket("token_bucket", 200, 300),
        Limit::bucket("token_bucket", 1_000, 1_000),
        Limit::bucket("leaky_bucket", 1_000, 1_000),
    ] {
        let (rule, rate) = (limit.rule.clone(), limit.rate);
        let by_clients = (0..24).map(|seed| {
            let limit = limit.clone();
            let conditions = StoreConditions { limit, direct: 0.3, ..StoreConditions::calm(1, 4, 4, 0.04) };
            let mut world = World::new(conditions, Rng::of_seed(seed));
            world.run_for(60 * SECOND);
            let id = world.servers[0].id;
            world.kill(0);
            world.run_for(SECOND);
            world.start_again(id);
            let before = (world.direct_admitted, world.admitted());
            world.run_for(16 * SECOND);
            let direct = (world.direct_admitted - before.0) as f64 / (0.3 * rate * 16.0);
            assert_eq!(world.excess.0, 0, "{rule}, seed {seed}");
            assert!(direct >= 0.98, "{rule}, seed {seed}: requests {direct}");
            (world.admitted() - before.1) as f64 / (0.04 * rate * 16.0)
        });
        // In so short a time, what clients get depends on when they report: by 0.2 in a world.
        let by_clients = mean(&by_clients.collect::<Vec<_>>());
        println!("{rule}: clients {by_clients:.3}");
        assert!(by_clients >= 0.65, "{rule}: clients {by_clients}");
    }
}

/// A server without a data directory has another number after a restart. The part of the former process counts until its end, and the new
/// process took all that was left. Most requests to all servers were denied for three to six seconds, although only 4 % of the limit were
/// demanded.
#[test]
fn a_server_that_starts_again_with_another_number_leaves_what_requests_need() {
    for (seed, limit) in (0..).zip([
        Limit::bucket("token_bucket", 200, 300),
        Limit::bucket("token_bucket", 1_000, 1_000),
        Limit::bucket("leaky_bucket", 1_000, 1_000),
        Limit::log(2_000, 10),
        Limit::fixed(100_000, 1_200),
    ]) {
        for (clients, stops) in [(1, false), (1, true), (4, false), (4, true)] {
            let (limit, rate) = (limit.clone(), limit.rate);
            let calm = StoreConditions::calm(1, clients, clients, 0.02);
            let mut world = World::new(StoreConditions { limit, direct: 0.02, ..calm }, Rng::of_seed(seed));
            world.run_for(60 * SECOND);
            if stops {
                world.stop(0);
            } else {
                world.kill(0);
            }
            let before = (world.direct_admitted, world.admitted());
            world.run_for(SECOND);
            world.join();
            world.run_for(24 * SECOND);
            let part = |hits: u64| hits as f64 / (0.02 * rate * 25.0);
            let (direct, by_clients) =
                (part(world.direct_admitted - before.0), part(world.admitted() - before.1));
            let rule = &world.conditions.limit.rule;
            println!(
                "{rule}, {clients} clients, stops {stops}: requests {direct:.3}, clients {by_clients:.3}"
            );
            assert_eq!(world.excess.0, 0);
            assert!(direct >= 0.97 && by_clients >= 0.6, "{rule}: {direct}, {by_clients}");
        }
    }
}

/// The part that clients do not have is free at once if their server stops, and 20 s later if it is killed.
#[test]
fn a_server_that_stops_gives_back_what_its_clients_do_not_have() {
    for limit in [Limit::bucket("token_bucket", 1_000, 1_000), Limit::fixed(60_000, 1_200)] {
        let conditions = StoreConditions { limit, ..StoreConditions::calm(1, 2, 2, 0.5) };
        let mut world = World::new(conditions, Rng::of_seed(1));
        world.run_for(60 * SECOND);
        let given_up = part_of(&world.servers[0].quota).own.burst - world.servers[0].quota.in_force().burst;
        let before = world.free();
        world.stop(0);
        world.run_for(SECOND);
        let (after, rule) = (world.free(), &world.conditions.limit.rule);
        println!("{rule}: {before} free, {after} after {given_up} were given up");
        assert!(given_up > 0 && after >= before + given_up, "{rule}: {after}");
        assert_eq!(world.excess.0, 0);
    }
}
