//! `tidegate explain`: its explanations agree with what the server decides.

use crate::support::limiter;
use proptest::{collection::vec, prelude::*};
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, RequestLimit, Timestamp, Unit},
    rules::{Applied, ChargePolicy, RuleLimit},
};

const KEYS: usize = 6;

/// The limits of one rule. A limit of 0 requests is exceeded at once.
fn limit() -> impl Strategy<Value = String> {
    let requests = prop_oneof![Just(0), Just(7)];
    let name = prop_oneof![Just(""), Just("name: n0, "), Just("name: n1, "), Just("name: n2, ")];
    let charge = prop_oneof![4 => Just(""), 1 => Just(", charge: always")];
    (requests, name, charge).prop_map(|(requests, name, charge)| {
        format!("{name}unit: day, requests_per_unit: {requests}{charge}")
    })
}

/// A descriptor of the rule file without its key.
fn rule() -> impl Strategy<Value = String> {
    let replaces = prop_oneof![
        3 => Just(""),
        1 => Just(", replaces: [{name: r0}]"),
        2 => Just(", replaces: [{name: n0}, {name: n2}]"),
    ];
    let rates = prop_oneof![
        1 => Just(String::new()),
        1 => replaces.clone().prop_map(|replaces| format!("rate_limit: {{unlimited: true{replaces}}}, ")),
        6 => (limit(), replaces).prop_map(|(limit, replaces)| {
            // A limit may not replace itself.
            let replaces = if limit.contains("n0") || limit.contains("n2") { "" } else { replaces };
            format!("rate_limit: {{{limit}{replaces}}}, ")
        }),
        2 => limit().prop_map(|limit| {
            format!("rate_limits: [{{{limit}}}, {{name: second, per: 3d, requests_per_unit: 7}}], ")
        }),
    ];
    let value = prop_oneof![Just(""), Just("value: 'v*', ")];
    (rates, value, any::<bool>(), any::<bool>()).prop_map(|(rates, value, shadow, quota)| {
        format!("{value}{rates}shadow_mode: {shadow}, quota_mode: {quota}")
    })
}

/// One descriptor of a request: its key, and the requests of its own limit.
fn entry_and_limit() -> impl Strategy<Value = (usize, Option<u32>)> {
    (0..KEYS + 1, prop_oneof![5 => Just(None), 1 => Just(Some(0)), 1 => Just(Some(7))])
}

fn is_over(applied: &Applied<'_>) -> bool {
    applied.in_force().any(|limit| limit.requests == 0)
}

/// The verdict that follows from what is explained.
fn verdict(all: &[Applied<'_>]) -> Code {
    let denies = |applied: &Applied<'_>| is_over(applied) && !applied.is_shadow();
    // A quota in shadow mode never denies, so it does not keep the other quotas from denying.
    let counting = all.iter().filter(|applied| !applied.is_shadow());
    let (quotas, others): (Vec<_>, Vec<_>) = counting.partition(|applied| applied.is_quota());
    let quotas_deny = !quotas.is_empty() && quotas.into_iter().all(denies);
    if quotas_deny || others.into_iter().any(denies) { Code::OverLimit } else { Code::Ok }
}

/// The counters that exist after the request.
fn counters(all: &[Applied<'_>], verdict: Code) -> usize {
    let counted = |applied: &Applied<'_>| {
        let is_counted = |limit: &&RuleLimit| {
            limit.charge == ChargePolicy::Always || verdict == Code::Ok && !is_over(applied)
        };
        applied.in_force().filter(is_counted).count()
    };
    all.iter().map(counted).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn an_explanation_never_differs_from_the_decision(
        rules in vec(rule(), KEYS), requested in vec(entry_and_limit(), 1..5),
    ) {
        let descriptors = (0..).zip(&rules).map(|(key, rule): (usize, _)| format!("- {{key: k{key}, {rule}}}\n"));
        let limiter = limiter(&format!("domain: d\ndescriptors:\n{}", descriptors.collect::<String>()));
        let texts: Vec<_> = (0..).zip(&requested).map(|(at, (key, _)): (usize, _)| (format!("k{key}"), format!("v{at}"))).collect();
        let entries: Vec<[Entry<'_>; 1]> = texts.iter().map(|(key, value)| [Entry { key, value }]).collect();
        let own = |requests: Option<u32>| requests.map(|requests| RequestLimit { requests, unit: Unit::Day });
        let mut request = Request::new("d");
        for (entries, (_, requests)) in entries.iter().zip(&requested) {
            let (entries, limit) = (entries.iter().copied().collect(), own(*requests));
            request.push(Descriptor { entries, limit, hits: Hits::ONE });
        }
        let in_force = limiter.rules();
        let all = in_force.domain("d").expect("one domain").explain_request(request.descriptors());

        let pinned = limiter.pin();
        let decision = pinned.decide(&request, Timestamp::from_millis(1_700_000_000_000));
        prop_assert_eq!(decision.code, verdict(&all), "{:?}", all);
        for (status, applied) in decision.statuses.iter().zip(&all) {
            let is_denied = is_over(applied) && !applied.is_shadow();
            prop_assert_eq!(status.code == Code::OverLimit, is_denied, "{:?}", applied);
            prop_assert_eq!(status.limit.is_some(), applied.is_limited(), "{:?}", applied);
            let is_unlimited = applied.rule().is_some_and(|rule| rule.unlimited);
            prop_assert_eq!(status.limit.is_none() && status.remaining == u32::MAX, is_unlimited);
            if let Some(limit) = status.limit {
                prop_assert!(applied.in_force().any(|known| *known.name == *limit.name && known.requests == limit.requests));
            }
        }
        prop_assert_eq!(limiter.store().counters(), counters(&all, decision.code), "{:?}", all);
    }
}
