//! The descriptors that a domain declares, with what each entry matches.

use super::{
    DomainRules,
    entry::{DeclaredEntry, DeclaredValues},
    node::{Level, Node, SetNode, Siblings, ValueSets},
};
use crate::rules::{Rule, grammar::DeclaredValue};

/// Nodes with the values that select them.
type Nodes<'r> = Vec<(DeclaredValues<'r>, &'r Node)>;

/// A descriptor with a limit, from the outermost entry to the innermost.
#[derive(Clone, PartialEq, Debug)]
pub struct DeclaredPath<'r> {
    /// Its entries; at least one.
    pub entries: Vec<DeclaredEntry<'r>>,
    /// Its rule.
    pub rule: &'r Rule,
}

impl DomainRules {
    /// The descriptors that have limits or are unlimited, in an order in which the first that matches a request is the right one:
    /// descriptors below another precede it, and those of one key are in the order in which they are tried.
    pub fn declared_paths(&self) -> Vec<DeclaredPath<'_>> {
        let mut paths = Vec::new();
        add(&self.root, &mut Vec::new(), &mut paths);
        paths
    }
}

fn add<'r>(level: &'r Level, above: &mut Vec<DeclaredEntry<'r>>, paths: &mut Vec<DeclaredPath<'r>>) {
    let mut keys: Vec<&str> =
        level.iter().map(|(key, _)| key).chain(level.sets().map(|(key, _)| key)).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut of_keys: Vec<(&str, Nodes<'_>)> =
        keys.into_iter().map(|key| (key, in_order(level.siblings(key), level.sets_of(key)))).collect();
    // Keys are independent of one another: they stay in the order of the file.
    of_keys.sort_by_key(|(_, nodes)| nodes.iter().map(|(_, node)| &node.rule.origin).min());
    for (key, nodes) in of_keys {
        for (values, node) in nodes {
            add_node(DeclaredEntry { key: Some(key), values }, node, above, paths);
        }
    }
    for wildcard in level.wildcards() {
        let values = match &wildcard.value {
            DeclaredValue::Any => DeclaredValues::Any,
            DeclaredValue::Exact(value) => DeclaredValues::Exact(value),
            DeclaredValue::Wildcard { pattern, shared, .. } => {
                DeclaredValues::Wildcard { pattern, shares_counter: *shared }
            }
            DeclaredValue::Set(set) => DeclaredValues::Set(set),
        };
        add_node(DeclaredEntry { key: None, values }, &wildcard.node, above, paths);
    }
}

fn add_node<'r>(
    entry: DeclaredEntry<'r>,
    node: &'r Node,
    above: &mut Vec<DeclaredEntry<'r>>,
    paths: &mut Vec<DeclaredPath<'r>>,
) {
    above.push(entry);
    add(&node.below, above, paths);
    if node.rule.unlimited || !node.rule.limits.is_empty() {
        paths.push(DeclaredPath { entries: above.clone(), rule: &node.rule });
    }
    above.pop();
}

/// The nodes of a key in the order in which they are tried: exact values, sets, wildcards, regular expressions, the key alone.
fn in_order<'r>(siblings: Option<&'r Siblings>, sets: Option<&'r ValueSets>) -> Nodes<'r> {
    let exact = siblings.into_iter().flat_map(|siblings| siblings.exact.iter());
    let mut exact: Nodes<'r> = exact.map(|(value, node)| (DeclaredValues::Exact(value), node)).collect();
    exact.sort_by_key(|(_, node)| &node.rule.origin);
    let of_set = |set: &'r SetNode| (DeclaredValues::Set(&set.values), &set.node);
    let sets = sets.into_iter().flat_map(|sets| sets.nodes.iter());
    let (regexes, sets): (Vec<&SetNode>, Vec<&SetNode>) = sets.partition(|set| set.regex().is_some());
    let wildcards = siblings.into_iter().flat_map(Siblings::wildcard_list).map(|wildcard| {
        let values = DeclaredValues::Wildcard { pattern: &wildcard.pattern, shares_counter: wildcard.shared };
        (values, &wildcard.node)
    });
    let alone =
        siblings.and_then(|siblings| siblings.alone.as_deref()).map(|node| (DeclaredValues::Any, node));
    let others = sets.into_iter().map(of_set).chain(wildcards);
    exact.into_iter().chain(others).chain(regexes.into_iter().map(of_set)).chain(alone).collect()
}

#[cfg(test)]
mod tests {
    use crate::rules::{LoadOptions, RuleSet, Source};

    #[test]
    fn descriptors_are_in_the_order_in_which_they_are_tried() {
        let limit = "rate_limit: {per: 1s, requests_per_unit: 5}";
        let text = format!(
            "domain: d\ndescriptors:\n- {{key: a, {limit}}}\n- {{key: a, value: 'x*', {limit}}}\n\
             - {{key: a, value_regex: y, {limit}}}\n- {{key: a, values: [z], {limit}}}\n\
             - key: a\n  value: x\n  {limit}\n  descriptors:\n  - {{key: b, {limit}}}\n  - key: c\n\
             - {{key: n, value_network: 10.0.0.0/8, {limit}}}\n- {{key: m, {limit}}}\n- {{key: 'k*', {limit}}}\n"
        );
        let rules = RuleSet::parse(&[Source::file("rules.yaml", text)], &LoadOptions::default()).unwrap();
        let paths = rules.domain("d").unwrap().declared_paths();
        let paths: Vec<&str> = paths.iter().map(|path| &*path.rule.info.path).collect();
        let of_a = ["a=x → b", "a=x", "a=(list z)", "a=x*", "a=(regex y)", "a"];
        assert_eq!(paths, [&of_a[..], &["n=(network 10.0.0.0/8)", "m", "k*"]].concat());
    }
}
