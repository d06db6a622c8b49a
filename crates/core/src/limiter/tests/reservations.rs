//! Estimates that are charged when requests start, and their actual costs, which the ends name.

use super::*;
use crate::rules::{OverrideAction, OverrideLimit, OverrideRule};
use std::sync::atomic::{AtomicU64, Ordering};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 100, algorithm: fixed_window, reserve: 20, max_hold: 10s }
    descriptors:
      - { key: route, rate_limit: { unit: hour, requests_per_unit: 50, algorithm: fixed_window, reserve: 30 } }
  - key: bytes
    rate_limit: { unit: minute, requests_per_unit: 1000, algorithm: sliding_log, reserve: hits, max_hold: 10s, on_lost_end: return }
  - key: both
    rate_limits:
      - { name: tokens, unit: hour, requests_per_unit: 100, algorithm: fixed_window, reserve: 20 }
      - { name: flights, algorithm: concurrency, requests_in_flight: 2, max_wait: 0s }
      - { name: calls, unit: hour, requests_per_unit: 9, algorithm: fixed_window }
  - { key: plan, rate_limit: { unit: hour, requests_per_unit: 1, algorithm: fixed_window } }
";

/// Sends a request, and returns its code and its ticket, if it has one.
fn decide(limiter: &Limiter, millis: u64, request: &str) -> (Code, Option<String>) {
    let mut wanted = Request::new("d");
    request.split("; ").for_each(|text| wanted.push(descriptor(text)));
    let pinned = limiter.pin();
    let decision = pinned.decide(&wanted, Timestamp::from_millis(MIDNIGHT_MILLIS + millis));
    (decision.code, decision.slot.map(|slot| slot.ticket.into()))
}

fn start(limiter: &Limiter, millis: u64, request: &str) -> String {
    decide(limiter, millis, request).1.unwrap_or_else(|| panic!("{request} has a ticket"))
}

/// Ends the request of a ticket with hits as a descriptor has them.
fn end(limiter: &Limiter, millis: u64, ticket: &str, hits: &str) {
    check(limiter, &[(millis, &format!("user=a,slot={ticket} {hits}"), &["none"])]);
}

fn counts(limiter: &Limiter) -> TicketCounts {
    limiter.ticket_counts(HeldKind::Reservation)
}

#[test]
fn a_start_charges_the_estimate_and_its_end_the_actual_cost_once() {
    let limiter = limiter(RULES);
    let ticket = start(&limiter, 0, "user=a");
    check(&limiter, &[(1, "user=a ?", &["ok 80"])]);
    end(&limiter, 2, &ticket, "+7");
    check(&limiter, &[(3, "user=a ?", &["ok 93"])]);
    for hits in ["+50", "-1", "?"] {
        end(&limiter, 4, &ticket, hits);
    }
    end(&limiter, 5, "slot-0011223344556677r00112233445566770011223344556677", "+50");
    check(&limiter, &[(6, "user=a ?", &["ok 93"])]);
    let TicketCounts { taken, released, unknown, expired, uncorrected, .. } = counts(&limiter);
    assert_eq!((taken, released, unknown, expired, uncorrected), (1, 1, 4, 0, 0));
}

#[test]
fn an_actual_cost_beyond_the_limit_is_a_debt_that_later_requests_wait_for() {
    let limiter = limiter(RULES);
    let ticket = start(&limiter, 0, "user=a");
    end(&limiter, 1_000, &ticket, "+250");
    check(&limiter, &[(1_000, "user=a", &["over 0 3599000"]), (3_600_000, "user=a", &["ok 80"])]);
}

#[test]
fn a_cost_of_zero_gives_all_back_and_negative_hits_as_many() {
    let limiter = limiter(RULES);
    let ticket = start(&limiter, 0, "user=a");
    end(&limiter, 1, &ticket, "?");
    check(&limiter, &[(1, "user=a ?", &["ok 100"])]);
    let ticket = start(&limiter, 1, "user=a");
    end(&limiter, 1, &ticket, "-15");
    check(&limiter, &[(1, "user=a ?", &["ok 95"])]);
}

