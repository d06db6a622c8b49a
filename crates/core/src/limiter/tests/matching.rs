//! Which limits a descriptor is held to.

use super::*;
use crate::limit::{RequestLimit, Unit};

#[test]
fn a_descriptor_without_a_rule_is_ok_without_a_limit() {
    check(&limiter(TWO_RULES), &[(0, "plan=paid", &["none"]), (0, "user=a,plan=free", &["none"])]);
    let mut elsewhere = Request::new("elsewhere");
    elsewhere.push(descriptor("user=a"));
    let limiter = limiter(TWO_RULES);
    let pinned = limiter.pin();
    assert_eq!(shown(&pinned.decide(&elsewhere, Timestamp::EPOCH)), ["none"]);
}

/// Envoy sends such a descriptor if a client omits all headers of actions with `skip_if_absent`. Refusing the request made Envoy admit it,
/// past all its other limits.
#[test]
fn a_descriptor_without_entries_has_no_limit_and_takes_none_from_the_others() {
    let limiter = limiter(TWO_RULES);
    let mut request = Request::new("d");
    request.push(Descriptor { entries: [].into_iter().collect(), limit: None, hits: Hits::ONE });
    request.push(descriptor("plan=free"));
    let request = request.checked(&RequestLimits::default()).expect("a good request");
    let pinned = limiter.pin();
    let decisions: Vec<Vec<String>> =
        (0..3).map(|_| shown(&pinned.decide(&request, Timestamp::from_millis(MIDNIGHT_MILLIS)))).collect();
    assert_eq!(decisions, [["none", "ok 1"], ["none", "ok 0"], ["none", "over 0 1000"]]);
}

#[test]
fn all_of_several_limits_must_admit_and_the_tightest_is_reported() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: user
    rate_limits:
      - { unit: second, requests_per_unit: 2, algorithm: fixed_window }
      - { unit: minute, requests_per_unit: 3, algorithm: fixed_window }
",
    );
    check(
        &limiter,
        &[
            (0, "user=a", &["ok 1"]),
            (0, "user=a", &["ok 0"]),
            (500, "user=a", &["over 0 500"]),
            (1000, "user=a", &["ok 0"]),
            // The second has room again, the minute has not: nothing is taken from either.
            (1000, "user=a", &["over 0 59000"]),
            (60_000, "user=a +2", &["ok 0"]),
        ],
    );
}

#[test]
fn a_replaced_limit_neither_denies_nor_counts() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: user
    rate_limit: { name: general, unit: second, requests_per_unit: 1, algorithm: fixed_window }
  - key: vip
    rate_limit: { unit: second, requests_per_unit: 3, algorithm: fixed_window, replaces: [{ name: general }] }
  - key: staff
    rate_limit: { unlimited: true, replaces: [{ name: general }] }
",
    );
    check(
        &limiter,
        &[
            (0, "user=a; vip=a", &["none", "ok 2"]),
            (0, "user=a; staff=a", &["none", "unlimited"]),
            (0, "user=a", &["ok 0"]),
            (0, "user=a; vip=a", &["none", "ok 1"]),
            (0, "user=a", &["over 0 1000"]),
        ],
    );
}

#[test]
fn values_of_a_shared_wildcard_have_one_counter_and_others_have_their_own() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: path
    value: /shared/*
    share_threshold: true
    rate_limit: { unit: second, requests_per_unit: 2, algorithm: fixed_window }
  - key: path
    value: /own/*
    rate_limit: { unit: second, requests_per_unit: 2, algorithm: fixed_window }
",
    );
    check(
        &limiter,
        &[
            (0, "path=/shared/a", &["ok 1"]),
            (0, "path=/shared/b", &["ok 0"]),
            (0, "path=/own/a", &["ok 1"]),
            (0, "path=/own/b", &["ok 1"]),
        ],
    );
}

#[test]
fn a_limit_that_the_request_brings_takes_the_rules_place() {
    let limiter = limiter(TWO_RULES);
    let own_limit = |requests, unit, expected: &str| {
        let mut request = Request::new("d");
        request.push(Descriptor { limit: Some(RequestLimit { requests, unit }), ..descriptor("user=a") });
        let pinned = limiter.pin();
        let decision = pinned.decide(&request, Timestamp::from_millis(MIDNIGHT_MILLIS));
        assert_eq!(shown(&decision), [expected]);
    };
    own_limit(2, Unit::Hour, "ok 1");
    own_limit(2, Unit::Hour, "ok 0");
    // Used hits stay used when the next request has another number.
    own_limit(3, Unit::Hour, "ok 0");
    own_limit(3, Unit::Minute, "ok 2");
    check(&limiter, &[(0, "user=a", &["ok 4"])]);
}
