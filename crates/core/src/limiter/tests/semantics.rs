//! Rules that deny or count in ways of their own.

use super::*;
use crate::limit::{RequestLimit, Unit};

#[test]
fn a_shadow_rule_never_denies_and_counts_only_hits_it_would_admit() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: user
    shadow_mode: true
    rate_limit: { unit: second, requests_per_unit: 2, algorithm: fixed_window }
",
    );
    check(
        &limiter,
        &[
            (0, "user=a +2", &["ok 0"]),
            (0, "user=a", &["ok 0"]),
            (1000, "user=a +3", &["ok 2"]),
            (1000, "user=a", &["ok 1"]),
        ],
    );
}

#[test]
fn global_shadow_admits_and_still_reports_each_status() {
    let store = StoreSettings { seed: Seed::from_bytes([9; 16]), counters_max: 1000, on_full: OnFull::Deny };
    let limiter = Limiter::new(rule_set(TWO_RULES, Semantics::Exact), store, true);
    assert_eq!(send(&limiter, 0, "plan=free +2"), (Code::Ok, vec!["ok 0".to_owned()]));
    assert_eq!(send(&limiter, 0, "plan=free"), (Code::Ok, vec!["over 0 1000".to_owned()]));
}

#[test]
fn quota_rules_deny_only_when_all_of_them_are_over() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: a
    quota_mode: true
    rate_limit: { unit: second, requests_per_unit: 1, algorithm: fixed_window }
  - key: b
    quota_mode: true
    rate_limit: { unit: second, requests_per_unit: 2, algorithm: fixed_window }
",
    );
    let check = |expected: Code, statuses: &[&str]| {
        assert_eq!(
            send(&limiter, 0, "a=x; b=x"),
            (expected, statuses.iter().map(|s| (*s).to_owned()).collect())
        );
    };
    check(Code::Ok, &["ok 0", "ok 1"]);
    check(Code::Ok, &["over 0 1000", "ok 0"]);
    check(Code::OverLimit, &["over 0 1000", "over 0 1000"]);
}

#[test]
fn a_quota_in_shadow_mode_leaves_the_other_quotas_in_force() {
    let quotas = "
domain: d
descriptors:
  - { key: own, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: trial, quota_mode: true, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
";
    let exact = limiter(quotas);
    let codes = |limiter: &Limiter, request| [0, 1, 2].map(|at| send(limiter, at, request).0);
    assert_eq!(codes(&exact, "own=b; trial=b"), [Code::Ok, Code::OverLimit, Code::OverLimit]);
    assert_eq!(codes(&exact, "trial=c"), [Code::Ok; 3]);
    let compatible = limiter_of(quotas, Semantics::Reference, 1000, OnFull::Deny);
    assert_eq!(
        codes(&compatible, "own=b; trial=b"),
        [Code::Ok; 3],
        "never over, and therefore all quotas never are"
    );
}

#[test]
fn a_post_paid_rule_counts_beyond_the_limit_even_when_a_sibling_denies() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: tokens
    rate_limit: { unit: minute, requests_per_unit: 10, algorithm: fixed_window, charge: always }
  - key: plan
    rate_limit: { unit: second, requests_per_unit: 1, algorithm: fixed_window }
",
    );
    check(
        &limiter,
        &[
            (0, "tokens=a +8", &["ok 2"]),
            (0, "tokens=a +8", &["over 0 60000"]),
            (0, "tokens=a -7", &["ok 1"]),
            (0, "plan=a", &["ok 0"]),
            // The denial has used up the tokens.
            (0, "tokens=a +1; plan=a", &["ok 0", "over 0 60000"]),
        ],
    );
}

#[test]
fn the_references_semantics_charge_denied_requests_and_check_at_exactly_the_limit() {
    let yaml = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 5 }
