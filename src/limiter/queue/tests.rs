//! Scenarios of answers that are held: who comes when, whose turn is when, who gives up.

use super::*;
use crate::limiter::{
    Limiter,
    tests::{MIDNIGHT_MILLIS, descriptor, limiter, replace_rules, rule_set, shown},
};
use crate::{
    limit::{Request, RequestLimits},
    rules::Semantics,
    store::{OnFull, Seed},
};
use std::{collections::BTreeMap, task::Waker};

/// A limiter, and those who wait, by the names that the scenario gives them.
struct World {
    limiter: Limiter,
    tickets: BTreeMap<&'static str, Ticket>,
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(MIDNIGHT_MILLIS + millis)
}

fn request(text: &str) -> Request<'_> {
    let mut asked = Request::new("d");
    text.split("; ").for_each(|text| asked.push(descriptor(text)));
    asked.checked(&RequestLimits::default()).expect("a good request")
}

impl World {
    fn new(rules: &str) -> Self {
        Self::of(limiter(rules))
    }

    fn of(limiter: Limiter) -> Self {
        Self { limiter, tickets: BTreeMap::new() }
    }

    /// Comes with a request: `held until 1000`, or what each descriptor is told.
    fn come(&mut self, name: &'static str, millis: u64, asked: &str) -> Vec<String> {
        self.come_with_patience(name, millis, asked, Duration::MAX)
    }

    fn come_with_patience(
        &mut self,
        name: &'static str,
        millis: u64,
        asked: &str,
        patience: Duration,
    ) -> Vec<String> {
        let pinned = self.limiter.pin();
        match pinned.decide_or_queue(&request(asked), patience, at(millis)) {
            Verdict::Decided(decision) => shown(&decision),
            Verdict::Queued(ticket) => {
                self.tickets.insert(name, ticket);
                vec![format!("held until {}", self.turn(name))]
            }
        }
    }

    /// The turn of one who waits, in milliseconds after midnight.
    fn turn(&self, name: &str) -> u64 {
        match self.limiter.due(&self.tickets[name], Waker::noop()) {
            Due::At(turn) => turn.since(at(0)).as_millis() as u64,
            Due::TooLate => panic!("{name} is to be sent away"),
        }
    }

    fn turns<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        names.map(|name| self.turn(name))
    }

    fn give_up(&mut self, name: &str, millis: u64) {
        self.limiter.cancel(self.tickets.remove(name).expect("one who waits"), at(millis));
    }

    /// Answers one who waits; what each descriptor is told.
    fn answer(&mut self, name: &str, millis: u64, asked: &str) -> Vec<String> {
        let ticket = self.tickets.remove(name).expect("one who waits");
        let told = shown(&self.limiter.pin().queued_decision(&request(asked), &ticket, at(millis)));
        self.limiter.release(ticket);
        told
    }
}

/// One a second, and three may wait for up to ten seconds.
const ONE_A_SECOND: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 1, algorithm: leaky_bucket, burst: 1, max_wait: 10s, max_queue: 3}
";

/// field.md, worked case: hold the request until its turn instead of denying it, with a bounded queue and a bounded wait.
#[test]
fn who_does_not_fit_waits_for_its_turn_and_who_does_not_fit_the_queue_is_denied() {
    let mut world = World::new(ONE_A_SECOND);
    assert_eq!(world.come("a", 0, "user=x"), ["ok 0"]);
    assert_eq!(world.come("b", 0, "user=x"), ["held until 1000"]);
    assert_eq!(world.come("c", 100, "user=x"), ["held until 2000"]);
    assert_eq!(world.come("d", 100, "user=x"), ["held until 3000"]);
    // There is a place again once the first has left the queue.
    assert_eq!(world.come("e", 100, "user=x"), ["over 0 900"]);
    assert_eq!(world.come("e", 999, "user=x"), ["over 0 1"]);
    assert_eq!(world.come("e", 1_000, "user=x"), ["held until 4000"]);
    assert_eq!(world.come("other", 1_000, "user=y"), ["ok 0"]);
    assert_eq!(world.limiter.queued(), 4);
}

