//! Random rule files in the grammar of the reference server.

use crate::rng::Rng;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Parts of the grammar that older versions of the reference server lack.
#[derive(Clone, Copy, Debug)]
pub struct Grammar {
    /// `*` anywhere in a text, not only at its end.
    pub inner_wildcards: bool,
    /// `metadata` of descriptors, and quotas that deny once all of them are over.
    pub metadata: bool,
    /// `detailed_metric` and `value_to_metric`. Every version has them, and half of the files use them.
    pub metrics_by_value: bool,
}

/// Keys and values that are joined to equal texts in several ways.
const KEYS: [&str; 5] = ["a", "b", "a_b", "k", "w*"];
const VALUES: [&str; 9] = ["", "", "b", "x", "x_y", "x*", "*", "b_*", "10.0.0.1"];
const INNER: [&str; 3] = ["x*y", "*y", "x*b*"];
const NAMES: [&str; 3] = ["first", "second", "third"];
const DEPTH_MAX: usize = 3;

/// A rule file. Every key and value is known to [`super::requests`], so that most descriptors have a rule.
pub fn file(rng: &mut Rng, domain: &str, grammar: Grammar, units: &[&str]) -> Value {
    let grammar = Grammar { metrics_by_value: rng.once_in(2), ..grammar };
    json!({ "domain": domain, "descriptors": level(rng, grammar, units, DEPTH_MAX) })
}

/// Whether a rule of the file has metrics by value. The reference server drops the metadata of such rules.
pub fn has_metrics_by_value(file: &Value) -> bool {
    let text = file.to_string();
    text.contains("detailed_metric") || text.contains("value_to_metric")
}

fn level(rng: &mut Rng, grammar: Grammar, units: &[&str], depth: usize) -> Vec<Value> {
    let (mut joined, mut descriptors) = (BTreeSet::new(), Vec::new());
    for _ in 0..rng.between(1, 6) {
        let key = rng.pick(&KEYS);
        let inner = grammar.inner_wildcards && rng.once_in(5);
        let value = if inner { rng.pick(&INNER) } else { rng.pick(&VALUES) };
        let text = if value.is_empty() { key.to_owned() } else { format!("{key}_{value}") };
        // A `*` before the end is an ordinary character in older versions.
        let is_known = grammar.inner_wildcards || !text[..text.len() - 1].contains('*');
        if is_known && joined.insert(text.clone()) {
            descriptors.push(descriptor(rng, grammar, units, depth, (key, value, &text)));
        }
    }
    descriptors
}

fn descriptor(
    rng: &mut Rng,
    grammar: Grammar,
    units: &[&str],
    depth: usize,
    (key, value, joined): (&str, &str, &str),
) -> Value {
    let mut descriptor = Map::new();
    descriptor.insert("key".into(), key.into());
    if !value.is_empty() {
        descriptor.insert("value".into(), value.into());
    }
    if !rng.once_in(5) {
        descriptor.insert("rate_limit".into(), limit(rng, units));
    }
    for (flag, times) in
        [("shadow_mode", 6), ("quota_mode", 5), ("detailed_metric", 4), ("value_to_metric", 4)]
    {
        if rng.once_in(times) && (grammar.metrics_by_value || !flag.ends_with("_metric")) {
            descriptor.insert(flag.into(), true.into());
        }
    }
    if joined.contains('*') && rng.once_in(2) {
        descriptor.insert("share_threshold".into(), true.into());
    }
    if grammar.metadata && rng.once_in(4) {
        descriptor.insert("metadata".into(), json!({ "team": rng.below(3), "of": { "depth": depth } }));
    }
    if depth > 1 && rng.once_in(2) {
        descriptor.insert("descriptors".into(), level(rng, grammar, units, depth - 1).into());
    }
    descriptor.into()
}

fn limit(rng: &mut Rng, units: &[&str]) -> Value {
    let mut limit = Map::new();
    if rng.once_in(8) {
        limit.insert("unlimited".into(), true.into());
    } else {
        limit.insert("unit".into(), rng.pick(units).into());
        // Tidegate's counters end at `u32::MAX`, so a limit of that number is never exceeded; docs/rules-reference.md states that.
        limit.insert("requests_per_unit".into(), rng.pick(&[0, 1, 2, 3, 5, 5, 10, u32::MAX - 1]).into());
    }
    let own = rng.once_in(3).then(|| rng.pick(&NAMES));
    if let Some(own) = own {
        limit.insert("name".into(), own.into());
    }
    if rng.once_in(5) {
        let replaced = rng.pick(&NAMES);
        if own != Some(replaced) {
            limit.insert("replaces".into(), json!([{ "name": replaced }]));
        }
    }
    limit.into()
}
