//! Scenarios of queued requests: arrival, release and cancellation.

mod rule_changes;
mod several_limits;
mod slots;
mod wake;

use super::*;
use crate::limiter::{
    Limiter,
    tests::{MIDNIGHT_MILLIS, descriptor, limiter, replace_rules, rule_set, shown},
};
use crate::{
    limit::{Code, Request, RequestLimits},
    rules::Semantics,
    store::{OnFull, Seed},
};
use std::collections::BTreeMap;

/// A limiter, and its queued requests by the names that the scenario gives them.
struct World {
    limiter: Limiter,
    positions: BTreeMap<&'static str, QueuePosition>,
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(MIDNIGHT_MILLIS + millis)
}

fn request(text: &str) -> Request<'_> {
    let mut request = Request::new("d");
    text.split("; ").for_each(|text| request.push(descriptor(text)));
    request.checked(&RequestLimits::default()).expect("a good request")
}

impl World {
    fn new(rules: &str) -> Self {
        Self::of(limiter(rules))
    }

    fn of(limiter: Limiter) -> Self {
        Self { limiter, positions: BTreeMap::new() }
    }

    /// Sends a request; returns `queued until 1000`, or the status of each descriptor.
    fn arrive(&mut self, name: &'static str, millis: u64, descriptors: &str) -> Vec<String> {
        self.arrive_with_deadline(name, millis, descriptors, Duration::MAX)
    }

    fn arrive_with_deadline(
        &mut self,
        name: &'static str,
        millis: u64,
        descriptors: &str,
        wait_max: Duration,
    ) -> Vec<String> {
        let pinned = self.limiter.pin();
        match pinned.decide_or_queue(&request(descriptors), wait_max, at(millis)) {
            QueueDecision::Waits(_) => unreachable!("no rule has slots"),
            QueueDecision::Decided(decision) => shown(&decision),
            QueueDecision::Queued(position) => {
                self.positions.insert(name, position);
                vec![format!("queued until {}", self.release_time(name))]
            }
        }
    }

    /// The release time of a queued request, in milliseconds after midnight.
    fn release_time(&self, name: &str) -> u64 {
        match self.limiter.due(&self.positions[name]) {
            Due::At(release) => release.since(at(0)).as_millis() as u64,
            Due::TooLate => panic!("{name} is queued beyond the end"),
        }
    }

    fn release_times<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        names.map(|name| self.release_time(name))
    }

    fn cancel(&mut self, name: &str, millis: u64) {
        self.limiter.cancel(self.positions.remove(name).expect("queued"), at(millis));
    }

    /// Releases a queued request; returns the status of each descriptor.
    fn release(&mut self, name: &str, millis: u64, descriptors: &str) -> Vec<String> {
        let position = self.positions.remove(name).expect("queued");
        let statuses =
            shown(&self.limiter.pin().queued_decision(&request(descriptors), &position, at(millis)));
        self.limiter.release(position);
        statuses
    }
}

/// One hit a second; up to three are queued, for up to ten seconds.
const ONE_A_SECOND: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 1, algorithm: leaky_bucket, burst: 1, max_wait: 10s, max_queue: 3}
";

/// field.md, worked case: queue a request instead of denying it, with a bounded queue and a bounded wait.
#[test]
fn requests_that_do_not_fit_are_queued_and_those_beyond_the_queue_denied() {
    let mut world = World::new(ONE_A_SECOND);
    assert_eq!(world.arrive("a", 0, "user=x"), ["ok 0"]);
    assert_eq!(world.arrive("b", 0, "user=x"), ["queued until 1000"]);
    assert_eq!(world.arrive("c", 100, "user=x"), ["queued until 2000"]);
    assert_eq!(world.arrive("d", 100, "user=x"), ["queued until 3000"]);
    // There is room again once the first has left the queue.
    assert_eq!(world.arrive("e", 100, "user=x"), ["over 0 900"]);
    assert_eq!(world.arrive("e", 999, "user=x"), ["over 0 1"]);
    assert_eq!(world.arrive("e", 1_000, "user=x"), ["queued until 4000"]);
    assert_eq!(world.arrive("other", 1_000, "user=y"), ["ok 0"]);
    assert_eq!(world.limiter.queued(), 4);
}

#[test]
fn the_statuses_of_a_released_request_are_those_of_its_release() {
    let mut world = World::new(ONE_A_SECOND);
    world.arrive("a", 0, "user=x");
    world.arrive("b", 0, "user=x");
    world.arrive("c", 0, "user=x");
    assert_eq!(world.release("b", 1_000, "user=x"), ["ok 0"]);
    assert_eq!(world.release("c", 5_000, "user=x"), ["ok 1"]);
    assert_eq!(world.limiter.queued(), 0);
}

