//! Hits that requests take, give back, and leave alone.

use super::*;

#[test]
fn a_limit_is_used_up_and_free_again_after_its_window() {
    check(
        &limiter(TWO_RULES),
        &[
            (0, "plan=free", &["ok 1"]),
            (100, "plan=free", &["ok 0"]),
            (250, "plan=free", &["over 0 750"]),
            (999, "plan=free", &["over 0 1"]),
            (1000, "plan=free", &["ok 1"]),
        ],
    );
}

#[test]
fn an_over_limit_descriptor_charges_no_sibling() {
    let limiter = limiter(TWO_RULES);
    check(
        &limiter,
        &[
            (0, "plan=free +2", &["ok 0"]),
            (0, "user=a; plan=free", &["ok 5", "over 0 1000"]),
            (0, "plan=free; user=a", &["over 0 1000", "ok 5"]),
            (0, "user=a", &["ok 4"]),
        ],
    );
}

#[test]
fn a_denied_request_leaves_no_counter_behind() {
    let limiter = limiter(TWO_RULES);
    check(&limiter, &[(0, "user=a; plan=free +3", &["ok 5", "over never"])]);
    assert_eq!(limiter.store().counters(), 0);
}

#[test]
fn descriptors_that_share_a_counter_are_decided_by_their_sum() {
    check(
        &limiter(TWO_RULES),
        &[
            (0, "user=a +3; user=a +3", &["over never", "over never"]),
            (0, "user=a +2; user=a +3", &["ok 0", "ok 0"]),
            (0, "user=a", &["over 0 60000"]),
        ],
    );
}

#[test]
fn more_hits_than_the_limit_can_hold_never_pass() {
    check(
        &limiter(TWO_RULES),
        &[(0, "user=a +6", &["over never"]), (0, "user=a +18446744073709551615", &["over never"])],
    );
}

#[test]
fn a_peek_reports_whether_one_more_hit_fits_and_takes_nothing() {
    check(
        &limiter(TWO_RULES),
        &[
            (0, "plan=free ?", &["ok 2"]),
            (0, "plan=free +2", &["ok 0"]),
            (0, "plan=free ?", &["over 0 1000"]),
            (0, "plan=free ?; user=a", &["over 0 1000", "ok 5"]),
        ],
    );
}

#[test]
fn hits_that_are_given_back_can_be_taken_again() {
    check(
        &limiter(TWO_RULES),
        &[
            (0, "user=a +5", &["ok 0"]),
            (0, "user=a -2", &["ok 2"]),
            (0, "user=a -18446744073709551615", &["ok 5"]),
            (0, "user=b -3", &["ok 5"]),
        ],
    );
}

#[test]
fn giving_back_in_a_denied_request_gives_nothing_back() {
    check(
        &limiter(TWO_RULES),
        &[
            (0, "user=a +5", &["ok 0"]),
            (0, "plan=free +2", &["ok 0"]),
            (0, "user=a -1; plan=free", &["ok 0", "over 0 1000"]),
            (0, "user=a", &["over 0 60000"]),
        ],
    );
}

#[test]
fn every_value_of_a_key_has_a_counter_of_its_own() {
    check(&limiter(TWO_RULES), &[(0, "user=a +5", &["ok 0"]), (0, "user=b", &["ok 4"])]);
}

/// A log of 5 per 10 s with 2 hits at 0 s and 3 at 5 s: giving back one of the newest and taking three fits once the two
/// oldest have left. The reset was computed as if nothing were given back: 9 s.
#[test]
fn the_reset_of_a_denied_request_includes_the_hits_it_gives_back() {
    let rules = "
domain: d
descriptors:
  - { key: log, rate_limit: { per: 10s, requests_per_unit: 5, algorithm: sliding_log } }
";
    check(
        &limiter(rules),
        &[
            (0, "log=a +2", &["ok 3"]),
            (5_000, "log=a +3", &["ok 0"]),
            (6_000, "log=a -1; log=a +3", &["ok 0", "over 0 4000"]),
            (9_999, "log=a -1; log=a +3", &["ok 0", "over 0 1"]),
            (10_000, "log=a -1; log=a +3", &["ok 0", "ok 0"]),
        ],
    );
}

/// Limits of one unit that a request brings along share a counter: each status was that of the first limit's number.
#[test]
fn limits_sent_with_a_request_report_their_own_remaining_hits() {
    use crate::limit::{RequestLimit, Unit};
    let remaining = |first, second, hits| {
        let limiter = limiter(TWO_RULES);
        let mut request = Request::new("d");
        for requests in [first, second] {
            let hits = Hits::Take(NonZeroU64::new(hits).unwrap());
            let limit = Some(RequestLimit { requests, unit: Unit::Day });
            request.push(Descriptor { hits, limit, ..descriptor("any=x") });
        }
        let pinned = limiter.pin();
        let decision = pinned.decide(&request, Timestamp::from_millis(MIDNIGHT_MILLIS));
        decision.statuses.iter().map(|status| (status.code, status.remaining)).collect::<Vec<_>>()
    };
    assert_eq!(remaining(9, 2, 2), [(Code::Ok, 9), (Code::OverLimit, 2)]);
    assert_eq!(remaining(9, 5, 1), [(Code::Ok, 7), (Code::Ok, 3)]);
    assert_eq!(remaining(5, 9, 1), [(Code::Ok, 3), (Code::Ok, 7)]);
}

/// A denial consumes nothing, but shows the demand on a counter with quota.
#[test]
fn hits_that_a_counter_with_quota_denies_are_noted() {
    let limiter = limiter(TWO_RULES);
    let (now, end) =
        (Timestamp::from_millis(MIDNIGHT_MILLIS), Timestamp::from_millis(MIDNIGHT_MILLIS + 30_000));
    let mut wanted = Request::new("d");
    wanted.push(descriptor("user=a"));
    let wanted = wanted.checked(&RequestLimits::default()).expect("a good request");
    let pinned = limiter.pin();
    let charges = pinned.grantable(&wanted).expect("charges");
    let charge = charges.iter().flatten().next().expect("a charge");
    pinned.with_counter(charge, now, |algorithm, leased| leased.assign(algorithm, 3, 0, end, now));
    check(
        &limiter,
        &[
            (0, "user=a", &["ok 1"]),
            (0, "user=a +4", &["over 1 60000"]),
            (0, "user=a; user=b +6", &["ok 1", "over never"]),
            (0, "user=a ?", &["ok 1"]),
        ],
    );
    let noted = pinned.with_leases(charge.key(), now, |_, leased| leased.assigned.expect("quota").demanded);
    assert_eq!(noted, Some(5));
}
