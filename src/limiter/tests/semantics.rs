//! Rules that deny or count in ways of their own.

use super::*;

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
            (0, "tokens=a +1; plan=a", &["ok 0", "over 0 1000"]),
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
