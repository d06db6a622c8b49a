//! Requests in flight: slots taken by admitted requests, and released by their tickets.

use super::*;
use crate::{
    rules::{OverrideAction, OverrideLimit, OverrideRule},
    store::Key,
};
use proptest::prelude::*;
use std::sync::atomic::{AtomicI64, Ordering};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { algorithm: concurrency, requests_in_flight: 3, max_hold: 10s }
    descriptors:
      - { key: route, rate_limit: { algorithm: concurrency, requests_in_flight: 2, max_hold: 10s } }
  - { key: plan, rate_limit: { unit: minute, requests_per_unit: 4, algorithm: fixed_window } }
  - { key: slot, rate_limit: { unit: minute, requests_per_unit: 2, algorithm: fixed_window } }
";

/// Sends a request and returns the ticket of its slots, if it has any.
fn take(limiter: &Limiter, millis: u64, request: &str) -> Option<String> {
    let mut wanted = Request::new("d");
    request.split("; ").for_each(|text| wanted.push(descriptor(text)));
    let pinned = limiter.pin();
    let decision = pinned.decide(&wanted, Timestamp::from_millis(MIDNIGHT_MILLIS + millis));
    assert_eq!(decision.slot.is_some(), decision.slot.as_ref().is_some_and(|slot| slot.cost > 0));
    decision.slot.map(|slot| slot.ticket.into())
}

fn taken(limiter: &Limiter, millis: u64, request: &str) -> String {
    take(limiter, millis, request).unwrap_or_else(|| panic!("{request} is admitted"))
}

#[test]
fn a_slot_is_free_once_its_ticket_is_released_and_not_before() {
    let limiter = limiter(RULES);
    let first = taken(&limiter, 0, "user=a");
    taken(&limiter, 0, "user=a +2");
    assert_eq!(take(&limiter, 1, "user=a"), None);
    check(&limiter, &[(3, &format!("user=a,slot={first}"), &["none"]), (3, "user=a ?", &["ok 1"])]);
    // Released once: a repeated release does not free the slot of the next request.
    taken(&limiter, 3, "user=a");
    check(&limiter, &[(4, &format!("user=a,slot={first}"), &["none"]), (4, "user=a ?", &["over 0 1"])]);
    let TicketCounts { taken, released, unknown, expired, .. } = limiter.ticket_counts(HeldKind::Slot);
    assert_eq!((taken, released, unknown, expired), (3, 1, 1, 0));
}

#[test]
fn a_slot_that_is_never_released_is_free_after_max_hold() {
    let limiter = limiter(RULES);
    taken(&limiter, 0, "user=a +3");
    check(
        &limiter,
        &[
            (9_999, "user=a", &["over 0 1"]),
            (10_000, "user=a", &["ok 2"]),
            (10_000, "user=a +4", &["over never"]),
        ],
    );
    assert_eq!(limiter.ticket_counts(HeldKind::Slot).expired, 1);
}

/// The figures of the only limit that has any, after a pass of the sweeper.
fn swept(limiter: &Limiter, millis: u64) -> [u64; 4] {
    let now = Timestamp::from_millis(MIDNIGHT_MILLIS + millis);
    (0..limiter.store().shard_count()).for_each(|shard| limiter.sweep(shard, 1, now));
    let figures = limiter.slot_figures();
    assert_eq!(figures.len(), 2, "a limit has figures from the start");
    let used = figures.into_values().max_by_key(|figures| figures.in_flight + figures.expired);
    let SlotFigures { in_flight, oldest, expired, unknown } = used.expect("two");
    [in_flight, oldest.unwrap_or_default().as_millis() as u64, expired, unknown]
}