#[test]
fn an_end_that_never_arrives_keeps_the_estimate_or_returns_it() {
    let limiter = limiter(RULES);
    let late = [start(&limiter, 0, "user=a"), start(&limiter, 0, "bytes=a +900")];
    check(&limiter, &[(9_999, "user=a ?; bytes=a +200", &["ok 80", "over 100 1"])]);
    late.iter().for_each(|ticket| end(&limiter, 10_000, ticket, "+1"));
    check(&limiter, &[(10_000, "user=a ?; bytes=a ?", &["ok 80", "ok 1000"])]);
    // Counted when their counters are used again.
    start(&limiter, 10_000, "bytes=a +1000");
    assert_eq!((counts(&limiter).unknown, counts(&limiter).expired, counts(&limiter).released), (2, 2, 0));
}

/// A full store drops expired counters to make room: counters with open reservations are left to the sweeper, which counts them.
#[test]
fn ends_of_keys_without_another_request_are_counted_as_lost() {
    let limiter = limiter_of(RULES, Semantics::Exact, 1, OnFull::Deny);
    start(&limiter, 0, "bytes=a +900");
    start(&limiter, 0, "bytes=a +100");
    let at = |seconds: u64| Timestamp::from_millis(MIDNIGHT_MILLIS + 1_000 * seconds);
    let shards = limiter.store().shard_count();
    let sweep = |seconds: u64| {
        (0..shards).for_each(|shard| limiter.sweep(shard, 1, at(seconds)));
        counts(&limiter).expired
    };
    assert_eq!(sweep(5), 0);
    // Each search takes the next shard. Searches of one second are bounded.
    (0..shards as u64)
        .for_each(|second| _ = limiter.store().search_room(std::iter::empty(), at(120 + second)));
    assert_eq!((sweep(10_000), sweep(10_001)), (2, 2));
    let ticket = start(&limiter, 10_001_000, "bytes=b +1");
    end(&limiter, 10_001_000, &ticket, "+1");
    assert_eq!(sweep(20_000), 2);
}

#[test]
fn hits_are_corrected_at_their_date() {
    let limiter = limiter(RULES);
    let ticket = start(&limiter, 0, "bytes=a +900");
    end(&limiter, 9_000, &ticket, "+300");
    check(&limiter, &[(59_999, "bytes=a ?", &["ok 700"]), (60_000, "bytes=a ?", &["ok 1000"])]);
}

#[test]
fn one_ticket_names_all_limits_that_reserve_and_the_slots() {
    let limiter = limiter(RULES);
    let ticket = start(&limiter, 0, "user=a; user=a,route=x; both=b");
    check(&limiter, &[(0, "user=a ?; user=a,route=x ?; both=b ?", &["ok 80", "over 20 3600000", "ok 1"])]);
    // The number of tokens is the cost of both; the slot is free, and the call stays counted.
    end(&limiter, 1, &ticket, "+5");
    check(&limiter, &[(1, "user=a ?; user=a,route=x ?; both=b ?", &["ok 95", "ok 45", "ok 2"])]);
    // A cost of zero ends the request too.
    let ticket = start(&limiter, 1, "both=b");
    end(&limiter, 1, &ticket, "?");
    check(&limiter, &[(1, "both=b ?", &["ok 2"])]);
}

#[test]
fn the_first_end_of_a_ticket_in_a_request_counts() {
    let limiter = limiter(RULES);
    let ticket = start(&limiter, 0, "user=a");
    let ends = format!("user=a,slot={ticket} +7; slot={ticket} ?");
    check(&limiter, &[(1, &ends, &["none", "none"]), (1, "user=a ?", &["ok 93"])]);
    assert_eq!(counts(&limiter).unknown, 0);
}

#[test]
fn a_denied_request_reserves_nothing() {
    let limiter = limiter(RULES);
    assert_eq!(decide(&limiter, 0, "plan=p +2; user=a; both=b"), (Code::OverLimit, None));
    check(&limiter, &[(0, "user=a ?; both=b ?", &["ok 100", "ok 2"])]);
    // A peek stands for the hits of a start.
    (0..4).for_each(|_| _ = start(&limiter, 0, "user=a"));
    check(&limiter, &[(0, "user=a ?", &["ok 20"])]);
    let ticket = start(&limiter, 0, "user=a");
    end(&limiter, 0, &ticket, "+1");
    check(&limiter, &[(0, "user=a ?", &["over 19 3600000"]), (0, "user=a", &["over 19 3600000"])]);
}

