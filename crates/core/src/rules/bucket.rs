//! Buckets of quotas (RLQS): which rule a bucket has. A bucket is a set of keys with values, in no order.
//!
//! The rule of a bucket is that of a descriptor with the bucket's entries, in an order in which the rules of the domain lead to a limit.
//! If several orders do, it is the rule that is declared first.
//!
//! Invariant: the work is bounded, whatever the rules and the bucket.

use super::{DomainRules, Rule, tree::Level};
use crate::limit::Entry;

/// Pairs of a bucket that are matched against rules; a bucket with more has no rule.
pub const BUCKET_ENTRIES_MAX: usize = 16;

/// Lookups of a bucket's entries in levels, over all orders. Without this bound, wildcards in keys could lead on in any order.
const LOOKUPS_MAX: u32 = 4_096;

impl DomainRules {
    /// The entries of a bucket, in the order in which they lead to its rule; sorted by key if they lead to none.
    pub fn in_order_of_rules<'b>(&self, bucket: &[Entry<'b>]) -> Vec<Entry<'b>> {
        let mut entries = bucket.to_vec();
        entries.sort_unstable_by_key(|entry| entry.key);
        if entries.len() > BUCKET_ENTRIES_MAX || self.conditional().is_some() {
            return entries;
        }
        let mut search = Search { entries: &entries, order: Vec::new(), lookups: LOOKUPS_MAX, found: None };
        search.below(self.root(), 0);
        search.found.map_or_else(|| entries.clone(), |(_, order)| order)
    }
}

/// Looks for the first rule to which any order of the entries leads.
struct Search<'r, 'b, 'e> {
    entries: &'e [Entry<'b>],
    /// Entries that lead to the level.
    order: Vec<Entry<'b>>,
    /// Lookups that are left.
    lookups: u32,
    found: Option<(&'r Rule, Vec<Entry<'b>>)>,
}

impl<'r> Search<'r, '_, '_> {
    /// Looks below a level; `used` has the bits of the entries that lead to it.
    fn below(&mut self, level: &'r Level, used: u32) {
        for (index, entry) in self.entries.iter().enumerate() {
            let bit = 1 << index;
            if used & bit != 0 {
                continue;
            }
            let Some(lookups) = self.lookups.checked_sub(1) else { return };
            self.lookups = lookups;
            let Some((_, node)) = level.step(entry) else { continue };
            self.order.push(*entry);
            if self.order.len() == self.entries.len() {
                self.reach(&node.rule);
            } else {
                self.below(&node.below, used | bit);
            }
            self.order.pop();
        }
    }