#[test]
fn an_answer_at_its_turn_tells_of_the_counters_as_they_are_then() {
    let mut world = World::new(ONE_A_SECOND);
    world.come("a", 0, "user=x");
    world.come("b", 0, "user=x");
    world.come("c", 0, "user=x");
    assert_eq!(world.answer("b", 1_000, "user=x"), ["ok 0"]);
    assert_eq!(world.answer("c", 5_000, "user=x"), ["ok 1"]);
    assert_eq!(world.limiter.queued(), 0);
}

#[test]
fn a_place_that_is_given_up_goes_to_the_next_and_moves_those_behind_it_alone() {
    let mut world = World::new(ONE_A_SECOND);
    for name in ["a", "b", "c", "d"] {
        world.come(name, 0, "user=x");
    }
    assert_eq!(world.turns(["b", "c", "d"]), [1_000, 2_000, 3_000]);
    world.give_up("c", 400);
    assert_eq!(world.turns(["b", "d"]), [1_000, 2_000]);
    assert_eq!(world.come("e", 400, "user=x"), ["held until 3000"]);
}

#[test]
fn who_gives_up_after_its_turn_gives_nothing_back_that_has_leaked() {
    let mut world = World::new(ONE_A_SECOND);
    for name in ["a", "b", "c"] {
        world.come(name, 0, "user=x");
    }
    world.give_up("b", 1_500);
    assert_eq!(world.turn("c"), 2_000);
    world.give_up("c", 1_500);
    assert_eq!(world.come("d", 1_500, "user=x"), ["held until 2000"]);
}

#[test]
fn a_caller_without_time_for_its_turn_is_denied_at_once_and_takes_no_place() {
    let mut world = World::new(ONE_A_SECOND);
    world.come("a", 0, "user=x");
    world.come("b", 0, "user=x");
    let patience = Duration::from_millis(1_999);
    // It would have time for its turn if it came a millisecond later.
    assert_eq!(world.come_with_patience("c", 0, "user=x", patience), ["over 0 1"]);
    assert_eq!(world.come_with_patience("c", 0, "user=x", Duration::ZERO), ["over 0 2000"]);
    assert_eq!(world.come_with_patience("c", 1, "user=x", patience), ["held until 2000"]);
}

#[test]
fn who_decides_without_waiting_is_never_held() {
    let mut world = World::new(ONE_A_SECOND);
    world.come("a", 0, "user=x");
    world.come("b", 0, "user=x");
    let pinned = world.limiter.pin();
    assert_eq!(shown(&pinned.decide(&request("user=x"), at(0))), ["over 0 2000"]);
}

#[test]
fn more_hits_than_the_bucket_holds_never_wait() {
    let mut world = World::new(ONE_A_SECOND);
    assert_eq!(world.come("a", 0, "user=x +2"), ["over never"]);
    assert_eq!(world.come("a", 0, "user=x +18446744073709551615"), ["over never"]);
    assert_eq!(world.limiter.store().counters(), 0);
}

#[test]
fn a_peek_asks_for_now_and_waits_for_nothing() {
    let mut world = World::new(ONE_A_SECOND);
    world.come("a", 0, "user=x");
    world.come("b", 0, "user=x");
    assert_eq!(world.come("c", 0, "user=x ?"), ["over 0 2000"]);
    assert_eq!(world.come("c", 2_000, "user=x ?"), ["ok 1"]);
}

#[test]
fn hits_that_are_given_back_move_all_who_wait() {
    let mut world = World::new(ONE_A_SECOND);
    for name in ["a", "b", "c"] {
        world.come(name, 0, "user=x");
    }
    assert_eq!(world.come("back", 200, "user=x -1"), ["ok 0"]);
    assert_eq!(world.turns(["b", "c"]), [0, 1_000]);
}