#[test]
fn the_sweeper_counts_what_is_in_flight_and_slots_that_expire_unused() {
    let limiter = limiter(RULES);
    assert_eq!(swept(&limiter, 0), [0; 4]);
    let first = taken(&limiter, 0, "user=a +2");
    taken(&limiter, 4_000, "user=b");
    assert_eq!(swept(&limiter, 5_000), [3, 5_000, 0, 0]);
    check(
        &limiter,
        &[(5_000, &format!("slot={first}"), &["none"]), (5_000, &format!("slot={first}"), &["none"])],
    );
    assert_eq!(swept(&limiter, 6_000), [1, 2_000, 0, 1]);
    // Expired when it is used again, and then counted once.
    taken(&limiter, 14_000, "user=b +2");
    assert_eq!(swept(&limiter, 14_000), [2, 0, 1, 1]);
    // Expired without traffic.
    assert_eq!(swept(&limiter, 24_999), [0, 0, 2, 1]);
    assert_eq!(swept(&limiter, 30_000), [0, 0, 2, 1]);
    assert_eq!(limiter.ticket_counts(HeldKind::Slot).expired, 2);
}

#[test]
fn what_is_in_flight_is_right_after_resets_and_changes_of_rules() {
    let limiter = limiter(RULES);
    taken(&limiter, 0, "user=a +2");
    replace_rules(&limiter, &RULES.replace("requests_in_flight: 3", "requests_in_flight: 1"));
    assert_eq!(swept(&limiter, 1_000), [2, 1_000, 0, 0]);
    let mut wanted = Request::new("d");
    wanted.push(descriptor("user=a"));
    let now = Timestamp::from_millis(MIDNIGHT_MILLIS + 2_000);
    limiter.pin().reset(&wanted, now).expect("the domain has rules");
    assert_eq!(swept(&limiter, 2_000), [0; 4]);
}

/// A full store drops expired counters to make room: counters with slots that nothing has released are left to the sweeper, which
/// counts them.
#[test]
fn slots_that_expire_in_a_full_store_are_counted() {
    let limiter = limiter_of(RULES, Semantics::Exact, 1, OnFull::Deny);
    taken(&limiter, 0, "user=a");
    assert_eq!(take(&limiter, 20_000, "user=b"), None, "until the sweeper has passed");
    assert_eq!(swept(&limiter, 20_000), [0, 0, 1, 0]);
    taken(&limiter, 20_000, "user=b");
}

#[test]
fn one_ticket_names_the_slots_of_all_limits_and_releases_them_by_itself() {
    let limiter = limiter(RULES);
    let ticket = taken(&limiter, 0, "user=a +2; user=a,route=x +2; plan=free");
    check(&limiter, &[(0, "user=a ?; user=a,route=x ?", &["ok 1", "over 0 10000"])]);
    check(&limiter, &[(1, &format!("slot={ticket}"), &["none"])]);
    check(&limiter, &[(1, "user=a ?; user=a,route=x ?", &["ok 3", "ok 2"])]);
    // The hits of a window stay used.
    check(&limiter, &[(1, "plan=free ?", &["ok 3"])]);
}

#[test]
fn a_denied_request_holds_no_slot_and_takes_none_from_its_siblings() {
    let limiter = limiter(RULES);
    taken(&limiter, 0, "user=a,route=x +2");
    assert_eq!(take(&limiter, 0, "user=a; user=a,route=x; plan=free"), None);
    check(&limiter, &[(0, "user=a ?; plan=free ?", &["ok 3", "ok 4"])]);
}

#[test]
fn negative_hits_with_a_ticket_release_a_part_and_without_one_nothing() {
    let limiter = limiter(RULES);
    let ticket = taken(&limiter, 0, "user=a +3");
    check(
        &limiter,
        &[
            (1, "user=a -3", &["none"]),
            (1, "user=a ?", &["over 0 9999"]),
            (1, &format!("user=a,slot={ticket} -1"), &["none"]),
            (1, "user=a ?", &["ok 1"]),
            (1, &format!("user=a,slot={ticket} ?"), &["none"]),
            (1, "user=a ?", &["ok 1"]),
            (1, &format!("user=a,slot={ticket} -9"), &["none"]),
            (1, "user=a ?", &["ok 3"]),
        ],
    );
}

