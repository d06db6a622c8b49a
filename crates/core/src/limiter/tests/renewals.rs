//! Renewals: deadlines of what a ticket names, extended by its holder.

use super::*;
use crate::{
    limit::Window,
    rules::{OverrideAction, OverrideRule},
};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { algorithm: concurrency, requests_in_flight: 3, max_hold: 10s, max_wait: 0s }
    descriptors:
      - { key: route, rate_limit: { algorithm: concurrency, requests_in_flight: 2, max_hold: 4s, max_wait: 0s } }
  - key: budget
    rate_limit: { unit: hour, requests_per_unit: 100, algorithm: fixed_window, reserve: 20, max_hold: 10s, on_lost_end: return }
  - { key: plan, rate_limit: { unit: minute, requests_per_unit: 4, algorithm: fixed_window } }
  - { key: renew, rate_limit: { unit: minute, requests_per_unit: 2, algorithm: fixed_window } }
";

fn ticket(limiter: &Limiter, millis: u64, request: &str) -> String {
    let mut wanted = Request::new("d");
    request.split("; ").for_each(|text| wanted.push(descriptor(text)));
    let pinned = limiter.pin();
    let decision = pinned.decide(&wanted, Timestamp::from_millis(MIDNIGHT_MILLIS + millis));
    decision.slot.unwrap_or_else(|| panic!("{request} has a ticket")).ticket.into()
}

/// Renews a ticket by descriptors with these entries; whether it is held.
fn renew(limiter: &Limiter, millis: u64, ticket: &str, entries: &[&str]) -> bool {
    let renewals: Vec<_> = entries.iter().map(|entries| format!("{entries},renew={ticket}")).collect();
    let (code, statuses) = send(limiter, millis, &renewals.join("; "));
    let expected = if code == Code::Ok { "none" } else { "over full" };
    assert_eq!(statuses, vec![expected; entries.len()]);
    code == Code::Ok
}

fn counts(limiter: &Limiter) -> [u64; 4] {
    let [slots, reservations] =
        [HeldKind::Slot, HeldKind::Reservation].map(|kind| limiter.ticket_counts(kind));
    [slots.renewed, slots.unknown_renewals, reservations.renewed, reservations.unknown_renewals]
}

#[test]
fn a_renewed_slot_is_held_for_max_hold_from_then_on_and_takes_nothing() {
    let limiter = limiter(RULES);
    let held = ticket(&limiter, 0, "user=a +2");
    assert!(renew(&limiter, 9_999, &held, &["user=a"]));
    check(&limiter, &[(9_999, "user=a ?", &["ok 1"]), (19_998, "user=a +2", &["over 1 1"])]);
    assert!(renew(&limiter, 19_998, &held, &["user=a"]));
    assert!(!renew(&limiter, 29_998, &held, &["user=a"]), "past its deadline");
    check(&limiter, &[(29_998, "user=a ?", &["ok 3"])]);
    assert_eq!(counts(&limiter), [2, 1, 0, 0]);
}

#[test]
fn a_holder_in_this_process_keeps_what_its_ticket_names_for_as_long_as_it_states() {
    let limiter = limiter(RULES);
    let held = ticket(&limiter, 0, "user=a +2; budget=b");
    let keep = |millis, seconds: u64| {
        let hold = Window::from_nanos(seconds * 1_000_000_000).unwrap();
        limiter.keep_held(&held, hold, Timestamp::from_millis(MIDNIGHT_MILLIS + millis));
    };
    keep(9_000, 10);
    check(&limiter, &[(18_999, "user=a ?", &["ok 1"]), (19_000, "user=a ?", &["ok 3"])]);
    keep(19_000, 10);
    assert_eq!(counts(&limiter), [1, 1, 1, 1], "the second one is too late");
}

/// Its counter was taken for the counter of the missing renewal.
#[test]
fn a_descriptor_without_the_ticket_is_no_part_of_its_renewal() {
    let limiter = limiter(RULES);
    let held = ticket(&limiter, 0, "user=a; user=a,route=r");
    let (code, statuses) = send(&limiter, 1, &format!("user=a,renew={held}; user=a,route=r"));
    assert_eq!((code, &*statuses[0]), (Code::OverLimit, "over full"));
    assert!(renew(&limiter, 2, &held, &["user=a", "user=a,route=r"]));
}

