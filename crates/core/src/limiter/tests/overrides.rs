//! Overrides and blocks: which counters they count in, and which are behind them.

use super::*;
use crate::{
    limit::Denial,
    rules::{Block, BlockedValues, OverrideAction, OverrideLimit, OverrideRule},
};
use std::time::Duration;

const RULES: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 100 } }
  - { key: pool, value: 'a*', share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 100 } }
  - { key: token, rate_limit: { unit: minute, requests_per_unit: 10, algorithm: token_bucket, size: 40 } }
  - { key: two, rate_limits: [{ unit: second, requests_per_unit: 5 }, { unit: day, requests_per_unit: 20 }] }
";

fn limits(declared: &[&str]) -> OverrideAction {
    let limit = |text: &&str| {
        let mut parts = text.split(' ');
        let (requests, window) = parts.next().and_then(|limit| limit.split_once('/')).expect("N/WINDOW");
        let (algorithm, burst) = (parts.next(), parts.next().map(|burst| burst.parse().expect("a burst")));
        OverrideLimit::new(requests.parse().expect("a number"), window, algorithm, burst).expect("valid")
    };
    OverrideAction::Limits(declared.iter().map(limit).collect())
}

fn overridden(entry: (&str, &str), action: OverrideAction) -> Vec<Source> {
    let entries = vec![(entry.0.to_owned(), entry.1.to_owned())];
    vec![Source::of_override(OverrideRule { id: "o".into(), domain: "d".into(), entries, action })]
}

fn blocked(key: &str, value: &str) -> Vec<Source> {
    let values = BlockedValues::Value(value.into());
    let block = Block { id: "b".into(), domain: None, key: key.into(), values, is_in_file: false };
    vec![Source::of_blocks("blocks", vec![block])]
}

/// A value written as a network is a network, in the files of former versions too.
#[test]
fn a_block_of_a_value_that_is_a_network_blocks_its_addresses_and_the_text() {
    let limiter = limiter(RULES);
    put_overlays(&limiter, RULES, blocked("user", "10.0.0.0/8"));
    for (value, code) in
        [("10.1.2.3", Code::OverLimit), ("10.0.0.0/8", Code::OverLimit), ("11.0.0.1", Code::Ok)]
    {
        assert_eq!(send(&limiter, 0, &format!("user={value}")).0, code, "{value}");
    }
    put_overlays(&limiter, RULES, blocked("user", "::/0"));
    assert_eq!(send(&limiter, 0, "user=10.1.2.3").0, Code::Ok, "to block IPv6 blocks no IPv4");
    assert_eq!(send(&limiter, 0, "user=2001:db8::1").0, Code::OverLimit);
}

/// With a limit of 100, an override to 50 admitted 50 more to a client that had used 99.
#[test]
fn an_override_continues_the_counter_of_the_rule() {
    let limiter = limiter(RULES);
    check(&limiter, &[(0, "user=x +99", &["ok 1"])]);
    put_overlays(&limiter, RULES, overridden(("user", "x"), limits(&["50/hour"])));
    assert_eq!(send(&limiter, 1, "user=x").0, Code::OverLimit);
    check(&limiter, &[(1, "user=y", &["ok 99"])]);
    put_overlays(&limiter, RULES, overridden(("user", "x"), limits(&["200/hour"])));
    check(&limiter, &[(2, "user=x ?", &["ok 101"]), (2, "user=x +2", &["ok 99"])]);
    put_overlays(&limiter, RULES, overridden(("user", "*"), limits(&["300/hour"])));
    check(&limiter, &[(3, "user=x ?", &["ok 199"])]);
    replace_rules(&limiter, RULES);
    assert_eq!(send(&limiter, 4, "user=x").0, Code::OverLimit);
}

