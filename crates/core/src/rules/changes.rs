//! Changes made by a reload, by limit.

use super::{LimitIdentity, OwnLimitSettings, Rule, RuleLimit, RuleSet};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};

/// The limits that two rule sets do not have in common, as `domain: name`, and the domains that only one of them serves over RLQS; sorted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleChanges {
    /// Limits of the later rules alone.
    pub added: Vec<String>,
    /// Limits of the former rules alone.
    pub removed: Vec<String>,
    /// Limits that count or apply differently; their counters are carried over.
    pub changed: Vec<String>,
    /// Domains that have `rlqs` in the later rules alone.
    pub quotas_added: Vec<String>,
    /// Domains that have `rlqs` in the former rules alone. The streams of their clients end, and Envoy admits all requests.
    pub quotas_removed: Vec<String>,
}

impl RuleChanges {
    /// The difference between two rule sets, the later of which was built upon the former.
    pub fn between(former: &RuleSet, later: &RuleSet) -> Self {
        let mut unmatched: HashMap<&LimitIdentity, (&Rule, &RuleLimit), FixedState> = HashMap::default();
        for (rule, limit) in former.rule_limits_unsorted() {
            unmatched.insert(former.identity(limit), (rule, limit));
        }
        let mut changes = Self::default();
        for (rule, limit) in later.rule_limits_unsorted() {
            match unmatched.remove(later.identity(limit)) {
                None => changes.added.push(later.limit_name(limit).to_string()),
                Some((former_rule, former_limit)) => {
                    if !is_same(former_limit, limit) || !applies_alike(former_rule, rule) {
                        changes.changed.push(later.limit_name(limit).to_string());
                    }
                }
            }
        }
        changes.removed = unmatched.values().map(|(_, limit)| former.limit_name(limit).to_string()).collect();
        let (before, after) = (own_limits(former), own_limits(later));
        let stated: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let differ = stated.into_iter().filter(|name| before.get(*name) != after.get(*name));
        changes.changed.extend(differ.cloned());
        let (before, after) = (with_quotas(former), with_quotas(later));
        changes.quotas_added = after.difference(&before).map(|name| (*name).to_owned()).collect();
        changes.quotas_removed = before.difference(&after).map(|name| (*name).to_owned()).collect();
        for names in [&mut changes.added, &mut changes.removed, &mut changes.changed] {
            names.sort_unstable();
        }
        changes
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The domains that are served over RLQS.
fn with_quotas(rules: &RuleSet) -> BTreeSet<&str> {
    rules.domains().filter(|domain| domain.quotas().is_some()).map(|domain| domain.name()).collect()
}

/// How limits in requests count, by the place that states it.
fn own_limits(rules: &RuleSet) -> BTreeMap<String, OwnLimitSettings> {
    let mut stated = BTreeMap::new();
    for domain in rules.domains() {
        let of_domain =
            domain.request_limits().map(|own| (format!("{}: request_limits", domain.name()), *own));
        let of_rules = domain.rules_unsorted().into_iter().filter_map(|rule| {
            Some((format!("{}: {}: request_limits", domain.name(), rule.info.path), *rule.own_limits()?))
        });
        stated.extend(of_domain.into_iter().chain(of_rules));
    }
    stated
}

fn is_same(one: &RuleLimit, other: &RuleLimit) -> bool {
    one.requests == other.requests
        && one.window == other.window
        && one.algorithm == other.algorithm
        && one.anchor_entry() == other.anchor_entry()
        && one.charge == other.charge
        && one.debt_max == other.debt_max
        && one.reserve == other.reserve
        && one.semantics == other.semantics
        && one.is_local == other.is_local
        && one.name == other.name
        && one.when == other.when
        && one.ban.as_ref().map(|ban| &ban.algorithm) == other.ban.as_ref().map(|ban| &ban.algorithm)
        && match (&one.schedule, &other.schedule) {
            (Some(one), Some(other)) => one.is_same(other),
            (one, other) => one.is_none() && other.is_none(),
        }
}

/// Whether both rules do the same with their limits, wherever they are declared.
fn applies_alike(one: &Rule, other: &Rule) -> bool {
    one.shadow == other.shadow
        && one.replaces == other.replaces
        && one.info.quota == other.info.quota
        && one.info.on_deny == other.info.on_deny
        && one.info.metadata == other.info.metadata
        && one.detailed_metric == other.detailed_metric
        && one.value_to_metric == other.value_to_metric
        && one.shard_by == other.shard_by
        && one.is_never_leased == other.is_never_leased
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{LoadOptions, Source};

    fn changes(former: &str, later: &str) -> [String; 3] {
        let sources = |descriptors: &str| {
            [Source::file("rules.yaml", format!("domain: d\ndescriptors: [{descriptors}]"))]
        };
        let former = RuleSet::parse(&sources(former), &LoadOptions::default()).unwrap();
        let later = former.successor(&sources(later), &LoadOptions::default()).unwrap();
        let RuleChanges { added, removed, changed, .. } = RuleChanges::between(&former, &later);
        [added, removed, changed].map(|names| names.join(", "))
    }

    #[test]
    fn changes_are_listed_by_the_names_of_limits() {
        let limit = "{unit: second, requests_per_unit: 1}";
        let former = format!("{{key: a, rate_limit: {limit}}}, {{key: b, rate_limit: {limit}}}");
        let same_elsewhere = format!("{{key: b, rate_limit: {limit}}}, {{key: a, rate_limit: {limit}}}");
        assert_eq!(changes(&former, &same_elsewhere), ["", "", ""]);
        let later = "{key: a, rate_limit: {unit: second, requests_per_unit: 2}}, \
                     {key: c, rate_limit: {name: new, unit: second, requests_per_unit: 1}}";
        assert_eq!(changes(&former, later), ["d: new", "d: b", "d: a"]);
        let shadow =
            format!("{{key: a, shadow_mode: true, rate_limit: {limit}}}, {{key: b, rate_limit: {limit}}}");
        assert_eq!(changes(&former, &shadow), ["", "", "d: a"]);
        let bucket = |keys: &str| {
            format!(
                "{{key: a, rate_limit: {{unit: second, requests_per_unit: 9, algorithm: token_bucket, {keys}}}}}"
            )
        };
        for keys in
            ["reserve: 3", "reserve: 2, max_hold: 9s", "reserve: 2, on_lost_end: return", "reserve: hits"]
        {
            assert_eq!(changes(&bucket("reserve: 2"), &bucket(keys)), ["", "", "d: a"], "{keys}");
        }
        assert_eq!(changes(&bucket("reserve: 2"), &bucket("reserve: 2")), ["", "", ""]);
        let own = |keys: &str| format!("{{key: a, request_limits: {{{keys}}}}}");
        assert_eq!(changes("{key: a}", &own("charge: always")), ["", "", "d: a: request_limits"]);
        assert_eq!(changes(&own("charge: always"), &own("precision: 9")), ["", "", "d: a: request_limits"]);
        assert_eq!(changes(&own("precision: 9"), &own("precision: 9")), ["", "", ""]);
    }
    /// No limit changes with `rlqs`, but Envoys without it admit everything.
    #[test]
    fn domains_that_gain_or_lose_rlqs_are_listed() {
        let sources = |with: [&str; 3]| {
            let domain = |(name, rlqs)| {
                Source::file("rules.yaml", format!("{{domain: {name}, {rlqs} descriptors: []}}"))
            };
            ["a", "b", "c"].into_iter().zip(with).map(domain).collect::<Vec<_>>()
        };
        let rlqs = "rlqs: {},";
        let former = RuleSet::parse(&sources([rlqs, "", rlqs]), &LoadOptions::default()).unwrap();
        let later = former.successor(&sources(["", rlqs, rlqs]), &LoadOptions::default()).unwrap();
        let changes = RuleChanges::between(&former, &later);
        assert_eq!(
            (changes.quotas_added, changes.quotas_removed),
            (vec!["b".to_owned()], vec!["a".to_owned()])
        );
    }
}