#[test]
fn a_released_or_forged_ticket_and_one_of_another_rule_are_not_renewed() {
    let limiter = limiter(RULES);
    let [held, released] = [0, 1].map(|millis| ticket(&limiter, millis, "user=a"));
    check(&limiter, &[(2, &format!("slot={released}"), &["none"])]);
    assert!(!renew(&limiter, 3, &released, &["user=a"]));
    let (last, rest) = held[21..].split_at(1);
    let forged = [
        format!("slot-0011223344556677{}", &held[21..]),
        format!("{}{}{rest}", &held[..21], if last == "0" { "1" } else { "0" }),
        format!("{}r{}", &held[..21], &held[21..]),
    ];
    for forged in &forged {
        assert!(!renew(&limiter, 3, forged, &["user=a"]), "{forged}");
    }
    for entries in ["user=b", "plan=free", "budget=a", "none=a"] {
        assert!(!renew(&limiter, 3, &held, &[entries]), "{entries}");
    }
    check(&limiter, &[(3, &format!("renew={held}"), &["over full"])]);
    check(&limiter, &[(9_999, "user=a ?", &["ok 2"]), (10_000, "user=a ?; plan=free ?", &["ok 3", "ok 4"])]);
    assert_eq!(counts(&limiter)[..2], [0, 8]);
}

#[test]
fn a_ticket_is_renewed_as_a_whole_or_not_at_all() {
    let limiter = limiter(RULES);
    let both = ["user=a", "user=a,route=x"];
    let held = ticket(&limiter, 0, "user=a; user=a,route=x");
    assert!(!renew(&limiter, 1_000, &held, &both[..1]), "the request had more descriptors");
    assert!(renew(&limiter, 3_999, &held, &both));
    check(&limiter, &[(7_998, "user=a ?; user=a,route=x +2", &["ok 2", "over 1 1"])]);
    // The slot of the route has ended: that of the user is not renewed.
    assert!(!renew(&limiter, 7_999, &held, &both));
    check(&limiter, &[(13_998, "user=a ?", &["ok 2"]), (13_999, "user=a ?", &["ok 3"])]);
}

#[test]
fn a_reservation_is_renewed_with_the_slots_of_its_ticket() {
    let limiter = limiter(RULES);
    let entries = ["user=a", "budget=b"];
    let held = ticket(&limiter, 0, "user=a; budget=b");
    assert!(renew(&limiter, 9_000, &held, &entries));
    check(&limiter, &[(18_999, "user=a ?; budget=b ?", &["ok 2", "ok 80"])]);
    check(&limiter, &[(18_999, &format!("slot={held} +7"), &["none"]), (19_000, "budget=b ?", &["ok 93"])]);
    assert!(!renew(&limiter, 19_000, &held, &entries));
    let held = ticket(&limiter, 19_000, "budget=b");
    assert!(renew(&limiter, 20_000, &held, &["budget=b"]));
    check(&limiter, &[(29_999, "budget=b ?", &["ok 73"]), (30_000, "budget=b ?", &["ok 93"])]);
    assert_eq!(counts(&limiter), [1, 1, 2, 1]);
}

#[test]
fn a_peek_of_a_renewal_returns_whether_all_is_held_and_renews_nothing() {
    let limiter = limiter(RULES);
    let held = ticket(&limiter, 0, "user=a +3");
    let peek = format!("user=a,renew={held} ?");
    check(&limiter, &[(9_999, &peek, &["none"]), (10_000, &peek, &["over full"])]);
    assert_eq!(counts(&limiter), [0; 4]);
}

