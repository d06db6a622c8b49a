//! Requests that are queued while the rules change.

use super::*;

/// One hit a second, and a limit that has another algorithm after the change.
fn two_limits(algorithm: &str) -> String {
    format!(
        "{ONE_A_SECOND}  - {{ key: plan, rate_limit: {{ unit: hour, requests_per_unit: 10, algorithm: {algorithm} }} }}"
    )
}

/// Which of the converted hits are the request's is unknown: none may be taken from another request.
#[test]
fn a_cancelled_request_gives_nothing_back_to_a_counter_that_was_converted() {
    for (after, left) in [("fixed_window", 8), ("sliding_window", 7)] {
        let mut world = World::new(&two_limits("fixed_window"));
        world.arrive("a", 0, "user=x; plan=p");
        assert_eq!(world.arrive("b", 0, "user=x; plan=p"), ["queued until 1000"]);
        replace_rules(&world.limiter, &two_limits(after));
        assert_eq!(world.arrive("c", 0, "plan=p"), ["ok 7"]);
        world.cancel("b", 0);
        assert_eq!(world.arrive("peek", 0, "plan=p ?"), [format!("ok {left}")], "{after}");
    }
}

#[test]
fn hits_given_back_advance_requests_that_the_rules_before_the_last_queued() {
    let mut world = World::new(ONE_A_SECOND);
    world.arrive("a", 0, "user=x");
    assert_eq!(world.arrive("b", 0, "user=x"), ["queued until 1000"]);
    let without_queue = ONE_A_SECOND.replace(", max_wait: 10s, max_queue: 3", "");
    for more in ["", "  - { key: other, rate_limit: { unit: day, requests_per_unit: 1 } }"] {
        replace_rules(&world.limiter, &format!("{without_queue}{more}"));
    }
    world.arrive("give back", 0, "user=x -1");
    assert_eq!(world.release_time("b"), 0);
}

#[test]
fn the_limit_of_a_queued_request_is_kept_when_no_rule_and_no_counter_has_it() {
    let mut world = World::new(ONE_A_SECOND);
    world.arrive("a", 0, "user=x");
    assert_eq!(world.arrive("b", 0, "user=x"), ["queued until 1000"]);
    // Enough limits that unused numbers are collected.
    let many = |more: &str| {
        let rules = (0..5_000).map(|number| {
            format!("  - {{ key: k{number}, rate_limit: {{ unit: day, requests_per_unit: 1{more} }} }}\n")
        });
        format!("{}{}", ONE_A_SECOND.replace("max_queue: 3", "max_queue: 4"), rules.collect::<String>())
    };
    replace_rules(&world.limiter, &many(""));
    assert_eq!(world.arrive("peek", 0, "user=x ?"), ["over 0 2000"]);
    replace_rules(&world.limiter, &many("0"));
    assert!(world.limiter.collect_limits().is_some_and(|freed| freed >= 5_000));
    world.cancel("b", 0);
    assert_eq!(world.arrive("peek", 0, "user=x ?"), ["over 0 1000"]);
}

#[test]
fn hits_given_back_beyond_those_in_a_bucket_advance_no_further_than_all_of_them() {
    let due = |given: &'static str| {
        let mut world = World::new(ONE_A_SECOND);
        world.arrive("a", 0, "user=x");
        world.arrive("b", 0, "user=x");
        world.arrive("c", 0, "user=x");
        world.arrive("give back", 0, given);
        ["b", "c"].map(|name| world.limiter.due(&world.positions[name]))
    };
    assert_eq!(due("user=x -9"), due("user=x -3"));
}
