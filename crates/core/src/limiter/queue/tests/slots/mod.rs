//! Requests that wait for slots: their order, their wakes, and all ways in which a wait ends.

mod order;

use super::super::{QueueDecision, SlotWait};
use crate::{
    limit::{Code, Decision, Request, Timestamp},
    limiter::{Limiter, tests},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { algorithm: concurrency, requests_in_flight: 2, max_hold: 10s, max_wait: 1s, max_queue: 4 }
  - key: route
    rate_limit: { algorithm: concurrency, requests_in_flight: 1, max_hold: 10s, max_wait: 1s, max_queue: 4 }
  - { key: plan, rate_limit: { unit: hour, requests_per_unit: 4 } }
  - { key: other, rate_limit: { algorithm: concurrency, requests_in_flight: 1, max_wait: 0s } }
";

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(tests::MIDNIGHT_MILLIS + millis)
}

fn request(text: &str) -> Request<'_> {
    let mut request = Request::new("d");
    text.split("; ").for_each(|text| request.push(tests::descriptor(text)));
    request
}

/// Whether a request was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[derive(Debug)]
enum Outcome {
    Admitted(String),
    Denied,
}

fn outcome(decision: &Decision<'_>) -> Outcome {
    match (decision.code, &decision.slot) {
        (Code::Ok, slot) => {
            Outcome::Admitted(slot.as_ref().map(|slot| slot.ticket.to_string()).unwrap_or_default())
        }
        (Code::OverLimit, _) => Outcome::Denied,
    }
}

struct Waiting {
    request: String,
    wait: SlotWait,
    flag: Arc<Flag>,
}

/// A limiter, its waiting requests by name, and those that were decided.
struct World {
    limiter: Limiter,
    waiting: BTreeMap<usize, Waiting>,
    decided: Vec<(usize, Outcome)>,
}

impl World {
    fn new(limiter: Limiter) -> Self {
        Self { limiter, waiting: BTreeMap::new(), decided: Vec::new() }
    }

    fn keep(&mut self, name: usize, request: &str, verdict: Result<Outcome, SlotWait>, now: u64) {
        match verdict {
            Ok(outcome) => self.decided.push((name, outcome)),
            Err(wait) => {
                let flag = Arc::new(Flag::default());
                // A call between the decision and the poll is not lost.
                if self.limiter.poll_slots(&wait, &Waker::from(Arc::clone(&flag))) {
                    flag.0.store(true, Ordering::SeqCst);
                }
                assert!(wait.again() > at(now), "decided once more at once");
                self.waiting.insert(name, Waiting { request: request.to_owned(), wait, flag });
            }
        }
    }

    fn arrive(&mut self, name: usize, text: &str, now: u64) {
        let pinned = self.limiter.pin();
        let verdict = match pinned.decide_or_queue(&request(text), Duration::from_secs(60), at(now)) {
            QueueDecision::Decided(decision) => Ok(outcome(&decision)),
            QueueDecision::Waits(wait) => Err(wait),
            QueueDecision::Queued(_) => unreachable!("no rule has a leaky bucket"),
        };
        drop(pinned);
        self.keep(name, text, verdict, now);
    }

    /// Decides once more those that were woken or are due, in any order, until there are none.
    fn settle(&mut self, now: u64) {
        loop {
            let is_due = |one: &Waiting| one.flag.0.load(Ordering::SeqCst) || one.wait.again() <= at(now);
            // The latest first: the order of tasks is not that of arrivals.
            let Some(name) = self.waiting.iter().rev().find(|(_, one)| is_due(one)).map(|(name, _)| *name)
            else {
                break;
            };
            let Waiting { request: text, wait, .. } = self.waiting.remove(&name).expect("found above");
            let pinned = self.limiter.pin();
            let verdict = match pinned.decide_again(&request(&text), wait, at(now)) {
                QueueDecision::Decided(decision) => Ok(outcome(&decision)),
                QueueDecision::Waits(wait) => Err(wait),
                QueueDecision::Queued(_) => unreachable!("no rule has a leaky bucket"),
            };
            drop(pinned);
            self.keep(name, &text, verdict, now);
        }
        assert_eq!(self.limiter.queued(), self.waiting.len());
    }

