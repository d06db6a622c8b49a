//! What clients of several servers get of the limit.

use super::super::client::SECOND;
use super::{StoreConditions, World};
use crate::lease::simulation::rng::Rng;

impl World {
    /// Admitted in so much time, of the least of limit and demand.
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

/// Seconds until nearly all that is possible was admitted in one.
fn seconds_until_possible(world: &mut World) -> u64 {
    (1..90).find(|_| world.part_of_possible(SECOND) >= 0.95).unwrap_or(90)
}

/// Clients whose server has vanished go on by their last assignments, for as long as these last.
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

/// Streams that end have their shares until these end, as with one server.
#[test]
fn a_server_that_joins_gets_a_part_for_the_clients_that_report_to_it() {
    for seed in 0..6 {
        // Requests to a server, which end before another one joins.
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