#[test]
fn an_override_continues_a_counter_that_values_share() {
    let limiter = limiter(RULES);
    check(&limiter, &[(0, "pool=a1 +60", &["ok 40"])]);
    put_overlays(&limiter, RULES, overridden(("pool", "a2"), limits(&["200/hour"])));
    check(&limiter, &[(1, "pool=a2", &["ok 139"]), (1, "pool=a1", &["ok 38"])]);
}

/// Requests of both values in turn converted the shared counter, whose hits then never aged: both were denied for as long as they went on.
#[test]
fn an_override_with_another_window_leaves_a_counter_that_values_share() {
    const SHARED: &str = "
domain: d
descriptors:
  - { key: pool, value: 'a*', share_threshold: true, rate_limit: { per: 1s, requests_per_unit: 10 } }
  - { key: list, values: [a1, a2, a3], share_threshold: true, rate_limit: { per: 1s, requests_per_unit: 10 } }
  - { key: bucket, value: 'a*', share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 10, algorithm: token_bucket, size: 200 } }
";
    for key in ["pool", "list"] {
        let limiter = limiter(SHARED);
        put_overlays(&limiter, SHARED, overridden((key, "a2"), limits(&["100/60s"])));
        let (a1, a2) = (format!("{key}=a1"), format!("{key}=a2"));
        check(&limiter, &[(0, &format!("{a2} +20"), &["ok 80"]), (0, &format!("{a1} +10"), &["ok 0"])]);
        for second in 1..5 {
            let at = second * 2_000;
            check(&limiter, &[(at, &a2, &[&format!("ok {}", 80 - second)]), (at, &a1, &["ok 9"])]);
        }
    }
    // The rate is the same, but hits of the shared counter would be cut to the bound on debts of the override.
    let limiter = limiter(SHARED);
    check(&limiter, &[(0, "bucket=a1 +200", &["ok 0"])]);
    put_overlays(&limiter, SHARED, overridden(("bucket", "a2"), limits(&["10/hour token_bucket 1"])));
    check(&limiter, &[(0, "bucket=a2", &["ok 0"]), (0, "bucket=a1", &["over 0 360000"])]);
}

#[test]
fn an_override_without_an_algorithm_keeps_that_of_the_rule_in_proportion() {
    let limiter = limiter(RULES);
    check(&limiter, &[(0, "token=x +30", &["ok 10"])]);
    put_overlays(&limiter, RULES, overridden(("token", "x"), limits(&["20/minute"])));
    check(&limiter, &[(0, "token=x ?", &["ok 50"]), (3_000, "token=x ?", &["ok 51"])]);
    put_overlays(&limiter, RULES, overridden(("token", "z"), limits(&["6/30s leaky_bucket 2"])));
    check(&limiter, &[(0, "token=z +2", &["ok 0"]), (5_000, "token=z ?", &["ok 1"])]);
}

#[test]
fn an_override_takes_any_window_and_continues_each_limit_of_the_rule() {
    let limiter = limiter(RULES);
    check(&limiter, &[(1_500, "two=x +3", &["ok 2"])]);
    put_overlays(&limiter, RULES, overridden(("two", "x"), limits(&["9/30s", "25/day"])));
    // The first limit continues the counter of the second, by its position, the other the counter of the day, by its window.
    check(&limiter, &[(1_500, "two=x ?", &["ok 6"]), (1_500, "two=x +6", &["ok 0"])]);
    let remaining = |window_millis: u64| {
        let pinned = limiter.pin();
        let mut request = Request::new("d");
        request.push(descriptor("two=x ?"));
        let limits = pinned.service_limits(&request, Timestamp::from_millis(MIDNIGHT_MILLIS + 1_500));
        let window = Duration::from_millis(window_millis);
        limits.iter().find(|limit| limit.window == window).map(|limit| limit.available)
    };
    assert_eq!((remaining(30_000), remaining(86_400_000)), (Some(0), Some(16)));
}

