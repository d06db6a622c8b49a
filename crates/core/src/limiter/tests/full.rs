//! Decisions in a full store.

use super::*;

#[test]
fn when_full_newcomers_are_denied_and_live_counters_go_on() {
    let limiter = limiter_of(TWO_RULES, Semantics::Exact, 2, OnFull::Deny);
    check(
        &limiter,
        &[
            (0, "user=a +4", &["ok 1"]),
            (0, "user=b +5", &["ok 0"]),
            (0, "user=c", &["over full"]),
            // A peek, by which `explain` and operators see it, has the same verdict.
            (0, "user=c ?", &["over full"]),
            (0, "user=a ?", &["ok 1"]),
            (0, "user=a; user=c", &["ok 1", "over full"]),
            (0, "user=b", &["over 0 60000"]),
            (0, "user=a", &["ok 0"]),
        ],
    );
    assert_eq!(limiter.store().counters(), 2);
    // A minute on, the swept make room.
    for shard in 0..limiter.store().shard_count() {
        limiter.store().sweep(shard, usize::MAX, Timestamp::from_millis(MIDNIGHT_MILLIS + 61_000));
    }
    assert_eq!(limiter.store().counters(), 0);
    check(&limiter, &[(61_000, "user=c ?", &["ok 5"]), (61_000, "user=c; user=d", &["ok 4", "ok 4"])]);
}

#[test]
fn when_full_newcomers_are_admitted_uncounted_if_so_set() {
    let limiter = limiter_of(TWO_RULES, Semantics::Exact, 1, OnFull::Allow);
    check(
        &limiter,
        &[
            (0, "user=a +5", &["ok 0"]),
            (0, "user=b", &["ok 5"]),
            (0, "user=b ?", &["ok 5"]),
            (0, "user=b", &["ok 5"]),
            (0, "user=a", &["over 0 60000"]),
        ],
    );
    assert_eq!(limiter.store().counters(), 1);
}
