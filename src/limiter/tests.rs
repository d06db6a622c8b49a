//! Scenarios: rules, timed requests, and what each must be answered.

use super::*;
use crate::{
    limit::{Code, Descriptor, Entry, Hits, Override, RequestLimits, Reset, Unit},
    rules::{LoadOptions, Semantics, Source},
    store::{OnFull, Seed},
};
use proptest::prelude::*;
use std::{num::NonZeroU64, time::Duration};

/// Wednesday, 15 November 2023, 00:00 UTC: the start of a window of every unit up to a day.
pub(super) const MIDNIGHT_MILLIS: u64 = 1_700_006_400_000;

pub(super) fn limiter(yaml: &str) -> Limiter {
    limiter_of(yaml, Semantics::Exact, 1000, OnFull::Deny)
}

pub(super) fn rule_set(yaml: &str, semantics: Semantics, former: Option<&RuleSet>) -> RuleSet {
    let source = Source { name: "test.yaml".into(), text: yaml.into() };
    let options = LoadOptions { semantics, ..LoadOptions::default() };
    RuleSet::parse(&[source], &options, former).unwrap_or_else(|errors| panic!("{errors}"))
}

fn limiter_of(yaml: &str, semantics: Semantics, counters_max: usize, on_full: OnFull) -> Limiter {
    let store = StoreSettings { seed: Seed::from_bytes([9; 16]), counters_max, on_full };
    Limiter::new(rule_set(yaml, semantics, None), store, false)
}

/// `a=1,b=2` with hits: `+3` taken, `?` peeked, `-2` given back; one is taken if nothing is said.
pub(super) fn descriptor(text: &str) -> Descriptor<'_> {
    let (entries, hits) = match text.split_once(' ') {
        None => (text, Hits::ONE),
        Some((entries, "?")) => (entries, Hits::Peek),
        Some((entries, hits)) => {
            let (sign, number) = hits.split_at(1);
            let number: NonZeroU64 = number.parse().expect("a number of hits");
            (entries, if sign == "-" { Hits::GiveBack(number) } else { Hits::Take(number) })
        }
    };
    let entries = entries.split(',').map(|pair| {
        let (key, value) = pair.split_once('=').expect("key=value");
        Entry { key, value }
    });
    Descriptor { entries: entries.collect(), limit: None, hits }
}

/// What one status must be: `ok 4` (remaining), `over 0 2500` (remaining, reset in ms), `over never`, `none`,
/// `unlimited`. The reset is compared only where it is given.
pub(super) fn shown(decision: &Decision<'_>) -> Vec<String> {
    let show = |status: &crate::limit::Status<'_>| match (status.limit, status.code, status.reset) {
        (None, Code::Ok, _) if status.remaining == u32::MAX => "unlimited".to_owned(),
        (None, Code::Ok, _) => "none".to_owned(),
        (_, Code::Ok, _) => format!("ok {}", status.remaining),
        (_, Code::OverLimit, Some(Reset::After(wait))) => {
            format!("over {} {}", status.remaining, wait.as_millis())
        }
        (_, Code::OverLimit, Some(Reset::Never)) => "over never".to_owned(),
        (_, Code::OverLimit, None) => "over full".to_owned(),
    };
    decision.statuses.iter().map(show).collect()
}

/// Sends one request, descriptors separated by `;`, to domain `d`, so many milliseconds after midnight.
fn send(limiter: &Limiter, millis: u64, request: &str) -> (Code, Vec<String>) {
    let mut asked = Request::new("d");
    request.split("; ").for_each(|text| asked.push(descriptor(text)));
    let asked = asked.checked(&RequestLimits::default()).expect("a good request");
    let pinned = limiter.pin();
    let decision = pinned.decide(&asked, Timestamp::from_millis(MIDNIGHT_MILLIS + millis));
    (decision.code, shown(&decision))
}

/// Runs a scenario: at so many milliseconds, this request must get these statuses.
#[track_caller]
fn check(limiter: &Limiter, scenario: &[(u64, &str, &[&str])]) {
    for (step, (millis, request, expected)) in scenario.iter().enumerate() {
        let (_, statuses) = send(limiter, *millis, request);
        assert_eq!(statuses, *expected, "step {step}: `{request}` at {millis} ms");
    }
}

const TWO_RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 5, algorithm: fixed_window }
  - key: plan
    value: free
    rate_limit: { unit: second, requests_per_unit: 2, algorithm: fixed_window }
";

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

#[test]
fn what_no_rule_limits_is_ok_without_a_limit() {
    check(&limiter(TWO_RULES), &[(0, "plan=paid", &["none"]), (0, "user=a,plan=free", &["none"])]);
    let mut elsewhere = Request::new("elsewhere");
    elsewhere.push(descriptor("user=a"));
    let limiter = limiter(TWO_RULES);
    let pinned = limiter.pin();
    assert_eq!(shown(&pinned.decide(&elsewhere, Timestamp::EPOCH)), ["none"]);
}