const TWO_QUEUES: &str = "
domain: d
descriptors:
  - key: user
    rate_limits:
      - {name: slow, unit: second, requests_per_unit: 1, algorithm: leaky_bucket, burst: 1, max_wait: 10s}
      - {name: daily, unit: day, requests_per_unit: 4, algorithm: sliding_log}
  - key: all
    rate_limit: {unit: second, requests_per_unit: 10, algorithm: leaky_bucket, burst: 1, max_wait: 10s}
";

#[test]
fn a_request_over_several_limits_waits_for_the_latest_turn_and_is_charged_everywhere_at_once() {
    let mut world = World::new(TWO_QUEUES);
    assert_eq!(world.come("a", 0, "user=x; all=1"), ["ok 0", "ok 0"]);
    assert_eq!(world.come("b", 0, "user=x; all=1"), ["held until 1000"]);
    assert_eq!(world.come("c", 0, "all=1; user=y"), ["held until 200"]);
    assert_eq!(world.come("peek", 0, "user=x ?"), ["over 0 2000"]);
    assert_eq!(world.answer("b", 1_000, "user=x; all=1"), ["ok 0", "ok 1"]);
}

#[test]
fn a_quota_that_is_over_and_denies_nothing_is_told_so_at_the_turn_too() {
    let quota = |key: &str, requests: u32| {
        format!(
            "  - key: {key}\n    quota_mode: true\n    \
             rate_limit: {{unit: day, requests_per_unit: {requests}, algorithm: fixed_window}}\n"
        )
    };
    let mut world = World::new(&(ONE_A_SECOND.to_owned() + &quota("own", 1) + &quota("team", 5)));
    assert_eq!(world.come("a", 0, "user=x; own=x; team=x"), ["ok 0", "ok 0", "ok 4"]);
    assert_eq!(world.come("b", 0, "user=x; own=x; team=x"), ["held until 1000"]);
    let told = world.answer("b", 1_000, "user=x; own=x; team=x");
    assert_eq!(told, ["ok 0", "over 0 86399000", "ok 3"]);
}

#[test]
fn who_gives_up_gives_back_in_every_counter() {
    let mut world = World::new(TWO_QUEUES);
    for name in ["a", "b"] {
        world.come(name, 0, "user=x; all=1");
    }
    world.come("c", 0, "all=1");
    assert_eq!(world.turns(["b", "c"]), [1_000, 200]);
    world.give_up("b", 50);
    assert_eq!(world.turn("c"), 100);
    // Of the four a day, one is used. The others have their turns one by one.
    for (name, held) in [("d", "held until 1000"), ("e", "held until 2000"), ("f", "held until 3000")] {
        assert_eq!(world.come(name, 50, "user=x"), [held]);
    }
    assert_eq!(world.come("g", 50, "user=x")[0], "over 0 86399950");
}

#[test]
fn a_request_that_one_limit_denies_waits_for_no_other_and_changes_nothing() {
    let mut world = World::new(TWO_QUEUES);
    world.come("a", 0, "user=x +1");
    // The slow bucket would hold it; the log will not have it within a day.
    for name in ["b", "c", "d"] {
        world.come(name, 0, "user=x");
    }
    assert_eq!(world.come("e", 0, "user=x; all=1"), ["over 0 86400000", "ok 1"]);
    assert_eq!(world.come("f", 0, "all=1"), ["ok 0"]);
    assert_eq!(world.turns(["b", "c", "d"]), [1_000, 2_000, 3_000]);
}