    /// The next time at which a request is to be decided once more, if it is not called.
    fn next_due(&self) -> Option<u64> {
        let times = self.waiting.values().map(|one| one.wait.again().as_nanos() / 1_000_000);
        times.min().map(|millis| millis - tests::MIDNIGHT_MILLIS)
    }

    fn release(&mut self, ticket: &str, now: u64) {
        self.limiter.cancel_start(ticket, at(now));
        self.settle(now);
    }

    fn cancel(&mut self, name: usize, now: u64) {
        if let Some(Waiting { wait, .. }) = self.waiting.remove(&name) {
            self.limiter.leave(&wait);
        }
        self.settle(now);
    }

    /// The decisions since the last call, by name: `+` for an admission.
    fn decided(&mut self) -> String {
        let shown = self.decided.drain(..).map(|(name, outcome)| match outcome {
            Outcome::Admitted(_) => format!("+{name}"),
            Outcome::Denied => format!("-{name}"),
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    /// The ticket of a request that was admitted since.
    fn ticket(&self, name: usize) -> String {
        let found = self.decided.iter().find_map(|(other, outcome)| match outcome {
            Outcome::Admitted(ticket) if *other == name => Some(ticket.clone()),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("{name} is not admitted: {:?}", self.decided))
    }
}

fn world() -> World {
    World::new(tests::limiter(RULES))
}

#[test]
fn requests_get_slots_in_the_order_of_arrival_as_they_are_released() {
    let mut world = world();
    (0..5).for_each(|name| world.arrive(name, "user=a", name as u64));
    let tickets = [0, 1].map(|name| world.ticket(name));
    assert_eq!(world.decided(), "+0 +1");
    world.release(&tickets[1], 10);
    let third = world.ticket(2);
    assert_eq!(world.decided(), "+2");
    // A request that arrives while others wait is behind them, even right after a release.
    world.limiter.cancel_start(&tickets[0], at(11));
    world.arrive(5, "user=a", 11);
    world.settle(11);
    assert_eq!(world.decided(), "+3");
    world.release(&third, 12);
    assert_eq!(world.decided(), "+4");
}

#[test]
fn a_request_is_denied_once_it_has_waited_for_max_wait() {
    let mut world = world();
    world.arrive(0, "user=a +2", 0);
    world.arrive(1, "user=a", 100);
    world.settle(1_099);
    assert_eq!(world.decided(), "+0");
    world.settle(1_100);
    assert_eq!(world.decided(), "-1");
}

#[test]
fn a_slot_past_its_deadline_is_free_for_the_first_that_waits() {
    let mut world = world();
    world.arrive(0, "route=a", 0);
    world.arrive(1, "route=a", 9_500);
    assert_eq!(world.waiting[&1].wait.again(), at(10_000));
    world.settle(10_000);
    assert_eq!(world.decided(), "+0 +1");
}

#[test]
fn those_behind_a_cancelled_request_advance() {
    let mut world = world();
    world.arrive(0, "user=a", 0);
    world.arrive(1, "user=a +2", 1);
    world.arrive(2, "user=a", 2);
    // It needs fewer hits than are free, but an earlier request waits.
    assert_eq!(world.decided(), "+0");
    world.cancel(1, 3);
    assert_eq!(world.decided(), "+2");
}

#[test]
fn more_hits_than_the_line_has_room_for_are_denied_at_once() {
    let mut world = world();
    world.arrive(0, "user=a +2", 0);
    world.arrive(1, "user=a +2", 0);
    world.arrive(2, "user=a +2", 0);
    world.arrive(3, "user=a", 0);
    world.arrive(4, "user=b +3", 0);
    world.arrive(5, "other=a", 0);
    world.arrive(6, "other=a", 0);
    assert_eq!(world.decided(), "+0 -3 -4 +5 -6", "0s is no wait, and three of two are never admitted");
}

#[test]
fn no_more_requests_wait_than_may_be_queued() {
    let mut world = World::new(tests::limiter(RULES).with_queued_max(1));
    world.arrive(0, "route=a; user=a", 0);
    world.arrive(1, "route=a", 0);
    world.arrive(2, "route=a", 0);
    assert_eq!(world.decided(), "+0 -2");
}

/// One sender with 25 keys had all 1,000 places.
#[test]
fn no_key_uses_up_the_places_of_those_that_wait_for_slots() {
    let mut world = World::new(tests::limiter(RULES).with_queued_max(6));
    for number in 0..4 {
        world.arrive(number, "route=a", 0);
    }
    // Three wait: the fourth would leave fewer places than its key has.
    world.arrive(4, "route=a", 0);
    world.arrive(5, "route=b", 0);
    world.arrive(6, "route=b", 0);
    assert_eq!(world.limiter.queued(), 4);
    assert_eq!(world.decided(), "+0 -4 +5");
}

/// A new key found a place while any was free, and a sender makes up as many keys as it likes.
#[test]
fn no_sender_with_very_many_keys_uses_up_the_places_of_those_that_wait_by_other_limits() {
    let mut world = World::new(tests::limiter(RULES).with_queued_max(16));
    for key in 0..20 {
        let route = format!("route={key}");
        world.arrive(2 * key, &route, 0);
        world.arrive(2 * key + 1, &route, 0);
    }
    assert_eq!(world.limiter.queued(), 14);
    (100..103).for_each(|number| world.arrive(number, "user=u", 0));
    assert_eq!(world.limiter.queued(), 15);
}

#[test]
fn a_request_that_another_limit_denies_does_not_wait_and_one_that_waits_has_charged_nothing() {
    let mut world = world();
    world.arrive(0, "route=a; plan=free +2", 0);
    world.arrive(1, "route=a; plan=free +3", 0);
    world.arrive(2, "route=a; plan=free +2", 0);
    let ticket = world.ticket(0);
    assert_eq!(world.decided(), "+0 -1");
    world.arrive(3, "plan=free", 1);
    // Its window is full meanwhile: it is denied once it has been called.
    world.release(&ticket, 2);
    assert_eq!(world.decided(), "+3 -2");
    world.arrive(4, "plan=free; route=a", 2);
    assert_eq!(world.decided(), "+4");
}

#[test]
fn a_request_that_waits_for_one_limit_delays_nothing_at_another() {
    let mut world = world();
    world.arrive(0, "route=a", 0);
    world.arrive(1, "route=a; user=u", 0);
    world.arrive(2, "user=u +2", 0);
    let (route, user) = (world.ticket(0), world.ticket(2));
    assert_eq!(world.decided(), "+0 +2");
    // It now waits for the other, and keeps its place.
    world.release(&route, 1);
    world.arrive(3, "user=u +2", 1);
    world.arrive(4, "route=a", 1);
    assert_eq!(world.decided(), "+4");
    world.release(&user, 2);
    assert_eq!(world.decided(), "+3", "the first of the line waits for its route");
}

/// Both reach the same rule and, if the condition holds, the same counter.
#[test]
fn a_request_for_which_a_condition_does_not_hold_neither_waits_nor_is_behind_those_that_do() {
    let rules = "
domain: d
descriptors:
  - key: user
    rate_limits:
      - {algorithm: concurrency, requests_in_flight: 1, max_hold: 10s, max_wait: 1s, when: 'size(descriptors) == 2'}
      - {unit: hour, requests_per_unit: 3}
  - key: upload
";
    let mut world = World::new(tests::limiter(rules));
    world.arrive(0, "user=u; upload=a", 0);
    world.arrive(1, "user=u; upload=b", 0);
    world.arrive(2, "user=u", 0);
    let at_once = |world: &World, text: &str| {
        let pinned = world.limiter.pin();
        pinned.decide_unless_waits(&request(text), at(0)).map(|decision| decision.code)
    };
    assert_eq!(at_once(&world, "user=v"), Some(Code::Ok));
    assert_eq!(at_once(&world, "user=u; upload=c"), None);
    let ticket = world.ticket(0);
    assert_eq!(world.decided(), "+0 +2");
    world.release(&ticket, 1);
    assert_eq!(world.decided(), "+1");
    // The window is used up: there is nothing to wait for, whether the condition holds or not.
    assert_eq!(at_once(&world, "user=u; upload=c"), Some(Code::OverLimit));
    assert_eq!(at_once(&world, "user=u"), Some(Code::OverLimit));
    assert_eq!(world.limiter.queued(), 0);
}

/// A flood of one key, whose client may have any number of calls open.
#[test]
fn a_flood_of_a_full_key_fills_its_line_and_no_other() {
    let mut world = world();
    world.arrive(0, "user=u +2", 0);
    let ticket = world.ticket(0);
    (1..=1_000).for_each(|name| world.arrive(name, "user=u", 0));
    let waiting = world.waiting.len();
    assert!((1..1_000).contains(&waiting));
    assert_eq!(world.decided.len(), 1_001 - waiting, "all others are denied at once");
    // Another key is decided at once, and has a line of its own.
    world.decided.clear();
    let name = 2_000;
    world.arrive(name, "user=v +2", 1);
    world.arrive(name + 1, "user=v", 1);
    assert_eq!((world.decided().as_str(), world.waiting.len()), ("+2000", waiting + 1));
    // Denied requests take nothing from waiting requests.
    (3_000..3_100).for_each(|name| world.arrive(name, "user=u", 1));
    world.decided.clear();
    world.release(&ticket, 2);
    assert_eq!(world.decided(), "+1 +2");
}

#[test]
fn those_that_wait_are_decided_by_the_rules_of_the_moment() {
    let mut world = world();
    world.arrive(0, "user=a +2", 0);
    world.arrive(1, "user=a", 0);
    world.arrive(2, "route=a", 0);
    world.arrive(3, "route=a", 0);
    assert_eq!(world.decided(), "+0 +2");
    tests::replace_rules(&world.limiter, &RULES.replace("in_flight: 2", "in_flight: 3"));
    world.settle(1);
    assert_eq!(world.decided(), "+1");
    tests::replace_rules(
        &world.limiter,
        "domain: d\ndescriptors: [{key: user, rate_limit: {unlimited: true}}]",
    );
    world.settle(2);
    assert_eq!(world.decided(), "+3");
}

#[test]
fn a_reset_frees_the_slots_for_those_that_wait() {
    let mut world = world();
    world.arrive(0, "user=a +2", 0);
    world.arrive(1, "user=a", 0);
    assert_eq!(world.limiter.pin().reset(&request("user=a"), at(1)).map(|removed| removed.counters), Ok(1));
    world.settle(1);
    assert_eq!(world.decided(), "+0 +1");
}

#[test]
fn nothing_waits_beyond_the_end_of_the_queues() {
    let mut world = world();
    world.arrive(0, "route=a", 0);
    world.arrive(1, "route=a", 0);
    world.limiter.end_queues_at(at(50));
    world.settle(49);
    assert_eq!(world.decided(), "+0");
    world.arrive(2, "route=a", 49);
    world.settle(50);
    assert_eq!(world.decided(), "-2 -1");
}

#[test]
fn one_that_does_not_wait_is_denied_while_others_do() {
    let mut world = world();
    world.arrive(0, "user=a", 0);
    world.arrive(1, "user=a +2", 0);
    let pinned = world.limiter.pin();
    let (denied, peek) =
        (pinned.decide(&request("user=a"), at(1)), pinned.decide(&request("user=a ?"), at(1)));
    assert_eq!((denied.code, denied.statuses[0].remaining), (Code::OverLimit, 0));
    assert_eq!(denied.statuses[0].reset, Some(crate::limit::Reset::After(Duration::from_millis(9_999))));
    assert_eq!((peek.code, peek.statuses[0].remaining), (Code::Ok, 1));
    assert!(pinned.decide_unless_waits(&request("user=a"), at(1)).is_none());
    let fits = pinned.decide_unless_waits(&request("user=b"), at(1)).expect("it is decided");
    assert!(fits.slot.is_some());
}