";
    let limiter = limiter_of(yaml, Semantics::Reference, 1000, OnFull::Deny);
    check(
        &limiter,
        &[
            (0, "user=a +4", &["ok 1"]),
            (0, "user=a", &["ok 0"]),
            (0, "user=a ?", &["ok 0"]),
            (1500, "user=a", &["over 0 58500"]),
            (1500, "user=a ?", &["over 0 58500"]),
            (1500, "user=a -1", &["ok 0"]),
            (1500, "user=a ?", &["ok 0"]),
        ],
    );
}

const REFERENCE: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { unit: minute, requests_per_unit: 5 } }
  - { key: plan, value: gold_x, rate_limit: { unit: hour, requests_per_unit: 3 } }
  - { key: a, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: w*, share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 2 } }
";

fn reference(compat: Compat) -> Limiter {
    limiter_of(REFERENCE, Semantics::Reference, 1000, OnFull::Deny).with_compat(compat)
}

#[test]
fn a_counter_twice_in_a_request_is_charged_in_order_as_by_the_reference() {
    let limiter = reference(Compat::default());
    check(
        &limiter,
        &[
            (0, "user=a +3; user=a +3", &["ok 2", "over 0 60000"]),
            (0, "user=b +2; user=b ?; user=b +3; user=b ?", &["ok 3", "ok 3", "ok 0", "ok 0"]),
            (0, "user=b +1; user=b ?", &["over 0 60000", "over 0 60000"]),
        ],
    );
}

#[test]
fn rules_of_the_reference_are_found_by_joined_texts_and_share_counters_by_them() {
    let limiter = reference(Compat::default());
    check(
        &limiter,
        &[
            (0, "plan=gold_x", &["ok 2"]),
            (0, "plan_gold=x", &["ok 1"]),
            (0, "plan_gold=y", &["none"]),
            (0, "user_a=x", &["none"]),
            (0, "wall=x", &["ok 1"]),
            (0, "w=x", &["ok 1"]),
            (0, "wall=y", &["ok 0"]),
        ],
    );
}

#[test]
fn a_requests_own_limit_shares_the_counter_of_a_rule_of_the_same_unit_with_the_reference() {
    let limiter = reference(Compat::default());
    check(&limiter, &[(0, "user=a +4", &["ok 1"])]);
    let decide = |requests, unit| {
        let mut request = Request::new("d");
        request.push(Descriptor { limit: Some(RequestLimit { requests, unit }), ..descriptor("user=a") });
        shown(&limiter.pin().decide(&request, Timestamp::from_millis(MIDNIGHT_MILLIS)))
    };
    assert_eq!(decide(7, Unit::Minute), ["ok 2"]);
    assert_eq!(decide(7, Unit::Hour), ["ok 6"], "another window is another counter");
    check(&limiter, &[(0, "user=a", &["over 0 60000"])]);
    assert_eq!(decide(7, Unit::Minute), ["ok 0"]);
}

#[test]
fn in_quota_mode_a_request_is_denied_only_if_all_descriptors_are_over() {
    let limiter = reference(Compat { quota_mode: true, stop_counting: false });
    assert_eq!(send(&limiter, 0, "user=a +9").0, Code::OverLimit);
    assert_eq!(send(&limiter, 0, "user=a; plan=gold_x").0, Code::Ok);
    assert_eq!(
        send(&limiter, 0, "user=a; none=x").0,
        Code::Ok,
        "a descriptor without a limit is a quota too"
    );
    assert_eq!(send(&limiter, 0, "user=a; free=x").0, Code::OverLimit, "an unlimited one is not");
}

#[test]
fn counting_stops_for_descriptors_within_their_limits_beside_one_that_is_over() {
    let limiter = reference(Compat { quota_mode: false, stop_counting: true });
    check(
        &limiter,
        &[
            (0, "user=a +6; plan=gold_x +2", &["over 0 60000", "ok 3"]),
            (0, "plan=gold_x +3", &["ok 0"]),
            // The first would exceed its limit, so the second is not counted: both are over what the first counts.
            (0, "user=b +6; user=b +3", &["over 0 60000", "over 0 60000"]),
            (0, "user=c +3; user=c +3", &["ok 2", "over 0 60000"]),
        ],
    );
}