#[test]
fn neither_a_shadow_nor_a_global_shadow_holds() {
    let shadow = ONE_A_SECOND.replace("- key: user", "- key: user\n    shadow_mode: true");
    // Another rule holds, so that the domain does.
    let mut world = World::new(
        &(shadow + &ONE_A_SECOND[ONE_A_SECOND.find("  - key").unwrap()..].replace("user", "other")),
    );
    assert_eq!(world.come("a", 0, "user=x"), ["ok 0"]);
    // It is let through and not counted, however many come.
    assert_eq!(world.come("b", 0, "user=x"), ["ok 0"]);
    assert_eq!(world.come("c", 1_000, "user=x"), ["ok 0"]);

    let mut limiter = limiter(ONE_A_SECOND);
    limiter.global_shadow = true;
    let mut world = World::of(limiter);
    assert_eq!(world.come("a", 0, "user=x"), ["ok 0"]);
    assert_eq!(world.come("b", 0, "user=x"), ["over 0 1000"]);
    assert_eq!(world.limiter.queued(), 0);
}

#[test]
fn what_is_charged_in_any_case_stays_charged_when_its_caller_gives_up() {
    let mut world = World::new(&ONE_A_SECOND.replace("burst: 1", "burst: 1, charge: always"));
    for name in ["a", "b", "c"] {
        world.come(name, 0, "user=x");
    }
    assert_eq!(world.turns(["b", "c"]), [1_000, 2_000]);
    world.give_up("b", 0);
    assert_eq!(world.turn("c"), 2_000);
}

#[test]
fn no_more_requests_wait_than_may_over_all_counters() {
    let mut world = World::of(limiter(ONE_A_SECOND).with_queued_max(2));
    for (name, asked) in [("a", "user=x"), ("b", "user=x"), ("c", "user=y"), ("d", "user=y")] {
        world.come(name, 0, asked);
    }
    assert_eq!(world.limiter.queued(), 2);
    // It is told when it fits at once: nobody knows when another stops to wait.
    assert_eq!(world.come("e", 0, "user=x"), ["over 0 2000"]);
    world.give_up("d", 0);
    assert_eq!(world.come("e", 0, "user=x"), ["held until 2000"]);
}

#[test]
fn when_the_end_is_known_who_cannot_have_its_turn_before_is_sent_away() {
    let mut world = World::new(ONE_A_SECOND);
    for name in ["a", "b", "c", "d"] {
        world.come(name, 0, "user=x");
    }
    world.limiter.end_queues_at(at(2_500));
    assert_eq!(world.turns(["b", "c"]), [1_000, 2_000]);
    assert_eq!(world.limiter.due(&world.tickets["d"], Waker::noop()), Due::TooLate);
    world.give_up("d", 100);
    let told = world.come("e", 100, "user=x");
    assert!(told[0].starts_with("over"), "{told:?}");
    assert_eq!(world.come("e", 1_100, "user=y"), ["ok 0"]);
}

#[test]
fn those_who_wait_keep_their_turns_when_the_rules_change_and_newcomers_stand_behind_them() {
    let mut world = World::new(ONE_A_SECOND);
    for name in ["a", "b", "c", "d"] {
        world.come(name, 0, "user=x");
    }
    let twice_as_fast = ONE_A_SECOND.replace("requests_per_unit: 1", "requests_per_unit: 2");
    replace_rules(&world.limiter, &twice_as_fast);
    assert_eq!(world.turns(["b", "c", "d"]), [1_000, 2_000, 3_000]);
    // Three are counted still, half a second for each.
    assert_eq!(world.come("e", 1_000, "user=x"), ["held until 2500"]);
    world.give_up("d", 1_000);
    assert_eq!(world.turns(["b", "c", "e"]), [1_000, 2_000, 2_000]);
    let none = "domain: d\ndescriptors: []";
    replace_rules(&world.limiter, none);
    assert_eq!(world.answer("b", 1_000, "user=x"), ["none"]);
    world.give_up("c", 1_000);
    world.give_up("e", 1_000);
    assert_eq!(world.limiter.queued(), 0);
}

