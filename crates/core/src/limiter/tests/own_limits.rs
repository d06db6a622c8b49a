//! Limits that requests bring along: counted as `request_limits` states.

use super::*;
use crate::limit::{RequestLimit, Unit};

const BUDGET: RequestLimit = RequestLimit { requests: 1_000, unit: Unit::Hour };

/// Sends a descriptor with a limit of its own; returns the status, and the ticket if it has one.
fn send_own(limiter: &Limiter, millis: u64, text: &str, own: RequestLimit) -> (String, Option<String>) {
    let mut request = Request::new("d");
    request.push(Descriptor { limit: Some(own), ..descriptor(text) });
    let pinned = limiter.pin();
    let decision = pinned.decide(&request, Timestamp::from_millis(MIDNIGHT_MILLIS + millis));
    (shown(&decision).concat(), decision.slot.map(|slot| slot.ticket.into()))
}

/// Requests that are checked at their starts and cost 700 at their ends; returns how many of ten are admitted.
fn admitted_of_ten(limiter: &Limiter, entries: &str, own: RequestLimit) -> usize {
    let is_admitted = |_: &u64| {
        let (status, _) = send_own(limiter, 0, &format!("{entries} ?"), own);
        let is_admitted = status.starts_with("ok");
        if is_admitted {
            send_own(limiter, 0, &format!("{entries} +700"), own);
        }
        is_admitted
    };
    (0..10).filter(is_admitted).count()
}

#[test]
fn a_budget_in_a_request_is_enforced_by_costs_at_the_end() {
    for keys in [
        "charge: always",
        "charge: always, algorithm: fixed_window, aligned: first_hit",
        "charge: always, precision: 60",
    ] {
        let limiter = limiter(&format!("domain: d\nrequest_limits: {{{keys}}}"));
        assert_eq!(admitted_of_ten(&limiter, "key=a", BUDGET), 2, "{keys}");
        assert_eq!(admitted_of_ten(&limiter, "key=a", BUDGET), 0, "{keys}");
        assert_eq!(admitted_of_ten(&limiter, "key=b", BUDGET), 2, "{keys}");
    }
    assert_eq!(
        admitted_of_ten(&limiter("domain: d"), "key=a", BUDGET),
        10,
        "what does not fit is not counted"
    );
}

#[test]
fn a_descriptor_states_how_its_own_limits_count() {
    let limiter = limiter(
        "domain: d\nrequest_limits: {charge: always}\ndescriptors:\n\
         - {key: exact, request_limits: {charge: admitted, algorithm: fixed_window}}\n\
         - {key: plan, descriptors: [{key: user, request_limits: {charge: always, algorithm: fixed_window, debt_max: 0}}]}\n",
    );
    assert_eq!(admitted_of_ten(&limiter, "key=a", BUDGET), 2);
    assert_eq!(admitted_of_ten(&limiter, "exact=a", BUDGET), 10);
    assert_eq!(admitted_of_ten(&limiter, "plan=p,user=a", BUDGET), 2);
    // What is given back shows what was counted: 1,400, and 1,000.
    assert_eq!(send_own(&limiter, 0, "key=a -500", BUDGET).0, "ok 100");
    assert_eq!(send_own(&limiter, 0, "plan=p,user=a -500", BUDGET).0, "ok 500");
    // The limit of the rule does not apply to it, and its number may change.
    let more = RequestLimit { requests: 2_000, ..BUDGET };
    assert_eq!(send_own(&limiter, 0, "plan=p,user=a ?", more).0, "ok 1500");
}

#[test]
fn a_budget_in_a_request_is_charged_its_estimate_and_then_the_cost() {
    let rules = "domain: d\nrequest_limits: {reserve: 400, max_hold: 10s}";
    let limiter = limiter(rules);
    let start = |millis| send_own(&limiter, millis, "key=a", BUDGET);
    let (first, ticket) = start(0);
    assert_eq!(
        (first.as_str(), start(0).0.as_str(), start(0).0.as_str()),
        ("ok 600", "ok 200", "over 200 4495500")
    );
    let ticket = ticket.expect("a ticket");
    // An end names its ticket, and a limit that it brings along does not matter.
    assert_eq!(send_own(&limiter, 1, &format!("key=a,slot={ticket} +100"), BUDGET).0, "none");
    assert_eq!(send_own(&limiter, 1, "key=a ?", BUDGET).0, "ok 500");
    // A renewal has the entries and the limit of its request.
    let ticket = start(2).1.expect("a ticket");
    assert_eq!(send_own(&limiter, 3, &format!("key=a,renew={ticket} +1"), BUDGET).0, "none");
    let small = RequestLimit { requests: 50, unit: Unit::Minute };
    assert_eq!(send_own(&limiter, 4, "key=b", small).0, "ok 0", "an estimate is at most the limit");
    replace_rules(&limiter, "domain: d");
    assert_eq!(send_own(&limiter, 5, "key=a ?", BUDGET).0, "ok 100", "what was counted stays");
}

#[test]
fn a_reload_that_changes_how_own_limits_count_keeps_what_was_used() {
    let limiter = limiter("domain: d\nrequest_limits: {charge: always}");
    assert_eq!(admitted_of_ten(&limiter, "key=a", BUDGET), 2);
    for keys in ["algorithm: fixed_window", "precision: 8", "algorithm: fixed_window, aligned: first_hit"] {
        replace_rules(
            &limiter,
            &format!("domain: d\ndescriptors: [{{key: key, request_limits: {{{keys}}}}}]"),
        );
        assert_eq!(
            send_own(&limiter, 0, "key=a ?", RequestLimit { requests: 1_500, ..BUDGET }).0,
            "ok 100",
            "{keys}"
        );
    }
}