#[test]
fn a_cancelled_start_is_given_back_as_a_whole() {
    let limiter = limiter(RULES);
    let ticket = start(&limiter, 0, "user=a; both=b");
    let now = Timestamp::from_millis(MIDNIGHT_MILLIS);
    assert!(limiter.cancel_start(&ticket, now).is_some());
    assert!(limiter.cancel_start(&ticket, now).is_none());
    check(&limiter, &[(0, "user=a ?; both=b ?", &["ok 100", "ok 2"])]);
}

/// The decision log orders lines by this number: another thread may decide at an earlier time, and find the counter changed.
#[test]
fn an_end_past_its_deadline_has_the_number_of_its_change() {
    let limiter = limiter(RULES).with_numbered_decisions();
    let ticket = start(&limiter, 0, "both=b");
    let late = Timestamp::from_millis(MIDNIGHT_MILLIS + 86_400_000);
    let first = limiter.store().next_number();
    let number = limiter.cancel_start(&ticket, late).expect("a change");
    assert!((first + 1..limiter.store().next_number()).contains(&number));
    assert!(limiter.cancel_start(&ticket, late).is_none());
    assert_eq!((counts(&limiter).released, limiter.ticket_counts(HeldKind::Slot).released), (0, 0));
}

#[test]
fn a_report_counts_its_hits_and_reserves_nothing() {
    let limiter = limiter(RULES);
    let mut report = Request::new("d");
    report.push(descriptor("user=a +7"));
    let now = Timestamp::from_millis(MIDNIGHT_MILLIS);
    assert_eq!(limiter.pin().decide(&report.reporting(), now).slot, None);
    check(&limiter, &[(0, "user=a ?", &["ok 93"])]);
}

/// The rules change while a request is in flight: its estimate counts, and its end corrects it.
#[test]
fn an_end_after_the_rules_changed_corrects_the_estimate() {
    for (changed, before, after) in [
        (RULES.replace("per_unit: 100", "per_unit: 60"), "ok 40", "ok 53"),
        (
            RULES.replace("unit: hour, requests_per_unit: 100", "unit: day, requests_per_unit: 100"),
            "ok 80",
            "ok 93",
        ),
        (RULES.replace("fixed_window, reserve: 20", "token_bucket, reserve: 20"), "ok 80", "ok 93"),
        (RULES.replace(", reserve: 20, max_hold: 10s", ""), "ok 80", "ok 93"),
    ] {
        let limiter = limiter(RULES);
        let ticket = start(&limiter, 0, "user=a");
        replace_rules(&limiter, &changed);
        check(&limiter, &[(0, "user=a ?", &[before])]);
        end(&limiter, 0, &ticket, "+7");
        check(&limiter, &[(0, "user=a ?", &[after])]);
        // Ended under the former rules, and converted afterwards.
        let limiter = limiter_of(RULES, Semantics::Exact, 1000, OnFull::Deny);
        let ticket = start(&limiter, 0, "user=a");
        replace_rules(&limiter, &changed);
        end(&limiter, 0, &ticket, "+7");
        check(&limiter, &[(0, "user=a ?", &[after])]);
    }
}

#[test]
fn an_override_reserves_as_its_rule_and_never_more_than_it_admits() {
    let limiter = limiter(RULES);
    let ticket = start(&limiter, 0, "user=a");
    let declared = OverrideRule {
        id: "lower".into(),
        domain: "d".into(),
        entries: vec![("user".into(), "a".into())],
        action: OverrideAction::Limits(vec![OverrideLimit::new(15, "hour", None, None).unwrap()]),
    };
    put_overlays(&limiter, RULES, vec![Source::of_override(declared)]);
    check(&limiter, &[(0, "user=a", &["over 0 3600000"])]);
    end(&limiter, 0, &ticket, "?");
    let ticket = start(&limiter, 0, "user=a");
    check(&limiter, &[(0, "user=a ?", &["over 0 3600000"])]);
    end(&limiter, 0, &ticket, "+4");
    check(&limiter, &[(0, "user=a +1", &["over 11 3600000"])]);
}