#[test]
fn a_cancelled_request_advances_those_behind_it_alone() {
    let mut world = World::new(ONE_A_SECOND);
    for name in ["a", "b", "c", "d"] {
        world.arrive(name, 0, "user=x");
    }
    assert_eq!(world.release_times(["b", "c", "d"]), [1_000, 2_000, 3_000]);
    world.cancel("c", 400);
    assert_eq!(world.release_times(["b", "d"]), [1_000, 2_000]);
    assert_eq!(world.arrive("e", 400, "user=x"), ["queued until 3000"]);
}

#[test]
fn a_request_cancelled_after_its_release_time_gives_back_no_hits_that_have_leaked() {
    let mut world = World::new(ONE_A_SECOND);
    for name in ["a", "b", "c"] {
        world.arrive(name, 0, "user=x");
    }
    world.cancel("b", 1_500);
    assert_eq!(world.release_time("c"), 2_000);
    world.cancel("c", 1_500);
    assert_eq!(world.arrive("d", 1_500, "user=x"), ["queued until 2000"]);
}

#[test]
fn a_request_with_a_deadline_before_its_release_is_denied_and_not_charged() {
    let mut world = World::new(ONE_A_SECOND);
    world.arrive("a", 0, "user=x");
    world.arrive("b", 0, "user=x");
    let wait_max = Duration::from_millis(1_999);
    // A millisecond later its wait would be long enough.
    assert_eq!(world.arrive_with_deadline("c", 0, "user=x", wait_max), ["over 0 1"]);
    assert_eq!(world.arrive_with_deadline("c", 0, "user=x", Duration::ZERO), ["over 0 2000"]);
    assert_eq!(world.arrive_with_deadline("c", 1, "user=x", wait_max), ["queued until 2000"]);
}

#[test]
fn a_decision_without_wait_never_queues() {
    let mut world = World::new(ONE_A_SECOND);
    world.arrive("a", 0, "user=x");
    world.arrive("b", 0, "user=x");
    let pinned = world.limiter.pin();
    assert_eq!(shown(&pinned.decide(&request("user=x"), at(0))), ["over 0 2000"]);
}

#[test]
fn more_hits_than_the_burst_are_never_queued() {
    let mut world = World::new(ONE_A_SECOND);
    assert_eq!(world.arrive("a", 0, "user=x +2"), ["over never"]);
    assert_eq!(world.arrive("a", 0, "user=x +18446744073709551615"), ["over never"]);
    assert_eq!(world.limiter.store().counters(), 0);
}

#[test]
fn a_peek_is_never_queued() {
    let mut world = World::new(ONE_A_SECOND);
    world.arrive("a", 0, "user=x");
    world.arrive("b", 0, "user=x");
    assert_eq!(world.arrive("c", 0, "user=x ?"), ["over 0 2000"]);
    assert_eq!(world.arrive("c", 2_000, "user=x ?"), ["ok 1"]);
}

