//! Scenarios: rules, timed requests, and expected statuses.

mod anchors;
mod bans;
mod charging;
mod conditional;
mod debts;
mod full;
mod matching;
mod order;
mod overrides;
mod own_limits;
mod properties;
mod renewals;
mod reservations;
mod schedules;
mod semantics;
mod slots;
mod waits;

use super::*;
use crate::{
    limit::{Code, Decision, Descriptor, Entry, Hits, Request, RequestLimits, Reset, Timestamp},
    rules::{LoadOptions, RuleSet, Semantics, Source},
    store::{OnFull, Seed, StoreSettings},
};
use std::{num::NonZeroU64, time::Duration};

/// Wednesday, 15 November 2023, 00:00 UTC: the start of a window of every unit up to a day.
pub(super) const MIDNIGHT_MILLIS: u64 = 1_700_006_400_000;

pub(super) fn limiter(yaml: &str) -> Limiter {
    limiter_of(yaml, Semantics::Exact, 1000, OnFull::Deny)
}

/// Puts these rules in force with overrides and blocks.
pub(super) fn put_overlays(limiter: &Limiter, yaml: &str, overlaid: Vec<Source>) {
    let sources = [vec![Source::file("test.yaml", yaml)], overlaid].concat();
    let next = limiter.update_rules().build(&sources, &LoadOptions::default());
    drop(next.unwrap_or_else(|errors| panic!("{errors}")).put_in_force());
}

/// Puts these rules in force.
pub(super) fn replace_rules(limiter: &Limiter, yaml: &str) {
    let source = Source::file("test.yaml", yaml);
    let next = limiter.update_rules().build(&[source], &LoadOptions::default());
    drop(next.unwrap_or_else(|errors| panic!("{errors}")).put_in_force());
}

pub(super) fn rule_set(yaml: &str, semantics: Semantics) -> RuleSet {
    let source = Source::file("test.yaml", yaml);
    let options = LoadOptions { semantics, ..LoadOptions::default() };
    RuleSet::parse(&[source], &options).unwrap_or_else(|errors| panic!("{errors}"))
}

fn limiter_of(yaml: &str, semantics: Semantics, counters_max: usize, on_full: OnFull) -> Limiter {
    let store = StoreSettings { seed: Seed::from_bytes([9; 16]), counters_max, on_full };
    Limiter::new(rule_set(yaml, semantics), store, false)
}

/// `a=1,b=2` with hits: `+3` taken, `?` peeked, `-2` given back; one is taken by default.
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

/// A status as text: `ok 4` (remaining), `over 0 2500` (remaining, reset in ms), `over never`, `none`,
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
    let mut wanted = Request::new("d");
    request.split("; ").for_each(|text| wanted.push(descriptor(text)));
    let wanted = wanted.checked(&RequestLimits::default()).expect("a good request");
    let pinned = limiter.pin();
    let decision = pinned.decide(&wanted, Timestamp::from_millis(MIDNIGHT_MILLIS + millis));
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