    fn reach(&mut self, rule: &'r Rule) {
        let is_limit = rule.unlimited || !rule.limits.is_empty();
        let is_first = self.found.as_ref().is_none_or(|(found, _)| rule.origin < found.origin);
        if is_limit && is_first {
            self.found = Some((rule, self.order.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{LoadOptions, RuleSet, Source};
    use proptest::{collection::vec, prelude::*, sample::subsequence};

    fn rules(text: &str) -> RuleSet {
        let sources = [Source::file("rules.yaml", text)];
        RuleSet::parse(&sources, &LoadOptions::default()).unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// The path of the rule that the bucket's entries lead to.
    fn rule_of(rules: &RuleSet, bucket: &[(&str, &str)]) -> Option<String> {
        let domain = rules.domain("d").expect("declared");
        let entries: Vec<Entry<'_>> = bucket.iter().map(|&(key, value)| Entry { key, value }).collect();
        let found = domain.find(&domain.in_order_of_rules(&entries))?;
        Some(found.rule.info.path.to_string())
    }

    #[test]
    fn a_bucket_has_the_rule_of_its_set_of_keys() {
        let text = "domain: d\ndescriptors:\n\
            - key: tenant\n  descriptors:\n  - {key: path, value: /pay*, rate_limit: {per: 1s, requests_per_unit: 5}}\n  \
              - {key: address, value_network: 10.0.0.0/8, rate_limit: {per: 1s, requests_per_unit: 6}}\n\
            - {key: path, rate_limit: {per: 1s, requests_per_unit: 7}}\n\
            - key: path\n  value: /first\n  descriptors:\n  - {key: tenant, rate_limit: {per: 1s, requests_per_unit: 8}}\n";
        let rules = rules(text);
        let of = |bucket: &[(&str, &str)]| rule_of(&rules, bucket);
        let pay = Some("tenant → path=/pay*");
        assert_eq!(of(&[("tenant", "a"), ("path", "/pay/1")]).as_deref(), pay);
        assert_eq!(of(&[("path", "/pay/1"), ("tenant", "a")]).as_deref(), pay);
        assert_eq!(
            of(&[("address", "10.1.2.3"), ("tenant", "a")]).as_deref(),
            Some("tenant → address=(network 10.0.0.0/8)")
        );
        assert_eq!(of(&[("path", "/pay/1")]).as_deref(), Some("path"));
        assert_eq!(of(&[("tenant", "a"), ("path", "/first")]).as_deref(), Some("path=/first → tenant"));
        for none in [&[("tenant", "a")][..], &[("path", "/pay"), ("tenant", "a"), ("x", "y")], &[]] {
            let path = of(none);
            assert!(path.as_deref().is_none_or(|path| path == "tenant"), "{none:?}: {path:?} has no limit");
        }
    }

    #[test]
    fn the_first_rule_wins_if_several_orders_lead_to_one() {
        let one = |first: &str, second: &str| {
            format!(
                "- key: {first}\n  descriptors:\n  - {{key: {second}, rate_limit: {{per: 1s, requests_per_unit: 5}}}}\n"
            )
        };
        let (ab, ba) = (one("a", "b"), one("b", "a"));
        let bucket = [("a", "1"), ("b", "2")];
        let first = rules(&format!("domain: d\ndescriptors:\n{ab}{ba}"));
        let other = rules(&format!("domain: d\ndescriptors:\n{ba}{ab}"));
        assert_eq!(rule_of(&first, &bucket).as_deref(), Some("a → b"));
        assert_eq!(rule_of(&other, &bucket).as_deref(), Some("b → a"));
    }

    /// Wildcards in keys, in any order, at any depth: 16! orders.
    #[test]
    fn the_work_is_bounded() {
        let mut text = String::from("domain: d\ndescriptors:\n");
        for depth in 0..15 {
            text += &format!("{0}- key: 'k*'\n{0}  descriptors:\n", "  ".repeat(depth));
        }
        text += &format!("{}- key: none\n", "  ".repeat(15));
        let rules = rules(&text);
        let keys: Vec<String> = (0..16).map(|index| format!("k{index}")).collect();
        let bucket: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "v")).collect();
        assert_eq!(rule_of(&rules, &bucket), None);
        let longer: Vec<(&str, &str)> = (0..40).map(|_| ("k", "v")).collect();
        assert_eq!(rule_of(&rules, &longer), None);
    }

    /// Every order of the items.
    fn orders<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
        if items.is_empty() {
            return vec![Vec::new()];
        }
        let with_first = |first: usize| {
            let mut rest = items.to_vec();
            let item = rest.remove(first);
            orders(&rest).into_iter().map(move |order| [vec![item.clone()], order].concat())
        };
        (0..items.len()).flat_map(with_first).collect()
    }

    const KEYS: [&str; 4] = ["a", "b", "c", "d"];

    /// A descriptor path: keys, each with a value or without, and the requests of its limit.
    fn path() -> impl Strategy<Value = (Vec<(&'static str, &'static str)>, bool)> {
        let values = vec(prop_oneof![Just(""), Just("value: x, "), Just("value: 'x*', ")], 4);
        let keys = subsequence(KEYS.to_vec(), 1..4).prop_shuffle();
        (keys, values, any::<bool>())
            .prop_map(|(keys, values, limited)| (keys.into_iter().zip(values).collect(), limited))
    }

    fn file(paths: &[(Vec<(&str, &str)>, bool)]) -> String {
        let mut text = String::from("domain: d\ndescriptors:\n");
        for (path, limited) in paths {
            for (depth, (key, value)) in path.iter().enumerate() {
                let limit = match depth + 1 == path.len() {
                    true if *limited => "rate_limit: {per: 1s, requests_per_unit: 5}",
                    true => "",
                    false => "descriptors: [",
                };
                text += &format!("{}{{key: {key}, {value}{limit}", if depth == 0 { "- " } else { "" });
            }
            text += &"}]".repeat(path.len() - 1);
            text += "}\n";
        }
        text
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2 * ProptestConfig::default().cases))]
        #[test]
        fn a_bucket_has_the_first_rule_that_any_order_of_a_descriptor_has(
            paths in vec(path(), 1..6), bucket in subsequence(KEYS.to_vec(), 1..4).prop_shuffle(), values in vec("x|xy|z", 4),
        ) {
            let sources = [Source::file("rules.yaml", file(&paths))];
            // Descriptors declared twice are refused.
            let Ok(rules) = RuleSet::parse(&sources, &LoadOptions::default()) else { return Ok(()) };
            let domain = rules.domain("d").expect("declared");
            let bucket: Vec<Entry<'_>> =
                bucket.iter().zip(&values).map(|(key, value)| Entry { key, value }).collect();
            let limited = |rule: &&Rule| rule.unlimited || !rule.limits.is_empty();
            let expected = orders(&bucket).iter().filter_map(|order| domain.find(order)).map(|found| found.rule)
                .filter(limited).min_by_key(|rule| rule.origin.clone());
            let found = domain.find(&domain.in_order_of_rules(&bucket)).map(|found| found.rule).filter(limited);
            prop_assert_eq!(found.map(|rule| &rule.origin), expected.map(|rule| &rule.origin));
        }
    }
}