#[test]
fn hits_that_are_given_back_advance_all_queued_requests() {
    let mut world = World::new(ONE_A_SECOND);
    for name in ["a", "b", "c"] {
        world.arrive(name, 0, "user=x");
    }
    assert_eq!(world.arrive("back", 200, "user=x -1"), ["ok 0"]);
    assert_eq!(world.release_times(["b", "c"]), [0, 1_000]);
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
fn no_more_requests_are_queued_than_the_bound_over_all_counters() {
    let mut world = World::of(limiter(ONE_A_SECOND).with_queued_max(2));
    for (name, descriptors) in [("a", "user=x"), ("b", "user=x"), ("c", "user=y"), ("d", "user=y")] {
        world.arrive(name, 0, descriptors);
    }
    assert_eq!(world.limiter.queued(), 2);
    // The reset is when it fits at once: when another leaves the queue is unknown.
    assert_eq!(world.arrive("e", 0, "user=x"), ["over 0 2000"]);
    world.cancel("d", 0);
    assert_eq!(world.arrive("e", 0, "user=y"), ["queued until 1000"]);
}

/// One sender with 25 keys had all 1,000 requests of `--max-queued`, and no other key was queued.
#[test]
fn no_key_uses_up_the_places_of_the_queues() {
    let rules = ONE_A_SECOND.replace("max_wait: 10s, max_queue: 3", "max_wait: 1h, max_queue: 1000");
    let limiter = limiter(&rules).with_queued_max(100);
    let mut queued = Vec::new();
    let mut send = |value: &str| {
        let descriptor = format!("user={value}");
        match limiter.pin().decide_or_queue(&request(&descriptor), Duration::MAX, at(0)) {
            QueueDecision::Queued(position) => queued.push(position),
            QueueDecision::Decided(decision) => return decision.code == Code::Ok,
            QueueDecision::Waits(_) => unreachable!("no rule has slots"),
        }
        true
    };
    for _ in 0..100 {
        (0..25).for_each(|key| _ = send(&key.to_string()));
    }
    assert_eq!(limiter.queued(), 75);
    assert!(send("other") && send("other"), "a new key is admitted, and queued");
    assert_eq!(limiter.queued(), 76);
    queued.into_iter().for_each(|position| limiter.release(position));
}

/// A new key found a place while any was free, and a sender makes up as many keys as it likes.
#[test]
fn no_sender_with_very_many_keys_uses_up_the_places_of_other_limits() {
    let limit = "{algorithm: leaky_bucket, requests_per_unit: 1, unit: second, burst: 1, max_wait: 1h, max_queue: 1000}";
    let rules = format!(
        "domain: d\ndescriptors: [{{key: user, rate_limit: {limit}}}, {{key: tenant, rate_limit: {limit}}}]\n"
    );
    let limiter = limiter(&rules).with_queued_max(80);
    let mut queued = Vec::new();
    let mut send = |descriptor: &str| {
        let pinned = limiter.pin();
        if let QueueDecision::Queued(position) =
            pinned.decide_or_queue(&request(descriptor), Duration::MAX, at(0))
        {
            queued.push(position);
        }
    };
    for key in 0..200 {
        // The first is admitted at once.
        (0..2).for_each(|_| send(&format!("user={key}")));
    }
    assert_eq!(limiter.queued(), 70);
    (0..20).for_each(|_| send("tenant=t"));
    assert_eq!(limiter.queued(), 75, "one key leaves half of what is left");
    queued.into_iter().for_each(|position| limiter.release(position));
}

#[test]
fn requests_that_would_be_released_after_the_end_are_too_late() {
    let mut world = World::new(ONE_A_SECOND);
    for name in ["a", "b", "c", "d"] {
        world.arrive(name, 0, "user=x");
    }
    world.limiter.end_queues_at(at(2_500));
    assert_eq!(world.release_times(["b", "c"]), [1_000, 2_000]);
    assert_eq!(world.limiter.due(&world.positions["d"]), Due::TooLate);
    world.cancel("d", 100);
    let statuses = world.arrive("e", 100, "user=x");
    assert!(statuses[0].starts_with("over"), "{statuses:?}");
    assert_eq!(world.arrive("e", 1_100, "user=y"), ["ok 0"]);
}

#[test]
fn queued_requests_keep_their_release_times_when_the_rules_change_and_later_ones_are_behind_them() {
    let mut world = World::new(ONE_A_SECOND);
    for name in ["a", "b", "c", "d"] {
        world.arrive(name, 0, "user=x");
    }
    let twice_as_fast = ONE_A_SECOND.replace("requests_per_unit: 1", "requests_per_unit: 2");
    replace_rules(&world.limiter, &twice_as_fast);
    assert_eq!(world.release_times(["b", "c", "d"]), [1_000, 2_000, 3_000]);
    // Three are counted still, half a second for each.
    assert_eq!(world.arrive("e", 1_000, "user=x"), ["queued until 2500"]);
    world.cancel("d", 1_000);
    assert_eq!(world.release_times(["b", "c", "e"]), [1_000, 2_000, 2_000]);
    let none = "domain: d\ndescriptors: []";
    replace_rules(&world.limiter, none);
    assert_eq!(world.release("b", 1_000, "user=x"), ["none"]);
    world.cancel("c", 1_000);
    world.cancel("e", 1_000);
    assert_eq!(world.limiter.queued(), 0);
}

/// A defect that the simulator found: once no rule had a queue, hits given back advanced no request, and a request that was then cancelled
/// gave back a hit of another request.
#[test]
fn hits_given_back_advance_requests_after_the_queue_was_removed_from_the_rule() {
    let mut world = World::new(ONE_A_SECOND);
    for name in ["a", "b", "c"] {
        world.arrive(name, 0, "user=x");
    }
    let no_queue = ONE_A_SECOND.replace(", max_wait: 10s, max_queue: 3", "");
    replace_rules(&world.limiter, &no_queue);
    assert_eq!(world.arrive("back", 200, "user=x -1"), ["ok 0"]);
    assert_eq!(world.release_times(["b", "c"]), [0, 1_000]);
    assert_eq!(world.arrive("back", 200, "user=x -2"), ["ok 1"]);
    assert_eq!(world.arrive("d", 200, "user=x"), ["ok 0"]);
    world.cancel("c", 200);
    assert_eq!(world.arrive("e", 200, "user=x"), ["over 0 1000"]);
}

/// A defect that the simulator found: hits to give back were computed by the former rule, under which they counted longer.
#[test]
fn a_cancelled_request_gives_back_no_hits_of_a_counter_converted_to_another_rule() {
    let log = "  - {key: log, rate_limit: {per: 10s, requests_per_unit: 4, algorithm: sliding_log}}\n";
    let mut world = World::new(&(ONE_A_SECOND.to_owned() + log));
    world.arrive("a", 0, "user=x");
    assert_eq!(world.arrive("b", 0, "user=x; log=x"), ["queued until 1000"]);
    let shorter = ONE_A_SECOND.to_owned() + &log.replace("10s", "100ms");
    replace_rules(&world.limiter, &shorter);
    assert_eq!(world.arrive("c", 50, "log=x"), ["ok 2"]);
    assert_eq!(world.arrive("d", 200, "log=x +4"), ["ok 0"]);
    world.cancel("b", 200);
    assert_eq!(world.arrive("e", 200, "log=x"), ["over 0 100"]);
}

/// A defect that the simulator found.
#[test]
fn no_request_waits_for_a_shadow() {
    let shadow = "  - {key: shadow, shadow_mode: true, rate_limit: {per: 10s, requests_per_unit: 1, algorithm: leaky_bucket, charge: always}}\n";
    let mut world = World::new(&(ONE_A_SECOND.to_owned() + shadow));
    world.arrive("a", 0, "user=x");
    world.arrive("debt", 0, "shadow=x +5");
    assert_eq!(world.arrive("b", 0, "user=x; shadow=x"), ["queued until 1000"]);
}

/// A limiter with room for two counters.
fn small(rules: &str, on_full: OnFull) -> World {
    let store = crate::store::StoreSettings { seed: Seed::from_bytes([9; 16]), counters_max: 2, on_full };
    World::of(Limiter::new(rule_set(rules, Semantics::Exact), store, false))
}

#[test]
fn hits_that_were_not_counted_for_lack_of_room_are_not_given_back() {
    let others = "  - {key: short, rate_limit: {unit: second, requests_per_unit: 1, algorithm: fixed_window}}
  - {key: long, rate_limit: {per: 10s, requests_per_unit: 1, algorithm: sliding_log}}
";
    let mut world = small(&(ONE_A_SECOND.to_owned() + others), OnFull::Allow);
    assert_eq!(world.arrive("a", 0, "user=x; short=x"), ["ok 0", "ok 0"]);
    assert_eq!(world.arrive("b", 500, "user=x; long=x"), ["queued until 1000"]);
    let store = world.limiter.store();
    (0..store.shard_count()).for_each(|shard| _ = store.sweep(shard, usize::MAX, at(1_000)));
    assert_eq!(world.arrive("c", 1_000, "long=x"), ["ok 0"]);
    world.cancel("b", 1_000);
    assert_eq!(world.arrive("d", 1_000, "long=x"), ["over 0 10000"]);
}

#[test]
fn without_room_for_a_new_counter_no_request_is_queued() {
    let mut world = small(TWO_QUEUES, OnFull::Deny);
    world.arrive("a", 0, "user=x");
    assert_eq!(world.arrive("b", 0, "user=x; all=1"), ["ok 0", "over full"]);
    assert_eq!(world.limiter.queued(), 0);
    assert_eq!(world.arrive("b", 0, "user=x"), ["queued until 1000"]);
}

/// A response needs time to reach its caller: a request released at the caller's deadline was charged, and answered too late.
#[test]
fn a_request_that_would_be_released_within_the_margin_of_its_deadline_is_denied_and_not_charged() {
    let margin = Duration::from_millis(2);
    let mut world = World::of(limiter(ONE_A_SECOND).with_queue_margin(margin));
    world.arrive("a", 0, "user=x");
    let wait = |nanos| Duration::from_secs(1) + margin - Duration::from_nanos(nanos);
    assert_eq!(world.arrive_with_deadline("b", 0, "user=x", wait(1)), ["over 0 0"]);
    assert_eq!(world.arrive_with_deadline("b", 0, "user=x", margin), ["over 0 1000"]);
    assert_eq!(world.arrive_with_deadline("b", 0, "user=x", wait(0)), ["queued until 1000"]);
    assert_eq!(world.arrive_with_deadline("c", 1_000, "user=y", Duration::ZERO), ["ok 0"]);
}

#[test]
fn only_requests_that_reach_a_rule_with_queues_may_be_queued() {
    let limiter = limiter(&format!(
        "{ONE_A_SECOND}  - {{ key: plain, rate_limit: {{ unit: second, requests_per_unit: 1 }} }}
  - {{ key: user, value: shadow, shadow_mode: true, rate_limit: {{ unit: second, requests_per_unit: 1, algorithm: leaky_bucket, max_wait: 1s }} }}"
    ));
    let may_queue = |text: &str| limiter.pin().may_queue(&request(text));
    assert!(may_queue("user=x") && may_queue("plain=x; user=x") && may_queue("user=x -1"));
    assert!(!may_queue("plain=x") && !may_queue("unknown=x") && !may_queue("user=shadow; plain=x"));
}
