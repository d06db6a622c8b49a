//! Decisions in a full store.

use super::*;
use crate::store::Store;

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
    // After a minute, swept counters make room.
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

/// Each of these drops an expired counter that it is about to charge, because it looks for room for another.
#[test]
fn a_request_that_drops_its_own_expired_counter_keeps_the_number_of_counters_right() {
    let rules = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: second, requests_per_unit: 2, algorithm: fixed_window }
  - key: plan
    rate_limit: { unit: day, requests_per_unit: 1, algorithm: fixed_window, ban: { after: 3, within: 1h, for: 1h } }
  - key: always
    rate_limit: { unit: second, requests_per_unit: 2, algorithm: fixed_window, charge: always }
";
    let scenarios: [&[(u64, &str)]; 2] = [
        // A peek at a new counter beside the expired counter.
        &[(0, "user=a; plan=p"), (2_000, "user=b ?; user=a")],
        // The counter of a ban beside it.
        &[(0, "always=a; plan=p"), (2_000, "always=a; plan=p")],
    ];
    for scenario in scenarios {
        let limiter = limiter_of(rules, Semantics::Exact, 2, OnFull::Deny);
        for (millis, request) in scenario {
            send(&limiter, *millis, request);
        }
        assert_eq!(limiter.store().counters(), stored(&limiter), "{scenario:?}");
    }
}

/// A full page of counters drops its expired counters, among them another counter of the request.
#[test]
fn a_new_counter_that_drops_another_of_its_request_keeps_the_number_of_counters_right() {
    let limiter = limiter_of(TWO_RULES, Semantics::Exact, 1_000_000, OnFull::Deny);
    let key_of = |user: &str| {
        let (text, pinned) = (format!("user={user}"), limiter.pin());
        let mut wanted = Request::new("d");
        wanted.push(descriptor(&text));
        let charges = pinned.grantable(&wanted).expect("a plain limit");
        charges[0].as_ref().expect("a limit").key()
    };
    let users = (0..20_000).map(|number| format!("u{number}"));
    let mut users: Vec<_> = users.map(|user| (key_of(&user), user)).collect();
    users.retain(|(key, _)| Store::shard_of(*key) == 0);
    users.sort_unstable();
    let [(_, new), old @ ..] = &users[..57] else { panic!("{} keys in one shard", users.len()) };
    old.iter().for_each(|(_, user)| _ = send(&limiter, 0, &format!("user={user}")));
    // In the order of keys: the new counter drops all others of the page.
    let (_, last) = &old[55];
    check(&limiter, &[(120_000, &format!("user={last} +2; user={new} +3"), &["ok 3", "ok 2"])]);
    assert_eq!((limiter.store().counters(), stored(&limiter)), (2, 2));
}

fn stored(limiter: &Limiter) -> usize {
    let shards = 0..limiter.store().shard_count();
    shards.map(|shard| limiter.store().lock(shard).iter().count()).sum()
}