/// A descriptor whose entry `slot` has another value, or whose domain has no such limit, is like all others.
#[test]
fn only_a_ticket_in_a_domain_with_requests_in_flight_is_a_release() {
    let with = limiter(RULES);
    check(&with, &[(0, "slot=17", &["ok 1"]), (0, "slot=slot-0011223344556677", &["ok 1"])]);
    let ticket = taken(&with, 0, "user=a");
    check(&with, &[(0, &format!("slot={ticket}"), &["none"])]);
    let without = limiter(TWO_RULES.replace("plan\n    value: free", "slot").as_str());
    check(
        &without,
        &[(0, &format!("slot={ticket}"), &["ok 1"]), (0, &format!("slot={ticket} +2"), &["over 1 1000"])],
    );
}

#[test]
fn tickets_are_not_guessed_from_one_another() {
    let limiter = limiter(RULES);
    let tickets = ["a", "a", "b"].map(|user| taken(&limiter, 0, &format!("user={user}")));
    let id = |ticket: &str| u64::from_str_radix(&ticket[5..21], 16).unwrap();
    for pair in tickets.windows(2) {
        let differing = (id(&pair[0]) ^ id(&pair[1])).count_ones();
        assert!((8..=56).contains(&differing), "{differing} bits of {pair:?}");
    }
    // The id of one slot with the counter of another.
    let forged = format!("{}{}", &tickets[0][..21], &tickets[2][21..]);
    check(&limiter, &[(0, &format!("slot={forged}"), &["none"]), (0, "user=b ?", &["ok 2"])]);
    assert_eq!(limiter.ticket_counts(HeldKind::Slot).unknown, 1);
}

#[test]
fn a_ticket_states_which_of_its_slots_are_in_a_store() {
    let (id, key) = ("0123456789abcdef", "00000000000000070000000000000009");
    let of = |text: &str| SlotRelease::of_ticket(text).map(|release| release.held.into_vec());
    let stored = |kind| Some(vec![(Held { kind, key: Key::from_halves(7, 9) }, 0x2af)]);
    assert_eq!(of(&format!("slot-{id}{key}s2af{key}")), stored(HeldKind::Slot));
    assert_eq!(of(&format!("slot-{id}w00000003{key}t2af{key}r{key}")), stored(HeldKind::Reservation));
    for text in [
        format!("slot-{id}{key}"),
        format!("slot-{id}"),
        format!("slot-{id}s2af"),
        format!("slot-{id}s400{key}"),
        format!("slot-{id}s2AF{key}"),
        format!("slot-{id}t400{key}"),
        format!("slot-{id}w0003{key}t2af{key}"),
        format!("slot-{id}s2af{key}s"),
        format!("slot-{id}s2af{}", &key[1..]),
        "slot-".to_owned(),
        format!("slot-{id}ä{key}"),
    ] {
        assert_eq!(of(&text), None, "{text}");
    }
}

#[test]
fn slots_stay_held_over_a_change_of_the_rules() {
    let limiter = limiter(RULES);
    let ticket = taken(&limiter, 0, "user=a +3");
    replace_rules(&limiter, &RULES.replace("in_flight: 3, max_hold: 10s", "in_flight: 4, max_hold: 2s"));
    check(&limiter, &[(0, "user=a", &["ok 0"]), (0, "user=a", &["over 0 2000"])]);
    check(&limiter, &[(2_000, "user=a ?", &["ok 1"]), (9_999, "user=a ?", &["ok 1"])]);
    check(&limiter, &[(9_999, &format!("slot={ticket}"), &["none"]), (9_999, "user=a ?", &["ok 4"])]);
}

/// The requests counted in the window are not in flight.
#[test]
fn hits_of_a_window_are_not_in_flight_after_a_change_of_the_algorithm() {
    let limiter = limiter(RULES);
    check(&limiter, &[(0, "plan=free +4", &["ok 0"])]);
    let in_flight = RULES.replace(
        "unit: minute, requests_per_unit: 4, algorithm: fixed_window",
        "algorithm: concurrency, requests_in_flight: 4",
    );
    replace_rules(&limiter, &in_flight);
    check(&limiter, &[(0, "plan=free", &["ok 3"])]);
}

