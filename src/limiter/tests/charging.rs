//! What a request takes, gives back, and leaves alone.

use super::*;

#[test]
fn a_limit_is_used_up_and_comes_back() {
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
fn a_peek_tells_whether_one_more_would_pass_and_takes_nothing() {
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