/// A defect that the simulator found: where no rule held any more, what was given back moved nobody, and who then went away
/// took another's hit off.
#[test]
fn hits_that_are_given_back_move_those_who_wait_for_a_queue_that_there_is_no_more() {
    let mut world = World::new(ONE_A_SECOND);
    for name in ["a", "b", "c"] {
        world.come(name, 0, "user=x");
    }
    let no_queue = ONE_A_SECOND.replace(", max_wait: 10s, max_queue: 3", "");
    replace_rules(&world.limiter, &no_queue);
    assert_eq!(world.come("back", 200, "user=x -1"), ["ok 0"]);
    assert_eq!(world.turns(["b", "c"]), [0, 1_000]);
    assert_eq!(world.come("back", 200, "user=x -2"), ["ok 1"]);
    assert_eq!(world.come("d", 200, "user=x"), ["ok 0"]);
    world.give_up("c", 200);
    assert_eq!(world.come("e", 200, "user=x"), ["over 0 1000"]);
}

/// A defect that the simulator found: what was given back was reckoned by the former rule, under which hits would have
/// counted longer.
#[test]
fn who_goes_away_takes_off_no_hits_of_a_counter_that_another_rule_has_taken_over() {
    let log = "  - {key: log, rate_limit: {per: 10s, requests_per_unit: 4, algorithm: sliding_log}}\n";
    let mut world = World::new(&(ONE_A_SECOND.to_owned() + log));
    world.come("a", 0, "user=x");
    assert_eq!(world.come("b", 0, "user=x; log=x"), ["held until 1000"]);
    let shorter = ONE_A_SECOND.to_owned() + &log.replace("10s", "100ms");
    replace_rules(&world.limiter, &shorter);
    assert_eq!(world.come("c", 50, "log=x"), ["ok 2"]);
    assert_eq!(world.come("d", 200, "log=x +4"), ["ok 0"]);
    world.give_up("b", 200);
    assert_eq!(world.come("e", 200, "log=x"), ["over 0 100"]);
}

/// A defect that the simulator found.
#[test]
fn nobody_waits_for_a_shadow() {
    let shadow = "  - {key: shadow, shadow_mode: true, rate_limit: {per: 10s, requests_per_unit: 1, algorithm: leaky_bucket, charge: always}}\n";
    let mut world = World::new(&(ONE_A_SECOND.to_owned() + shadow));
    world.come("a", 0, "user=x");
    world.come("debt", 0, "shadow=x +5");
    assert_eq!(world.come("b", 0, "user=x; shadow=x"), ["held until 1000"]);
}

/// A limiter with room for two counters.
fn small(rules: &str, on_full: OnFull) -> World {
    let store = crate::store::StoreSettings { seed: Seed::from_bytes([9; 16]), counters_max: 2, on_full };
    World::of(Limiter::new(rule_set(rules, Semantics::Exact), store, false))
}

#[test]
fn hits_that_found_no_room_and_were_not_counted_are_not_taken_off() {
    let others = "  - {key: short, rate_limit: {unit: second, requests_per_unit: 1, algorithm: fixed_window}}
  - {key: long, rate_limit: {per: 10s, requests_per_unit: 1, algorithm: sliding_log}}
";
    let mut world = small(&(ONE_A_SECOND.to_owned() + others), OnFull::Allow);
    assert_eq!(world.come("a", 0, "user=x; short=x"), ["ok 0", "ok 0"]);
    assert_eq!(world.come("b", 500, "user=x; long=x"), ["held until 1000"]);
    let store = world.limiter.store();
    (0..store.shard_count()).for_each(|shard| _ = store.sweep(shard, usize::MAX, at(1_000)));
    assert_eq!(world.come("c", 1_000, "long=x"), ["ok 0"]);
    world.give_up("b", 1_000);
    assert_eq!(world.come("d", 1_000, "long=x"), ["over 0 10000"]);
}

#[test]
fn without_room_for_a_new_counter_nobody_waits() {
    let mut world = small(TWO_QUEUES, OnFull::Deny);
    world.come("a", 0, "user=x");
    assert_eq!(world.come("b", 0, "user=x; all=1"), ["ok 0", "over full"]);
    assert_eq!(world.limiter.queued(), 0);
    assert_eq!(world.come("b", 0, "user=x"), ["held until 1000"]);
}