#[test]
fn an_override_changes_the_number_of_requests_in_flight_and_keeps_their_slots() {
    let limiter = limiter(RULES);
    let ticket = taken(&limiter, 0, "user=a +3");
    let declared = OverrideRule {
        id: "more".to_owned(),
        domain: "d".to_owned(),
        entries: vec![("user".to_owned(), "a".to_owned())],
        action: OverrideAction::Limits(vec![OverrideLimit::new(5, "minute", None, None).unwrap()]),
    };
    let sources = [Source::file("test.yaml", RULES), Source::of_override(declared)];
    let next = limiter.update_rules().build(&sources, &LoadOptions::default());
    drop(next.unwrap_or_else(|errors| panic!("{errors}")).put_in_force());
    check(&limiter, &[(0, "user=a +2", &["ok 0"]), (1, &format!("slot={ticket}"), &["none"])]);
    check(&limiter, &[(1, "user=a ?", &["ok 3"])]);
    replace_rules(&limiter, RULES);
    check(&limiter, &[(1, "user=a ?", &["ok 1"])]);
}

#[test]
fn a_shadow_rule_admits_without_a_slot_what_does_not_fit() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - { key: k, shadow_mode: true, rate_limit: { algorithm: concurrency, requests_in_flight: 1 } }
",
    );
    taken(&limiter, 0, "k=v");
    assert_eq!(take(&limiter, 0, "k=v"), None);
    assert_eq!(send(&limiter, 0, "k=v").0, Code::Ok);
}

#[test]
fn a_reset_ends_the_slots_and_later_releases_change_nothing() {
    let limiter = limiter(RULES);
    let ticket = taken(&limiter, 0, "user=a +3");
    let now = Timestamp::from_millis(MIDNIGHT_MILLIS);
    assert_eq!(limiter.pin().reset_rule("d", Some("user"), now).map(|removed| removed.counters), Ok(1));
    taken(&limiter, 0, "user=a +3");
    check(&limiter, &[(0, &format!("slot={ticket}"), &["none"]), (0, "user=a ?", &["over 0 10000"])]);
}

#[test]
fn requests_in_flight_need_room_in_the_store_as_all_counters_do() {
    let limiter = limiter_of(RULES, Semantics::Exact, 1, OnFull::Deny);
    taken(&limiter, 0, "user=a");
    check(&limiter, &[(0, "user=b", &["over full"]), (0, "user=a", &["ok 1"])]);
}

/// Threads that take and release as fast as they can, under limits of several counters.
#[test]
fn by_any_number_of_threads_no_more_are_in_flight_than_the_limit() {
    let limiter = limiter(&RULES.replace("max_hold: 10s", "max_hold: 24h"));
    let in_flight: [AtomicI64; 2] = Default::default();
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let (limiter, in_flight) = (&limiter, &in_flight);
            scope.spawn(move || {
                for round in 0..2_000_u64 {
                    let request = ["user=a", "user=a; user=a,route=x"][(thread + round as usize) % 2];
                    let Some(ticket) = take(limiter, round, request) else { continue };
                    let own = &in_flight[..request.split("; ").count()];
                    for (counter, limit) in own.iter().zip([3, 2]) {
                        let now = counter.fetch_add(1, Ordering::SeqCst) + 1;
                        assert!(now <= limit, "{now} of {limit} in flight");
                    }
                    // One in eight ends twice.
                    own.iter().for_each(|counter| _ = counter.fetch_sub(1, Ordering::SeqCst));
                    for _ in 0..1 + u64::from(round % 8 == 0) {
                        send(limiter, round, &format!("slot={ticket}"));
                    }
                }
            });
        }
    });
    check(&limiter, &[(2_000, "user=a ?; user=a,route=x ?", &["ok 3", "ok 2"])]);
    let TicketCounts { taken, released, .. } = limiter.ticket_counts(HeldKind::Slot);
    assert_eq!(taken, released);
}

/// A request that was admitted, and its ticket.
struct Taken {
    /// Hits that its slots hold, of `user` and of `route`.
    users: [u64; 2],
    /// Whether the ticket names a slot there.
    named: [bool; 2],
    deadlines: [u64; 2],
    route: String,
    ticket: String,
}