#[test]
fn a_request_that_renews_what_is_not_held_charges_nothing_else() {
    let limiter = limiter(RULES);
    let held = ticket(&limiter, 0, "user=a");
    let with_others = format!("user=a,renew={held}; plan=free; user=b");
    check(&limiter, &[(9_000, &with_others, &["none", "ok 3", "ok 2"])]);
    check(&limiter, &[(19_000, &with_others, &["over full", "ok 3", "ok 3"])]);
    // If a request releases and renews one ticket, the release is made first.
    let held = ticket(&limiter, 20_000, "user=a");
    check(&limiter, &[(20_001, &format!("user=a,renew={held}; slot={held}"), &["over full", "none"])]);
    let text = format!("user=a,slot={held},renew={held}");
    check(&limiter, &[(20_001, &text, &["none"])]);
}

#[test]
fn only_a_ticket_in_a_domain_with_tickets_is_a_renewal() {
    let with = limiter(RULES);
    check(&with, &[(0, "renew=17", &["ok 1"]), (0, "renew=slot-0011223344556677", &["ok 1"])]);
    let ticket = ticket(&with, 0, "user=a");
    let without = limiter(TWO_RULES.replace("plan\n    value: free", "renew").as_str());
    check(&without, &[(0, &format!("renew={ticket}"), &["ok 1"])]);
}

#[test]
fn a_renewal_is_by_the_rules_in_force_and_never_moves_a_deadline_to_an_earlier_time() {
    let limiter = limiter(RULES);
    let held = ticket(&limiter, 0, "user=a +3");
    replace_rules(&limiter, &RULES.replace("in_flight: 3, max_hold: 10s", "in_flight: 3, max_hold: 2s"));
    assert!(renew(&limiter, 1_000, &held, &["user=a"]));
    check(&limiter, &[(9_999, "user=a", &["over 0 1"])]);
    assert!(renew(&limiter, 9_999, &held, &["user=a"]));
    check(&limiter, &[(11_998, "user=a", &["over 0 1"]), (11_999, "user=a ?", &["ok 3"])]);
    // Without a limit that holds, nothing is held.
    let held = ticket(&limiter, 12_000, "user=a +3");
    let windows = "algorithm: fixed_window, unit: hour, requests_per_unit: 3 }\n    desc";
    let of_slots = "algorithm: concurrency, requests_in_flight: 3, max_hold: 10s, max_wait: 0s }\n    desc";
    replace_rules(&limiter, &RULES.replace(of_slots, windows));
    assert!(!renew(&limiter, 12_000, &held, &["user=a"]));
}

#[test]
fn a_block_since_then_leaves_a_slot_to_its_holder() {
    let limiter = limiter(RULES);
    let held = ticket(&limiter, 0, "user=a");
    let blocked = OverrideRule {
        id: "blocked".into(),
        domain: "d".into(),
        entries: vec![("user".into(), "a".into())],
        action: OverrideAction::Denied,
    };
    put_overlays(&limiter, RULES, vec![Source::of_override(blocked)]);
    assert_eq!(send(&limiter, 0, "user=a").0, Code::OverLimit);
    assert!(renew(&limiter, 9_000, &held, &["user=a"]));
    replace_rules(&limiter, RULES);
    check(&limiter, &[(18_999, "user=a ?", &["ok 2"]), (19_000, "user=a ?", &["ok 3"])]);
}

/// Holders that renew in time stay in flight, beside others that renew late.
#[test]
fn by_any_number_of_threads_what_is_renewed_is_held_and_no_more_than_the_limit() {
    let limiter = limiter(&RULES.replace("max_hold: 10s", "max_hold: 24h"));
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let limiter = &limiter;
            scope.spawn(move || {
                for round in 0..500 {
                    let mut wanted = Request::new("d");
                    wanted.push(descriptor("user=a"));
                    let pinned = limiter.pin();
                    let decision = pinned.decide(&wanted, Timestamp::from_millis(MIDNIGHT_MILLIS + round));
                    let Some(slot) = decision.slot else { continue };
                    for _ in 0..thread % 4 {
                        assert!(renew(limiter, round, &slot.ticket, &["user=a"]));
                    }
                    send(limiter, round, &format!("slot={}", slot.ticket));
                    assert!(!renew(limiter, round, &slot.ticket, &["user=a"]));
                }
            });
        }
    });
    check(&limiter, &[(500, "user=a ?", &["ok 3"])]);
}