/// A reset of a blocked key removed no counter, and the old use was back once the block was deleted.
#[test]
fn resets_and_give_backs_of_a_blocked_key_reach_the_counters_behind_the_block() {
    for overlaid in [
        blocked("user", "x"),
        overridden(("user", "x"), OverrideAction::Denied),
        overridden(("user", "x"), OverrideAction::Unlimited),
    ] {
        let limiter = limiter(RULES);
        check(&limiter, &[(0, "user=x +40", &["ok 60"])]);
        put_overlays(&limiter, RULES, overlaid.clone());
        check(&limiter, &[(1, "user=x -5", &["ok 65"])]);
        replace_rules(&limiter, RULES);
        check(&limiter, &[(2, "user=x ?", &["ok 65"])]);
        put_overlays(&limiter, RULES, overlaid);
        let mut request = Request::new("d");
        request.push(descriptor("user=x ?"));
        let now = Timestamp::from_millis(MIDNIGHT_MILLIS + 3);
        assert_eq!(limiter.pin().reset(&request, now).map(|removed| removed.counters), Ok(1));
        replace_rules(&limiter, RULES);
        check(&limiter, &[(4, "user=x ?", &["ok 100"])]);
    }
}

/// An override of a rule counts in the rule's counters, under a limit of its own.
#[test]
fn a_reset_of_a_rule_frees_the_counters_that_an_override_of_it_continues() {
    let now = Timestamp::from_millis(MIDNIGHT_MILLIS + 2);
    for (path, is_freed) in [("user", true), ("(override o)", true), ("token", false)] {
        let limiter = limiter(RULES);
        put_overlays(&limiter, RULES, overridden(("user", "x"), limits(&["50/hour"])));
        check(&limiter, &[(0, "user=x +49", &["ok 1"]), (0, "user=y +99", &["ok 1"])]);
        let reset = |path| limiter.pin().reset_rule("d", Some(path), now).map(|removed| removed.counters);
        let expected = match path {
            "user" => 2,
            "token" => 0,
            _ => 1,
        };
        assert_eq!(reset(path), Ok(expected), "{path}");
        check(&limiter, &[(3, "user=x ?", &[if is_freed { "ok 50" } else { "ok 1" }])]);
    }
    // Counted under the override last, and the override is gone.
    let limiter = limiter(RULES);
    put_overlays(&limiter, RULES, overridden(("user", "x"), limits(&["50/hour"])));
    check(&limiter, &[(0, "user=x +49", &["ok 1"])]);
    replace_rules(&limiter, RULES);
    assert_eq!(limiter.pin().reset_rule("d", Some("user"), now).map(|removed| removed.counters), Ok(1));
    check(&limiter, &[(3, "user=x ?", &["ok 100"])]);
}

#[test]
fn hits_given_back_beside_a_blocked_key_do_not_admit_it() {
    let limiter = limiter(RULES);
    put_overlays(&limiter, RULES, blocked("user", "x"));
    assert_eq!(send(&limiter, 0, "user=x; user=x -5").0, Code::OverLimit);
}

#[test]
fn a_limit_of_an_override_is_the_same_after_json() {
    for action in [limits(&["5/30s"]), limits(&["5/minute token_bucket 9", "7/day"]), OverrideAction::Denied]
    {
        let text = serde_json::to_string(&action).expect("texts and numbers are JSON");
        assert_eq!(serde_json::from_str::<OverrideAction>(&text).expect("read"), action, "{text}");
    }
    let former = r#"{"limit":{"requests":100,"unit":"hour"}}"#;
    assert_eq!(serde_json::from_str::<OverrideAction>(former).expect("read"), limits(&["100/hour"]));
    for refused in ["5/fortnight", "5/0s", "5/30s bucket", "5/30s fixed_window 9", "0/30s token_bucket 9"] {
        let mut parts = refused.split(' ');
        let (requests, window) = parts.next().and_then(|limit| limit.split_once('/')).expect("N/WINDOW");
        let (algorithm, burst) = (parts.next(), parts.next().map(|burst| burst.parse().expect("a burst")));
        assert!(OverrideLimit::new(requests.parse().expect("a number"), window, algorithm, burst).is_err());
    }
}

