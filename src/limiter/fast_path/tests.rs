use super::*;
use crate::{
    limit::{Descriptor, Hits, Override, Request, Timestamp, Unit},
    limiter::{
        Limiter,
        decide::decide_any,
        tests::{descriptor, replace_rules, rule_set},
    },
    rules::Semantics,
    store::{OnFull, Seed, StoreSettings},
};
use proptest::{collection::vec, prelude::*};
use std::sync::LazyLock;

/// What there is in rules; each key has values of its own.
pub(in crate::limiter) const RULES: &str = "
domain: d
descriptors:
  - { key: sliding, rate_limit: { per: 10s, requests_per_unit: 4 } }
  - { key: parts, rate_limit: { per: 10s, requests_per_unit: 4, precision: 3 } }
  - { key: log, rate_limit: { per: 10s, requests_per_unit: 4, algorithm: sliding_log } }
  - { key: fixed, rate_limit: { per: 10s, requests_per_unit: 4, algorithm: fixed_window } }
  - { key: token, rate_limit: { per: 10s, requests_per_unit: 4, algorithm: token_bucket } }
  - { key: leaky, rate_limit: { per: 10s, requests_per_unit: 4, algorithm: leaky_bucket } }
  - { key: zero, rate_limit: { per: 10s, requests_per_unit: 0 } }
  - { key: always, rate_limit: { per: 10s, requests_per_unit: 4, charge: always } }
  - { key: two, rate_limits: [{ per: 10s, requests_per_unit: 4 }, { per: 1s, requests_per_unit: 2 }] }
  - { key: shadow, shadow_mode: true, rate_limit: { per: 10s, requests_per_unit: 4 } }
  - { key: quota, quota_mode: true, rate_limit: { per: 10s, requests_per_unit: 4 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: shared, value: 'a*', share_threshold: true, rate_limit: { per: 10s, requests_per_unit: 4 } }
  - { key: listed }
";
pub(in crate::limiter) const KEYS: [&str; 15] = [
    "sliding", "parts", "log", "fixed", "token", "leaky", "zero", "always", "two", "shadow", "quota", "free",
    "shared", "listed", "unknown",
];

/// Two descriptors for each key.
static TEXTS: LazyLock<Vec<[String; 2]>> =
    LazyLock::new(|| KEYS.iter().map(|key| [0, 1].map(|value| format!("{key}=a{value}"))).collect());

pub(in crate::limiter) fn limiter(rules: &str) -> Limiter {
    let store = StoreSettings { seed: Seed::from_bytes([9; 16]), counters_max: 20, on_full: OnFull::Deny };
    Limiter::new(rule_set(rules, Semantics::Exact), store, false)
}

pub(in crate::limiter) fn counters(limiter: &Limiter) -> Vec<String> {
    let shards = (0..limiter.store().shard_count()).map(|shard| limiter.store().lock(shard));
    shards.flat_map(|shard| shard.iter().map(|counter| format!("{counter:?}")).collect::<Vec<_>>()).collect()
}

/// What a step asks of one descriptor: which key, which value, how many hits, and now and then something rare.
pub(in crate::limiter) type Asks = (usize, u8, u8, u8);

pub(in crate::limiter) fn asking((key, value, hits, rare): Asks) -> Descriptor<'static> {
    let mut descriptor = descriptor(&TEXTS[key][usize::from(value)]);
    descriptor.hits = Hits::new(Some(u64::from(hits)), 0, rare == 0);
    descriptor.limit = (rare == 1).then_some(Override { requests: 2, unit: Unit::Second });
    descriptor
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_short_ways_decide_and_count_as_the_long_one(
        steps in vec((0..8_000u64, vec((0..KEYS.len(), 0..2u8, 0..8u8, 0..40u8), 1..6), 0..20u8), 1..60),
    ) {
        let (short, long) = (limiter(RULES), limiter(RULES));
        let mut millis = 1_700_000_000_000;
        for (wait, asks, change) in steps {
            millis += wait;
            if let Some(requests) = [3, 5].get(usize::from(change)) {
                let changed = RULES.replace("requests_per_unit: 4", &format!("requests_per_unit: {requests}"));
                for limiter in [&short, &long] {
                    replace_rules(limiter, &changed);
                }
            }
            let mut request = Request::new("d");
            asks.into_iter().for_each(|asks| request.push(asking(asks)));
            let now = Timestamp::from_millis(millis);
            let (pinned, in_force) = (short.pin(), long.in_force.load());
            let domain = in_force.rules.domain("d").expect("is there");
            let by_long = decide_any(&in_force, domain, &long, &request, now);
            prop_assert_eq!(pinned.decide(&request, now), by_long, "{:?}", request);
            prop_assert_eq!(counters(&short), counters(&long));
        }
    }
}

/// Whether the request goes a short way once its counters are there.
fn is_short(rules: &str, texts: &[&str]) -> bool {
    let limiter = limiter(rules);
    let mut request = Request::new("d");
    texts.iter().for_each(|text| request.push(descriptor(text)));
    let in_force = limiter.in_force.load();
    let domain = in_force.rules.domain("d").expect("is there");
    let now = Timestamp::from_millis(1_700_000_000_000);
    let decide = || {
        let asked = request.descriptors().iter().map(|descriptor| asked(descriptor, domain, &in_force.keys));
        let asked = asked.collect::<Option<Vec<_>>>().filter(|_| may_take(request.descriptors(), domain));
        asked.and_then(|asked| decide(&asked, &limiter.store, now))
    };
    assert_eq!(decide(), None, "{texts:?}: no counter is there yet");
    limiter.pin().decide(&request, now);
    decide().is_some()
}

#[test]
fn hits_for_plain_limits_go_a_short_way_once_their_counters_are_there() {
    for key in ["sliding=x", "fixed=x", "token=x", "leaky=x"] {
        assert!(is_short(RULES, &[key]), "{key}");
        assert!(is_short(RULES, &["sliding=y", key]), "{key} and another");
        assert!(is_short(RULES, &["unknown=x", key]), "{key} and one that nothing limits");
    }
    assert!(is_short(RULES, &["sliding=a", "fixed=b", "token=c", "leaky=d"]));
}

#[test]
fn what_is_not_so_plain_goes_the_long_way() {
    for texts in [
        &["two=x"][..],
        &["sliding=x", "two=x"],
        &["sliding=x", "log=x"],
        &["sliding=x", "sliding=x"],
        &["sliding=a", "sliding=b", "sliding=c", "sliding=d", "sliding=e"],
    ] {
        assert!(!is_short(RULES, texts), "{texts:?}");
    }
    let replacing = format!(
        "{RULES}  - {{ key: other, rate_limit: {{ unit: day, requests_per_unit: 9, replaces: [{{ name: x }}] }} }}"
    );
    assert!(is_short(&replacing, &["sliding=x"]));
    assert!(!is_short(&replacing, &["sliding=x", "fixed=x"]));
}