#[test]
fn a_reset_forgets_reservations_and_their_ends_are_unknown() {
    let limiter = limiter(RULES);
    let ticket = start(&limiter, 0, "user=a");
    let mut request = Request::new("d");
    request.push(descriptor("user=a"));
    let now = Timestamp::from_millis(MIDNIGHT_MILLIS);
    assert_eq!(limiter.pin().reset(&request, now).map(|removed| removed.counters), Ok(1));
    end(&limiter, 0, &ticket, "+90");
    check(&limiter, &[(0, "user=a ?", &["ok 100"])]);
    assert_eq!(counts(&limiter).unknown, 1);
}

#[test]
fn without_room_for_its_counter_a_request_has_no_ticket() {
    let limiter = limiter_of(RULES, Semantics::Exact, 1, OnFull::Allow);
    start(&limiter, 0, "user=a");
    assert_eq!(decide(&limiter, 0, "user=b"), (Code::Ok, None));
}

#[test]
fn a_shadow_rule_reserves_what_fits() {
    let limiter = limiter(&RULES.replace("  - key: bytes", "  - key: bytes\n    shadow_mode: true"));
    let ticket = start(&limiter, 0, "bytes=a +900");
    assert_eq!(decide(&limiter, 0, "bytes=a +900"), (Code::Ok, None));
    end(&limiter, 0, &ticket, "+1");
    check(&limiter, &[(0, "bytes=a ?", &["ok 999"])]);
}

/// A hundred concurrent requests of unknown cost. If no estimate is too low, spending never exceeds the budget; otherwise by at most the
/// sum of the errors in flight.
#[test]
fn a_budget_is_exceeded_by_no_more_than_the_errors_of_the_estimates() {
    const BUDGET: u64 = 1_000;
    let rules = "
domain: d
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 1000, algorithm: fixed_window, reserve: 20 } }
";
    let now = Timestamp::from_millis(MIDNIGHT_MILLIS);
    for (least, most) in [(0, 20), (0, 37), (37, 37)] {
        let limiter = limiter(rules);
        let (spent, rounds) = (AtomicU64::new(0), 10);
        let threads: u64 = 100;
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (limiter, spent) = (&limiter, &spent);
                scope.spawn(move || {
                    for round in 0..rounds {
                        let (code, ticket) = decide(limiter, 0, "user=a");
                        let Some(ticket) = ticket.filter(|_| code == Code::Ok) else { continue };
                        let cost = least + (thread * 31 + round * 17) % (most - least + 1);
                        spent.fetch_add(cost, Ordering::Relaxed);
                        let hits = if cost == 0 { "?".to_owned() } else { format!("+{cost}") };
                        let text = format!("slot={ticket} {hits}");
                        let mut end = Request::new("d");
                        end.push(descriptor(&text));
                        limiter.pin().decide(&end, now);
                    }
                });
            }
        });
        let spent = spent.into_inner();
        // Requests in flight when the last was admitted: each had its estimate, which fitted.
        let in_flight = threads.min(BUDGET / 20);
        let error = in_flight * u64::saturating_sub(most, 20);
        assert!(spent <= BUDGET + error, "{spent} of {BUDGET}");
        let mut peek = Request::new("d");
        peek.push(descriptor("user=a ?"));
        let left = limiter.pin().decide(&peek, now).statuses[0].remaining;
        assert_eq!(u64::from(left), BUDGET.saturating_sub(spent), "nothing else is charged");
        assert!(spent > BUDGET - 20 - most, "{spent} of {BUDGET}: the budget is used");
    }
}

/// An end dated all hits beyond the declared number at the newest of the others, though a schedule admitted more.
#[test]
fn an_end_keeps_the_times_of_a_log_whose_schedule_admits_more_than_the_limit() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: user
    rate_limit:
      per: 40s
      requests_per_unit: 1
      algorithm: sliding_log
      reserve: 1
      schedule: [{hours: '00:00-12:00', days: wed, requests_per_unit: 4}]
",
    );
    let ticket = start(&limiter, 0, "user=a");
    for millis in [10_000, 20_000, 30_000] {
        start(&limiter, millis, "user=a");
    }
    end(&limiter, 35_000, &ticket, "+2");
    check(
        &limiter,
        &[
            (36_000, "user=a", &["over 0 4000"]),
            (40_000, "user=a ?", &["ok 1"]),
            (50_000, "user=a ?", &["ok 2"]),
        ],
    );
}