/// With QUOTA_MODE every rule is a quota, and a block was a quota beside others that admit.
#[test]
fn a_block_and_a_denying_override_deny_whatever_quotas_admit() {
    let options = LoadOptions { semantics: Semantics::Reference, ..LoadOptions::default() };
    for overlaid in [blocked("user", "x"), overridden(("user", "x"), OverrideAction::Denied)] {
        let compat = Compat { quota_mode: true, stop_counting: false };
        let limiter = limiter_of(RULES, Semantics::Reference, 1000, OnFull::Deny).with_compat(compat);
        let next = limiter.update_rules().build_overlays(&overlaid, &options);
        drop(next.expect("valid").put_in_force());
        for (request, code) in [
            ("user=x; pool=a", Code::OverLimit),
            ("user=x; none=x", Code::OverLimit),
            ("user=y; pool=a", Code::Ok),
        ] {
            assert_eq!(send(&limiter, 0, request).0, code, "{request}");
        }
    }
    let limiter = limiter(QUOTAS);
    put_overlays(&limiter, QUOTAS, overridden(("small", "x"), OverrideAction::Denied));
    assert_eq!(send(&limiter, 0, "small=x; large=x").0, Code::OverLimit, "instead of a quota");
}

const QUOTAS: &str = "
domain: d
descriptors:
  - { key: small, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: large, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 100 } }
";

/// A quota that was raised denied by itself, though another quota had hits left.
#[test]
fn an_override_of_a_quota_is_a_quota() {
    for (entry, action, after) in [
        (("small", "x"), limits(&["2/hour"]), "small=x +2; large=x"),
        (("small", "x"), OverrideAction::Unlimited, "small=x; large=x +101"),
    ] {
        let limiter = limiter(QUOTAS);
        put_overlays(&limiter, QUOTAS, overridden(entry, action.clone()));
        assert_eq!(send(&limiter, 0, after).0, Code::Ok, "{action:?}");
        assert_eq!(send(&limiter, 1, after).0, Code::Ok, "{action:?}");
    }
    let limiter = limiter(QUOTAS);
    put_overlays(&limiter, QUOTAS, overridden(("small", "x"), limits(&["2/hour"])));
    assert_eq!(send(&limiter, 0, "small=x +3; large=x +101").0, Code::OverLimit, "both are over");
}

/// `plan=gold` with 1,000 an hour was denied by the limit of users that its rule replaces.
#[test]
fn an_override_replaces_the_limits_that_its_rule_replaces() {
    let rules = "
domain: d
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: hour, requests_per_unit: 2 } }
  - { key: plan, value: gold, rate_limit: { unit: hour, requests_per_unit: 5, replaces: [{ name: per-user }] } }
  - key: plan
    value: mixed
    rate_limits:
      - { unit: day, requests_per_unit: 90 }
      - { unit: hour, requests_per_unit: 5, when: \"descriptors.exists(d, 'post' in d)\", replaces: [{ name: per-user }] }
";
    for action in [limits(&["1000/hour"]), limits(&["1000/day"]), OverrideAction::Unlimited] {
        let limiter = limiter(rules);
        put_overlays(&limiter, rules, overridden(("plan", "gold"), action.clone()));
        for step in 0..5 {
            assert_eq!(send(&limiter, step, "plan=gold; user=x").0, Code::Ok, "{action:?}");
        }
        assert_eq!(send(&limiter, 9, "user=x +2").0, Code::Ok, "nothing was counted for the user");
    }
    // Only the limit that stands instead of the replacing limit replaces, and only where its condition holds.
    let limiter = limiter(rules);
    put_overlays(&limiter, rules, overridden(("plan", "mixed"), limits(&["200/hour", "900/day"])));
    let post = "plan=mixed; user=x; post=1";
    let get = "plan=mixed; user=x; get=1";
    for (request, code) in [
        (post, Code::Ok),
        (post, Code::Ok),
        (post, Code::Ok),
        (get, Code::Ok),
        (get, Code::Ok),
        (get, Code::OverLimit),
    ] {
        assert_eq!(send(&limiter, 0, request).0, code, "{request}");
    }
}