impl Taken {
    fn is_held(&self, index: usize, now: u64) -> bool {
        self.users[index] > 0 && self.deadlines[index] > now
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take { hits: u64, of_route: u64 },
    Release { back: usize, part: Option<u64> },
    Renew { back: usize, is_peek: bool },
    Rules { in_flight: u64, hold: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..4u64, 0..3u64).prop_map(|(hits, of_route)| Step::Take { hits, of_route }),
        5 => (0..10usize, prop_oneof![4 => Just(None), 1 => (1..3u64).prop_map(Some)])
            .prop_map(|(back, part)| Step::Release { back, part }),
        4 => (0..10usize, prop::bool::weighted(0.2)).prop_map(|(back, is_peek)| Step::Renew { back, is_peek }),
        1 => (0..6u64, 1..15_000u64).prop_map(|(in_flight, hold)| Step::Rules { in_flight, hold }),
    ]
}

proptest! {
    /// Against a list of all requests: a request is admitted exactly if all of its counters have room beside the hits that
    /// are neither released nor past their deadlines, whatever releases are lost, repeated or reordered. A renewal moves the deadlines
    /// of a request exactly if all of its slots are held.
    #[test]
    fn requests_are_admitted_exactly_while_all_of_their_limits_have_room(
        steps in prop::collection::vec((0..4_000u64, step()), 1..60),
    ) {
        let (limiter, mut limits, mut holds, mut now) = (limiter(RULES), [3, 2], [10_000, 10_000], 0);
        let mut all: Vec<Taken> = Vec::new();
        for (after, step) in steps {
            now += after;
            match step {
                Step::Take { hits, of_route } => {
                    let of = [hits, of_route];
                    let used = |index: usize| {
                        all.iter().filter(|one| one.is_held(index, now)).map(|one| one.users[index]).sum::<u64>()
                    };
                    let fits = (0..2).all(|index| of[index] == 0 || used(index) + of[index] <= limits[index]);
                    let route = if of_route > 0 { format!("; user=a,route=x +{of_route}") } else { String::new() };
                    let ticket = take(&limiter, now, &format!("user=a +{hits}{route}"));
                    prop_assert_eq!(ticket.is_some(), fits);
                    let deadlines = holds.map(|hold| now + hold);
                    let named = of.map(|hits| hits > 0);
                    all.extend(ticket.map(|ticket| Taken { users: of, named, deadlines, route, ticket }));
                }
                Step::Release { back, part } => {
                    let Some(index) = all.len().checked_sub(back + 1) else { continue };
                    let part_text = part.map_or(String::new(), |hits| format!(" -{hits}"));
                    send(&limiter, now, &format!("user=a,slot={}{part_text}", all[index].ticket));
                    for held in &mut all[index].users {
                        *held -= part.unwrap_or(u64::MAX).min(*held);
                    }
                }
                Step::Renew { back, is_peek } => {
                    let Some(index) = all.len().checked_sub(back + 1) else { continue };
                    let one = &mut all[index];
                    let hits = if is_peek { " ?" } else { "" };
                    let with = format!(",renew={}{hits}", one.ticket);
                    let route = if one.route.is_empty() { String::new() } else { format!("; user=a,route=x{with}") };
                    let is_held = (0..2).all(|index| !one.named[index] || one.is_held(index, now));
                    let (code, _) = send(&limiter, now, &format!("user=a{with}{route}"));
                    prop_assert_eq!(code == Code::Ok, is_held);
                    if is_held && !is_peek {
                        let renewed = |index: usize| one.deadlines[index].max(now + holds[index]);
                        one.deadlines = [renewed(0), renewed(1)];
                    }
                }
                Step::Rules { in_flight, hold } => {
                    (limits[0], holds[0]) = (in_flight, hold);
                    let changed = format!("in_flight: {in_flight}, max_hold: {hold}ms }}\n    descriptors");
                    replace_rules(&limiter, &RULES.replace("in_flight: 3, max_hold: 10s }\n    descriptors", &changed));
                }
            }
        }
    }
}
