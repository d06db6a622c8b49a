//! The short way, of most requests: hits for one descriptor, which reaches one plain limit, whose counter is there.
//!
//! It decides as the long way would, or not at all. A test sends random requests both ways and compares answers
//! and counters.

use super::keys::Keys;
use crate::{
    algorithm::{Standing, Taken},
    limit::{Code, Decision, Descriptor, Hits, Request, Reset, Status, Timestamp},
    rules::{DomainRules, Rule, RuleLimit},
    store::Store,
};
use smallvec::SmallVec;

/// The decision; none, and nothing charged, if the request has to go the long way.
#[inline]
pub(super) fn decide<'r>(
    domain: &'r DomainRules,
    keys: &Keys,
    store: &Store,
    request: &Request<'_>,
    now: Timestamp,
) -> Option<Decision<'r>> {
    let [Descriptor { entries, limit: None, hits: Hits::Take(hits) }] = request.descriptors() else {
        return None;
    };
    let found = domain.find(entries)?;
    let limit = found.rule.plain_limit()?;
    let key = keys.key(domain, limit, entries, &found.shared);

    let mut shard = store.lock(Store::shard_of(key));
    let place = shard.find(key)?;
    let counter = shard.get(place);
    let words = counter.words().filter(|_| counter.limit() == limit.id)?;
    match limit.algorithm.take(words, hits.get(), now) {
        Taken::Admitted(Standing { state, expires, remaining, until_full }) => {
            shard.get_mut(place).set(state, limit.id, expires);
            drop(shard);
            Some(decision(Code::Ok, found.rule, limit, remaining, Reset::After(until_full)))
        }
        Taken::Over { remaining, until_admits } => {
            drop(shard);
            Some(decision(Code::OverLimit, found.rule, limit, remaining, until_admits))
        }
    }
}

#[inline]
fn decision<'r>(
    code: Code,
    rule: &'r Rule,
    limit: &'r RuleLimit,
    remaining: u64,
    reset: Reset,
) -> Decision<'r> {
    // A limit is at most u32::MAX, and so is what remains of it.
    let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
    let (limit, reset, rule) = (Some(limit.current()), Some(reset), Some(&rule.info));
    let mut statuses = SmallVec::new();
    statuses.push(Status { code, limit, remaining, reset, rule });
    Decision { code, statuses }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limit::{Override, Unit},
        limiter::{
            Limiter,
            decide::decide_any,
            tests::{descriptor, rule_set},
        },
        rules::Semantics,
        store::{OnFull, Seed, StoreSettings},
    };
    use proptest::prelude::*;

    /// What there is in rules; each key has values of its own.
    const RULES: &str = "
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
    const KEYS: [&str; 15] = [
        "sliding", "parts", "log", "fixed", "token", "leaky", "zero", "always", "two", "shadow", "quota",
        "free", "shared", "listed", "unknown",
    ];

    fn limiter() -> Limiter {
        let store =
            StoreSettings { seed: Seed::from_bytes([9; 16]), counters_max: 20, on_full: OnFull::Deny };
        Limiter::new(rule_set(RULES, Semantics::Exact, None), store, false)
    }

    fn counters(limiter: &Limiter) -> Vec<String> {
        let shards = (0..limiter.store().shard_count()).map(|shard| limiter.store().lock(shard));
        shards
            .flat_map(|shard| shard.iter().map(|counter| format!("{counter:?}")).collect::<Vec<_>>())
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_short_way_decides_and_counts_as_the_long_one(
            steps in prop::collection::vec((0..8_000u64, 0..KEYS.len(), 0..2u8, 0..8u8, 0..20u8), 1..80),
        ) {
            let (short, long) = (limiter(), limiter());
            let mut millis = 1_700_000_000_000;
            for (wait, key, value, hits, rare) in steps {
                millis += wait;
                let text = format!("{}=a{value}", KEYS[key]);
                let mut descriptor = descriptor(&text);
                descriptor.hits = Hits::new(Some(u64::from(hits)), 0, rare == 0);
                descriptor.limit = (rare == 1).then_some(Override { requests: 2, unit: Unit::Second });
                if rare == 2 {
                    let changed = RULES.replace("requests_per_unit: 4", ["requests_per_unit: 3", "requests_per_unit: 5"][key % 2]);
                    for limiter in [&short, &long] {
                        limiter.replace_rules(rule_set(&changed, Semantics::Exact, Some(&limiter.rules())));
                    }
                }
                let mut request = Request::new("d");
                request.push(descriptor);
                let now = Timestamp::from_millis(millis);
                let (pinned, in_force) = (short.pin(), long.in_force.load());
                let domain = in_force.rules.domain("d").expect("is there");
                let by_long = decide_any(&in_force, domain, &long.store, false, &request, now);
                prop_assert_eq!(pinned.decide(&request, now), by_long, "{} {:?}", text, request);
                prop_assert_eq!(counters(&short), counters(&long));
            }
        }
    }

    #[test]
    fn hits_for_a_plain_limit_go_the_short_way_once_their_counter_is_there() {
        let limiter = limiter();
        for (key, is_short) in
            [("sliding", true), ("fixed", true), ("token", true), ("leaky", true), ("two", false)]
        {
            let text = format!("{key}=x");
            let mut request = Request::new("d");
            request.push(descriptor(&text));
            let in_force = limiter.in_force.load();
            let domain = in_force.rules.domain("d").expect("is there");
            let now = Timestamp::from_millis(1_700_000_000_000);
            let decide = || decide(domain, &in_force.keys, &limiter.store, &request, now);
            assert_eq!(decide(), None, "{key} has no counter yet");
            limiter.pin().decide(&request, now);
            assert_eq!(decide().is_some(), is_short, "{key}");
        }
    }
}
