//! Requests with several limits, some of which queue.

use super::*;

#[test]
fn a_request_in_several_queues_is_released_by_the_last_and_charged_to_all_at_once() {
    let mut world = World::new(TWO_QUEUES);
    assert_eq!(world.arrive("a", 0, "user=x; all=1"), ["ok 0", "ok 0"]);
    assert_eq!(world.arrive("b", 0, "user=x; all=1"), ["queued until 1000"]);
    assert_eq!(world.arrive("c", 0, "all=1; user=y"), ["queued until 200"]);
    assert_eq!(world.arrive("peek", 0, "user=x ?"), ["over 0 2000"]);
    assert_eq!(world.release("b", 1_000, "user=x; all=1"), ["ok 0", "ok 1"]);
}

#[test]
fn a_quota_that_is_over_without_denying_is_reported_on_release_too() {
    let quota = |key: &str, requests: u32| {
        format!(
            "  - key: {key}\n    quota_mode: true\n    \
             rate_limit: {{unit: day, requests_per_unit: {requests}, algorithm: fixed_window}}\n"
        )
    };
    let mut world = World::new(&(ONE_A_SECOND.to_owned() + &quota("own", 1) + &quota("team", 5)));
    assert_eq!(world.arrive("a", 0, "user=x; own=x; team=x"), ["ok 0", "ok 0", "ok 4"]);
    assert_eq!(world.arrive("b", 0, "user=x; own=x; team=x"), ["queued until 1000"]);
    let statuses = world.release("b", 1_000, "user=x; own=x; team=x");
    assert_eq!(statuses, ["ok 0", "over 0 86399000", "ok 3"]);
}

#[test]
fn a_cancelled_request_gives_back_in_every_counter() {
    let mut world = World::new(TWO_QUEUES);
    for name in ["a", "b"] {
        world.arrive(name, 0, "user=x; all=1");
    }
    world.arrive("c", 0, "all=1");
    assert_eq!(world.release_times(["b", "c"]), [1_000, 200]);
    world.cancel("b", 50);
    assert_eq!(world.release_time("c"), 100);
    // Of the four a day, one is used. The others are released one by one.
    for (name, queued) in [("d", "queued until 1000"), ("e", "queued until 2000"), ("f", "queued until 3000")]
    {
        assert_eq!(world.arrive(name, 50, "user=x"), [queued]);
    }
    assert_eq!(world.arrive("g", 50, "user=x")[0], "over 0 86399950");
}

#[test]
fn a_request_that_one_limit_denies_is_queued_by_no_other_and_changes_nothing() {
    let mut world = World::new(TWO_QUEUES);
    world.arrive("a", 0, "user=x +1");
    // The slow bucket would queue it; the log does not admit it within a day.
    for name in ["b", "c", "d"] {
        world.arrive(name, 0, "user=x");
    }
    assert_eq!(world.arrive("e", 0, "user=x; all=1"), ["over 0 86400000", "ok 1"]);
    assert_eq!(world.arrive("f", 0, "all=1"), ["ok 0"]);
    assert_eq!(world.release_times(["b", "c", "d"]), [1_000, 2_000, 3_000]);
}

#[test]
fn neither_a_shadow_nor_a_global_shadow_queues() {
    let shadow = ONE_A_SECOND.replace("- key: user", "- key: user\n    shadow_mode: true");
    // Another rule has a queue, so the domain does.
    let mut world = World::new(
        &(shadow + &ONE_A_SECOND[ONE_A_SECOND.find("  - key").unwrap()..].replace("user", "other")),
    );
    assert_eq!(world.arrive("a", 0, "user=x"), ["ok 0"]);
    // Each is admitted and not counted.
    assert_eq!(world.arrive("b", 0, "user=x"), ["ok 0"]);
    assert_eq!(world.arrive("c", 1_000, "user=x"), ["ok 0"]);

    let mut limiter = limiter(ONE_A_SECOND);
    limiter.global_shadow = true;
    let mut world = World::of(limiter);
    assert_eq!(world.arrive("a", 0, "user=x"), ["ok 0"]);
    assert_eq!(world.arrive("b", 0, "user=x"), ["over 0 1000"]);
    assert_eq!(world.limiter.queued(), 0);
}

#[test]
fn hits_with_charge_always_stay_charged_when_their_request_is_cancelled() {
    let mut world = World::new(&ONE_A_SECOND.replace("burst: 1", "burst: 1, charge: always"));
    for name in ["a", "b", "c"] {
        world.arrive(name, 0, "user=x");
    }
    assert_eq!(world.release_times(["b", "c"]), [1_000, 2_000]);
    world.cancel("b", 0);
    assert_eq!(world.release_time("c"), 2_000);
}
