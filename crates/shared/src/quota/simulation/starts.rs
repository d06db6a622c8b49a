//! What requests and clients get after a start, depending on what the process before assigned.

use super::{
    client::SECOND, conditions::Conditions, limit::Limit, process::Memory, usefulness::calm, world::World,
};
use crate::lease::simulation::rng::Rng;

/// Runs a process after others. Each of these stopped at some moment, all but the first within 16 s of its start. Requests demand a part of
/// the limit, and clients another part. Returns the parts of their demand that both get from the first second after the last start, for as
/// long as assignments of the former process may be in force.
fn after_starts(
    limit: &Limit,
    (memory, starts): (Memory, usize),
    (direct, load): (f64, f64),
    seed: u64,
) -> (f64, f64) {
    let mut rng = Rng::of_seed(seed);
    let limit = limit.clone();
    let conditions = Conditions { limit, memory, keeps_counters: true, direct, ..calm(3, 3, load, true) };
    let rate = conditions.limit.rate;
    let mut world = World::new(conditions, Rng::of_seed(seed));
    world.run_for(60 * SECOND + rng.below(10 * SECOND));
    for _ in 1..starts {
        let down = rng.below(5 * SECOND);
        world.restart(down);
        world.run_for(down + rng.below(10 * SECOND));
    }
    let down = rng.below(5 * SECOND);
    world.restart(down);
    world.run_for(down + SECOND);
    let before = (world.direct_admitted, world.admitted());
    world.run_for(15 * SECOND);
    let part = |hits: u64, of: f64| hits as f64 / (of * rate * 15.0);
    let by_server = part(world.direct_admitted - before.0, direct);
    let by_clients = part(world.admitted() - before.1, load);
    world.run_for(20 * SECOND);
    assert_eq!(world.excess.0, 0, "{:?}, seed {seed}", world.conditions);
    (by_server, by_clients)
}

/// After each start, all requests at nearly half of the limit were denied for 16 s, beside clients that demanded a hundredth. Later, this
/// happened only after a second start within 16 s of the first one in a new data directory.
#[test]
fn a_start_leaves_to_requests_what_the_former_process_did_not_assign() {
    for limit in [Limit::bucket("token_bucket", 200, 300), Limit::bucket("leaky_bucket", 1_000, 1_000)] {
        for (memory, starts, direct, least) in [
            // Without a record, clients have their former assignments until these end. With a record, they have their shares again some
            // time after their next report, up to 5 s later.
            (Memory::Stated, 1, 0.45, 0.0),
            (Memory::Record, 1, 0.45, 0.6),
            (Memory::Counters, 1, 0.45, 0.6),
            (Memory::New, 2, 0.45, 0.6),
            // Each kill within a minute of another leaves a little less.
            (Memory::Record, 3, 0.3, 0.4),
        ] {
            let of_seeds: Vec<(f64, f64)> =
                (0..5).map(|seed| after_starts(&limit, (memory, starts), (direct, 0.02), seed)).collect();
            let by_server = of_seeds.iter().map(|parts| parts.0).fold(f64::MAX, f64::min);
            let by_clients = of_seeds.iter().map(|parts| parts.1).sum::<f64>() / of_seeds.len() as f64;
            let world = format!("{}, {memory:?}, {starts} starts", limit.rule);
            println!("{world}: requests {by_server:.3}, clients {by_clients:.3}");
            assert!(by_server >= 0.98, "{world}: requests get {by_server}");
            assert!(by_clients >= least, "{world}: clients get {by_clients}");
        }
    }
}
