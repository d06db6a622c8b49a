//! Decisions: rules and traffic derived from the bytes; every response is compared with the simulator's naive oracle.

#![no_main]

#[path = "../../tests/sim/comparison.rs"]
mod comparison;
#[path = "../../tests/sim/naive/mod.rs"]
mod naive;
#[path = "../../tests/sim/naive_queue.rs"]
mod naive_queue;
#[path = "../../tests/sim/oracle.rs"]
#[expect(dead_code, reason = "only the simulator gives hits of reservations back")]
mod oracle;
#[path = "../../tests/sim/outcome.rs"]
mod outcome;
#[path = "../../tests/sim/queue.rs"]
mod queue;
#[expect(dead_code, reason = "only the simulator starts from seeds")]
#[path = "../../tests/sim/rng.rs"]
mod rng;
#[path = "../../tests/sim/rules.rs"]
mod rules;
#[path = "../../tests/sim/schedule.rs"]
mod schedule;
#[path = "../../tests/sim/server.rs"]
mod server;
#[path = "../../tests/sim/traffic.rs"]
mod traffic;
#[path = "../../tests/sim/world.rs"]
mod world;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for kind in world::Kind::ALL {
        if let Err(difference) = world::World::random_of(&mut rng::Rng::of_bytes(bytes), kind).check() {
            panic!("{difference}");
        }
    }
});