/// A raised limit of POST denied GET.
#[test]
fn an_override_applies_when_the_limit_that_it_replaces_does() {
    let rules = "
domain: d
descriptors:
  - key: user
    rate_limit:
      name: posts
      unit: hour
      requests_per_unit: 1
      when: \"limit.name == 'posts' && descriptors.exists(d, 'post' in d)\"
";
    let limiter = limiter(rules);
    put_overlays(&limiter, rules, overridden(("user", "x"), limits(&["2/hour"])));
    for (request, code) in
        [("post", Code::Ok), ("post", Code::Ok), ("get", Code::Ok), ("post", Code::OverLimit)]
    {
        assert_eq!(send(&limiter, 0, &format!("user=x; {request}=1")).0, code, "{request}");
    }
}

/// A request over a raised limit was denied although its rule admits and marks.
#[test]
fn an_override_marks_as_its_rule_does_and_a_denying_override_denies() {
    let rules = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1 }
    on_deny: { mark: { header: x-abuse, value: 'yes' } }
    metadata: { team: web }
";
    let denial = |action: OverrideAction| {
        let limiter = limiter(rules);
        put_overlays(&limiter, rules, overridden(("user", "x"), action));
        let mut request = Request::new("d");
        request.push(descriptor("user=x +3"));
        let pinned = limiter.pin();
        let decision = pinned.decide(&request, Timestamp::from_millis(MIDNIGHT_MILLIS));
        let metadata = decision.statuses[0].rule.and_then(|rule| rule.metadata.clone());
        (matches!(decision.denial(), Some(Denial::Mark(_))), metadata.is_some())
    };
    assert_eq!(denial(limits(&["2/hour"])), (true, true));
    assert_eq!(denial(OverrideAction::Denied), (false, false));
}

/// A customer who had used up the day was throttled for three seconds, and then had the whole day again.
#[test]
fn a_throttle_by_a_shorter_window_leaves_the_counter_of_the_rule() {
    const DAY: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: bucket, rate_limit: { unit: hour, requests_per_unit: 100, algorithm: token_bucket } }
  - { key: flight, rate_limit: { algorithm: concurrency, requests_in_flight: 2, max_hold: 60s } }
  - { key: pool, value: 'a*', share_threshold: true, rate_limit: { unit: day, requests_per_unit: 100 } }
";
    for key in ["user", "bucket"] {
        let limiter = limiter(DAY);
        let request = |rest: &str| format!("{key}=x {rest}");
        check(&limiter, &[(0, &request("+100"), &["ok 0"])]);
        put_overlays(&limiter, DAY, overridden((key, "x"), limits(&["5/second"])));
        check(&limiter, &[(0, &request("+5"), &["ok 0"]), (3_000, &request("+1"), &["ok 4"])]);
        replace_rules(&limiter, DAY);
        assert_eq!(send(&limiter, 3_000, &request("+1")).0, Code::OverLimit, "{key}");
    }
    let limiter = limiter(DAY);
    // Values that share a counter share that of the override.
    put_overlays(&limiter, DAY, overridden(("pool", "a*"), limits(&["5/second"])));
    check(&limiter, &[(0, "pool=a1 +3", &["ok 2"]), (0, "pool=a2 +2", &["ok 0"])]);
    // Requests in flight have no window.
    check(&limiter, &[(0, "flight=x +2", &["ok 0"])]);
    put_overlays(&limiter, DAY, overridden(("flight", "x"), limits(&["3/second"])));
    check(&limiter, &[(0, "flight=x", &["ok 0"])]);
}