#[test]
fn all_of_several_limits_must_admit_and_the_tightest_is_told() {
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
fn a_shadow_rule_never_denies_and_counts_only_what_it_would_have_admitted() {
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
    let ask = |expected: Code, statuses: &[&str]| {
        assert_eq!(
            send(&limiter, 0, "a=x; b=x"),
            (expected, statuses.iter().map(|s| (*s).to_owned()).collect())
        );
    };
    ask(Code::Ok, &["ok 0", "ok 1"]);
    ask(Code::Ok, &["over 0 1000", "ok 0"]);
    ask(Code::OverLimit, &["over 0 1000", "over 0 1000"]);
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
    let ask = |requests, unit, expected: &str| {
        let mut request = Request::new("d");
        request.push(Descriptor { limit: Some(Override { requests, unit }), ..descriptor("user=a") });
        let pinned = limiter.pin();
        let decision = pinned.decide(&request, Timestamp::from_millis(MIDNIGHT_MILLIS));
        assert_eq!(shown(&decision), [expected]);
    };
    ask(2, Unit::Hour, "ok 1");
    ask(2, Unit::Hour, "ok 0");
    // What was used stays used when the next request brings another number.
    ask(3, Unit::Hour, "ok 0");
    ask(3, Unit::Minute, "ok 2");
    check(&limiter, &[(0, "user=a", &["ok 4"])]);
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

#[test]
fn when_full_newcomers_are_denied_and_live_counters_go_on() {
    let limiter = limiter_of(TWO_RULES, Semantics::Exact, 2, OnFull::Deny);
    check(
        &limiter,
        &[
            (0, "user=a +4", &["ok 1"]),
            (0, "user=b +5", &["ok 0"]),
            (0, "user=c", &["over full"]),
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
    check(&limiter, &[(61_000, "user=c; user=d", &["ok 4", "ok 4"])]);
}

#[test]
fn when_full_newcomers_are_admitted_uncounted_if_so_set() {
    let limiter = limiter_of(TWO_RULES, Semantics::Exact, 1, OnFull::Allow);
    check(
        &limiter,
        &[
            (0, "user=a +5", &["ok 0"]),
            (0, "user=b", &["ok 5"]),
            (0, "user=b", &["ok 5"]),
            (0, "user=a", &["over 0 60000"]),
        ],
    );
    assert_eq!(limiter.store().counters(), 1);
}

#[test]
fn a_reload_keeps_what_was_used() {
    let limiter = limiter(TWO_RULES);
    check(&limiter, &[(0, "user=a +4", &["ok 1"])]);
    let reload = |from: &str, to: &str| {
        let changed = TWO_RULES.replace(from, to);
        limiter.replace_rules(rule_set(&changed, Semantics::Exact, Some(&limiter.rules())));
    };
    reload("requests_per_unit: 5", "requests_per_unit: 7");
    check(&limiter, &[(0, "user=a", &["ok 2"])]);
    reload("requests_per_unit: 5", "requests_per_unit: 3");
    check(&limiter, &[(0, "user=a", &["over 0 60000"])]);
    reload("unit: minute, requests_per_unit: 5", "unit: hour, requests_per_unit: 6");
    check(&limiter, &[(0, "user=a", &["ok 0"]), (0, "user=a", &["over 0 3600000"])]);
}

#[test]
fn global_shadow_admits_and_still_says_what_would_have_been() {
    let store = StoreSettings { seed: Seed::from_bytes([9; 16]), counters_max: 1000, on_full: OnFull::Deny };
    let limiter = Limiter::new(rule_set(TWO_RULES, Semantics::Exact, None), store, true);
    assert_eq!(send(&limiter, 0, "plan=free +2"), (Code::Ok, vec!["ok 0".to_owned()]));
    assert_eq!(send(&limiter, 0, "plan=free"), (Code::Ok, vec!["over 0 1000".to_owned()]));
}

/// limitador admits 51 of 50 with two threads, by checking before updating.
#[test]
fn many_threads_against_one_limit_admit_exactly_the_limit() {
    let yaml = "
domain: d
descriptors:
  - key: all
    rate_limit: { unit: day, requests_per_unit: 1000 }
  - key: each
    rate_limit: { unit: day, requests_per_unit: 400 }
";
    let limiter = limiter(yaml);
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let limiter = &limiter;
                // Every other thread names the counters in the other order.
                let request = if thread % 2 == 0 { "all=x; each=y" } else { "each=z; all=x" };
                scope.spawn(move || (0..500).filter(|_| send(limiter, 0, request).0 == Code::Ok).count())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, 800);
    assert_eq!(send(&limiter, 0, "all=x ?").1, ["ok 200"]);
}

proptest! {
    #[test]
    fn waiting_the_reset_of_a_denial_admits_the_same_request_and_a_nanosecond_less_does_not(
        used in prop::collection::vec((0..120_000u64, 1..4u64), 1..20), hits in 1..6u64,
    ) {
        let limiter = limiter("
domain: d
descriptors:
  - key: user
    rate_limits:
      - { per: 7s, requests_per_unit: 3 }
      - { unit: minute, requests_per_unit: 5 }
");
        let mut used = used;
        used.sort_unstable();
        let mut now = Timestamp::EPOCH;
        let decide = |hits: u64, now| {
            let mut request = Request::new("d");
            request.push(Descriptor { hits: Hits::new(Some(hits), 0, false), ..descriptor("user=a") });
            let pinned = limiter.pin();
            let decision = pinned.decide(&request, now);
            (decision.code, decision.statuses[0].reset)
        };
        for (millis, hits) in used {
            now = Timestamp::from_millis(MIDNIGHT_MILLIS + millis);
            decide(hits, now);
        }
        if let (Code::OverLimit, Some(reset)) = decide(hits, now) {
            match reset {
                Reset::Never => prop_assert!(hits > 3),
                Reset::After(wait) => {
                    prop_assert!(wait > Duration::ZERO);
                    let wait = wait.as_nanos() as u64;
                    prop_assert_eq!(decide(hits, now.saturating_add_nanos(wait - 1)).0, Code::OverLimit);
                    prop_assert_eq!(decide(hits, now.saturating_add_nanos(wait)).0, Code::Ok);
                }
            }
        }
    }
}
