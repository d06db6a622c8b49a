//! Properties under every schedule of threads: the real store, rules and limiter, with their locks and atomics from `shuttle`
//! (`crates/core/src/sync/mod.rs`), which may switch threads at each access to shared memory.
//!
//! Shuttle and not loom: a decision takes dozens of steps over 64 locks, and what matters are four kinds of threads at
//! once (requests, the sweeper, the snapshots, a reload). Loom explores all schedules, and does not finish on this.
//! The smallest case, two requests that cross, is tried exhaustively here too; the others under thousands of schedules,
//! half of them at random, half by few but well-placed preemptions (PCT), which find most bugs there are.
//!
//! Not modelled: weak memory orders (the one bare atomic counts and orders nothing) and the inside of `arc-swap`.
//!
//! `cargo test --features model --test model`. `TIDEGATE_MODEL_SCHEDULES` sets the number of schedules of each case,
//! `SHUTTLE_RANDOM_SEED` the seed. A failure prints its schedule, to be given to `shuttle::replay`.

mod queue;
mod slots;
mod world;

use shuttle::{
    Config, Runner,
    scheduler::{DfsScheduler, PctScheduler, RandomScheduler},
};
use std::{collections::BTreeMap, env};
use world::{LIMIT, World, in_threads};

/// Default number of schedules of each case: some seconds.
const SCHEDULES: usize = 2_000;

/// Preemptions that the well-placed half of the schedules makes.
const PREEMPTIONS: usize = 4;

/// Bytes of each modelled thread's stack.
const STACK: usize = 1 << 18;

fn config() -> Config {
    let mut config = Config::new();
    // About memory orders weaker than the model's: see above.
    config.silence_warnings = true;
    // A decision with waits and leases overflows the default of 32 KiB in a development build.
    config.stack_size = STACK;
    config
}

fn under_many_schedules(case: impl Fn() + Send + Sync + Clone + 'static) {
    let number = env::var("TIDEGATE_MODEL_SCHEDULES").ok().map(|text| text.parse().expect("a whole number"));
    let half = number.unwrap_or(SCHEDULES).div_ceil(2);
    Runner::new(RandomScheduler::new_from_seed(1, half), config()).run(case.clone());
    Runner::new(PctScheduler::new_from_seed(1, PREEMPTIONS, half), config()).run(case);
}

fn under_every_schedule(case: impl Fn() + Send + Sync + 'static) -> usize {
    Runner::new(DfsScheduler::new(None, false), config()).run(case)
}

#[test]
fn of_two_crossing_requests_for_the_last_hit_one_is_charged_as_a_whole_under_every_schedule() {
    // The general path, and the fast path.
    for algorithm in ["sliding_log", "sliding_window"] {
        let schedules = under_every_schedule(move || {
            let world = World::counting_by(algorithm, &[("a", LIMIT - 1), ("b", LIMIT - 1)]);
            let admitted = in_threads([["a", "b"], ["b", "a"]].map(|values| {
                let world = world.clone();
                move || world.admits(&values)
            }));
            assert_eq!(admitted.iter().filter(|admitted| **admitted).count(), 1);
            assert_eq!((world.used("a"), world.used("b")), (LIMIT, LIMIT));
        });
        assert!(schedules > 10, "only {schedules} schedules by {algorithm}: nothing was modelled");
    }
}

/// Requests over several shards in opposite orders, beside everything else that touches the counters.
#[test]
fn requests_are_charged_whole_and_never_beyond_the_limit_beside_sweeps_copies_and_reloads() {
    under_many_schedules(|| {
        let world = World::new(&[("a", 1), ("c", 1)]);
        world.leave_expired(&["b", "d", "e"]);
        let background: [fn(&World); 3] = [World::sweep, World::copy_twice, World::reload_twice];
        let background = background.map(|work| {
            let world = world.clone();
            shuttle::thread::spawn(move || work(&world))
        });
        let requests: [&[&str]; 5] =
            [&["a", "b", "c"], &["c", "b", "a"], &["b", "d", "a"], &["d", "c", "b"], &["b"]];
        let admitted = in_threads(requests.map(|values| {
            let world = world.clone();
            move || (0..2).filter(|_| world.admits(values)).count() as u32
        }));
        background.into_iter().for_each(|thread| thread.join().expect("no thread panics"));

        let mut charged = BTreeMap::from([("a", 1), ("b", 0), ("c", 1), ("d", 0)]);
        for (values, times) in requests.into_iter().zip(admitted) {
            values.iter().for_each(|&value| *charged.entry(value).or_default() += times);
        }
        for (value, charged) in charged {
            assert!(charged <= LIMIT, "{value}: {charged} hits were admitted");
            assert_eq!(world.used(value), charged, "{value}");
        }
        assert_eq!(world.held().len(), world.counters());
        // The copies, and one more pass over later changes, are equal to the counters.
        world.copy_twice();
        assert_eq!(world.kept(), world.held());
    });
}

/// The bound counts existing counters: nothing is reserved twice, lost, or handed out beyond it.
#[test]
fn there_are_never_more_counters_than_the_bound_and_none_is_lost_from_the_count() {
    under_many_schedules(|| {
        let world = World::with_room_for(4, &[("a", 1)]);
        world.leave_expired(&["x", "y"]);
        let sweeper = {
            let world = world.clone();
            shuttle::thread::spawn(move || world.sweep())
        };
        let requests = [["a", "b"], ["c", "d"], ["d", "e"], ["e", "a"]];
        let admitted = in_threads(requests.map(|values| {
            let world = world.clone();
            move || {
                let is_admitted = world.admits(&values);
                assert!(world.counters() <= 4);
                is_admitted
            }
        }));
        sweeper.join().expect("the sweeper does not panic");
        let admitted = requests.into_iter().zip(admitted).filter(|(_, is_admitted)| *is_admitted);
        let mut charged = BTreeMap::from([("a", 1)]);
        admitted.flat_map(|(values, _)| values).for_each(|value| *charged.entry(value).or_default() += 1);
        world.sweep();
        assert_eq!(world.held().len(), charged.len());
        assert_eq!(world.counters(), charged.len());
    });
}

/// That the locks are modelled at all: taken against their order, they are seen to deadlock.
#[test]
#[should_panic(expected = "deadlock")]
fn two_shards_that_are_locked_in_opposite_orders_are_seen_to_deadlock() {
    under_every_schedule(|| {
        let world = World::new(&[]);
        in_threads([[3, 5], [5, 3]].map(|[first, second]| {
            let world = world.clone();
            move || {
                let _first = world.store().lock(first);
                let _second = world.store().lock(second);
            }
        }));
    });
}
