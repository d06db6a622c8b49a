use super::*;
use crate::{
    limit::{Code, Descriptor, Hits, Request, RequestLimit, Timestamp, Unit},
    limiter::{
        Class, Limiter,
        decide::decide_general,
        tests::{descriptor, replace_rules, rule_set},
    },
    rules::Semantics,
    store::{OnFull, Seed, StoreSettings},
};
use proptest::{collection::vec, prelude::*};
use std::sync::LazyLock;

/// Rules with one key for each kind of limit.
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

/// A descriptor: index of its key, value, hits, and a number that rarely makes it a give-back or adds a limit.
pub(in crate::limiter) type Drawn = (usize, u8, u8, u8);

pub(in crate::limiter) fn drawn_descriptor((key, value, hits, rare): Drawn) -> Descriptor<'static> {
    let mut descriptor = descriptor(&TEXTS[key][usize::from(value)]);
    descriptor.hits = Hits::new(Some(u64::from(hits)), 0, rare == 0);
    descriptor.limit = (rare == 1).then_some(RequestLimit { requests: 2, unit: Unit::Second });
    descriptor
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2 * ProptestConfig::default().cases))]
    #[test]
    fn the_fast_path_decides_and_counts_as_the_general_path(
        steps in vec((0..8_000u64, vec((0..KEYS.len(), 0..2u8, 0..8u8, 0..40u8), 1..6), 0..20u8), 1..60),
    ) {
        let (fast, general) = (limiter(RULES), limiter(RULES));
        let mut millis = 1_700_000_000_000;
        for (wait, drawn, change) in steps {
            millis += wait;
            if let Some(requests) = [3, 5].get(usize::from(change)) {
                let changed = RULES.replace("requests_per_unit: 4", &format!("requests_per_unit: {requests}"));
                for limiter in [&fast, &general] {
                    replace_rules(limiter, &changed);
                }
            }
            let mut request = Request::new("d");
            drawn.into_iter().for_each(|drawn| request.push(drawn_descriptor(drawn)));
            let now = Timestamp::from_millis(millis);
            let (by_fast, by_general) = (fast.pin(), general.pin());
            let domain = by_general.in_force.rules.domain("d").expect("declared above");
            let expected = decide_general(&by_general, domain, &request, now);
            prop_assert_eq!(by_fast.decide(&request, now), expected, "{:?}", request);
            prop_assert_eq!(counters(&fast), counters(&general));
        }
    }
}

/// The decision of the fast path, if it makes it.
fn by_fast_path(limiter: &Limiter, texts: &[&str]) -> Option<Code> {
    let mut request = Request::new("d");
    texts.iter().for_each(|text| request.push(descriptor(text)));
    let pinned = limiter.pin();
    let (Class::Single(domain) | Class::Multi(domain)) = pinned.classify(&request) else { return None };
    let keys = &pinned.in_force.keys;
    let charges = request.descriptors().iter().map(|descriptor| charge(descriptor, domain, keys));
    let charges: Vec<_> = charges.collect::<Option<_>>()?;
    decide(&charges, &limiter.store, Timestamp::from_millis(1_700_000_000_000)).map(|decision| decision.code)
}

/// Whether the fast path decides the request once its counters exist.
fn is_for_fast_path(rules: &str, texts: &[&str]) -> bool {
    let limiter = limiter(rules);
    assert_eq!(by_fast_path(&limiter, texts), None, "{texts:?}: no counter exists yet");
    let mut request = Request::new("d");
    texts.iter().for_each(|text| request.push(descriptor(text)));
    limiter.pin().decide(&request, Timestamp::from_millis(1_700_000_000_000));
    by_fast_path(&limiter, texts).is_some()
}

#[test]
fn hits_that_exceed_their_limit_alone_are_denied_by_the_fast_path_and_make_no_counter() {
    let denied = ["zero=x", "sliding=x +5", "fixed=x +5", "token=x +5", "leaky=x +5"];
    for text in denied {
        for texts in [&[text][..], &[text, "unknown=x"], &[text, "zero=y"]] {
            let limiter = limiter(RULES);
            assert_eq!(by_fast_path(&limiter, texts), Some(Code::OverLimit), "{texts:?}");
            assert_eq!(counters(&limiter), [""; 0], "{texts:?}");
        }
    }
    // A descriptor that fits needs a counter if the others fit too.
    assert_eq!(by_fast_path(&limiter(RULES), &["zero=x", "sliding=x"]), None);
}

#[test]
fn hits_for_plain_limits_take_the_fast_path_once_their_counters_exist() {
    for key in ["sliding=x", "fixed=x", "token=x", "leaky=x"] {
        assert!(is_for_fast_path(RULES, &[key]), "{key}");
        assert!(is_for_fast_path(RULES, &["sliding=y", key]), "{key} and another");
        assert!(is_for_fast_path(RULES, &["unknown=x", key]), "{key} and one without a limit");
    }
    assert!(is_for_fast_path(RULES, &["sliding=a", "fixed=b", "token=c", "leaky=d"]));
}

#[test]
fn requests_that_need_more_take_the_general_path() {
    for texts in [
        &["two=x"][..],
        &["sliding=x", "two=x"],
        &["sliding=x", "log=x"],
        &["sliding=x", "sliding=x"],
        &["sliding=a", "sliding=b", "sliding=c", "sliding=d", "sliding=e"],
    ] {
        assert!(!is_for_fast_path(RULES, texts), "{texts:?}");
    }
    let replacing = format!(
        "{RULES}  - {{ key: other, rate_limit: {{ unit: day, requests_per_unit: 9, replaces: [{{ name: x }}] }} }}"
    );
    assert!(is_for_fast_path(&replacing, &["sliding=x"]));
    assert!(!is_for_fast_path(&replacing, &["sliding=x", "fixed=x"]));
}

#[test]
fn a_request_is_classified_by_its_domain_and_its_hits() {
    let queueing = "domain: q\ndescriptors:\n  - { key: k, rate_limit: { per: 1s, requests_per_unit: 1, algorithm: leaky_bucket, max_wait: 9s } }";
    let class = |rules: &str, domain: &'static str, texts: &[&'static str]| {
        let limiter = limiter(rules);
        let mut request = Request::new(domain);
        texts.iter().for_each(|text| request.push(descriptor(text)));
        match limiter.pin().classify(&request) {
            Class::NoRules => "no rules",
            Class::Single(_) => "single",
            Class::Multi(_) => "multi",
            Class::General(_) => "general",
            Class::GivesBack(_) => "gives back",
            Class::Remote(_) => "remote",
        }
    };
    assert_eq!(class(RULES, "unknown", &["sliding=x"]), "no rules");
    assert_eq!(class(RULES, "d", &["sliding=x"]), "single");
    assert_eq!(class(RULES, "d", &["sliding=x", "fixed=x"]), "multi");
    assert_eq!(class(RULES, "d", &["sliding=x ?"]), "general");
    assert_eq!(class(RULES, "d", &["sliding=x -1"]), "general");
    assert_eq!(class(RULES, "d", &["sliding=x"; 5]), "general");
    assert_eq!(class(queueing, "q", &["k=x"]), "single");
    assert_eq!(class(queueing, "q", &["k=x -1"]), "gives back");
}
