//! Levels for the semantics of the reference server: nodes are found by the joined text of key and value.
//!
//! The rule with the key `a` and the value `b_c` also applies to the entry `a_b=c`, and a wildcard of a key may match the value. Two rules
//! with one joined text are duplicates.

use super::{
    matched::Matched,
    node::{JoinedLevel, JoinedNode, Level, Node, SetNode, ValueSets},
};
use crate::{
    limit::Entry,
    rules::{
        Semantics,
        error::Problems,
        grammar::{Declared, DeclaredKey, DeclaredValue},
        pattern::Pattern,
        pattern_set::PatternSet,
    },
};
use smallvec::SmallVec;
use smol_str::SmolStr;
use std::collections::BTreeMap;

/// Bytes of a joined text that are looked up without allocation.
const INLINE: usize = 256;

impl JoinedLevel {
    pub(super) fn compile(declared: Vec<Declared>, problems: &Problems) -> Self {
        let (mut nodes, mut by_text) = (Vec::<JoinedNode>::with_capacity(declared.len()), BTreeMap::new());
        let mut sets: BTreeMap<SmolStr, Vec<SetNode>> = BTreeMap::new();
        for (order, one) in (0..).zip(declared) {
            let text = SmolStr::from(one.joined());
            let Declared { key, value, shares_counter, rule, below, path_in_file, .. } = one;
            let node = Node { rule, below: Level::compile(below, Semantics::Reference, problems) };
            if let (DeclaredKey::Exact(key), DeclaredValue::Set(values)) = (key, value) {
                let path_in_file = path_in_file.into();
                sets.entry(key.into()).or_default().push(SetNode { values, order, node, path_in_file });
                continue;
            }
            if let Some(&first) = by_text.get(&text) {
                let first: &JoinedNode = &nodes[first as usize];
                let message = format!(
                    "joined to {text}, the same key and value as at {}; keep one of the two",
                    first.node.rule.origin
                );
                problems.at(&node.rule.origin, path_in_file, message);
                continue;
            }
            by_text.insert(text.clone(), nodes.len() as u32);
            nodes.push(JoinedNode { pattern: Pattern::new(&text), text, shares_counter, node });
        }
        let wildcards = (0..).zip(&nodes).filter_map(|(index, node)| Some((index, node.pattern.as_ref()?)));
        let patterns = PatternSet::new(wildcards);
        let sets = sets.into_iter().map(|(key, of_key)| {
            let exact = |value: &str| {
                let index = by_text.get(&*format!("{key}_{value}"))?;
                Some(&nodes[*index as usize].node.rule)
            };
            let sets = ValueSets::new(of_key, exact, problems);
            (key, sets)
        });
        let sets = sets.collect();
        Self { patterns, by_text: by_text.into_iter().collect(), nodes: nodes.into(), sets }
    }

    /// The node that the entry selects: by key and value; else by a list or a network; else the first wildcard of the file that matches
    /// these; else by a regular expression; else by the key.
    pub(super) fn step(&self, entry: &Entry<'_>) -> Option<(Matched<'_>, &Node)> {
        let mut joined: SmallVec<[u8; INLINE]> = SmallVec::from_slice(entry.key.as_bytes());
        joined.push(b'_');
        joined.extend_from_slice(entry.value.as_bytes());
        let joined = str::from_utf8(&joined).unwrap_or_default();
        if let Some(exact) = self.get(joined) {
            return Some((Matched::Exact, exact));
        }
        let sets = self.sets.get(entry.key);
        if let Some(listed) = sets.and_then(|sets| sets.listed(entry.value)) {
            return Some(listed);
        }
        let wildcard = self.patterns.first(joined).map(|index| &self.nodes[index as usize]);
        if let Some(JoinedNode { shares_counter, pattern: Some(pattern), node, .. }) = wildcard {
            return Some((Matched::Wildcard { pattern, shared: *shares_counter }, node));
        }
        let any_case = || Some(sets?.wildcard(entry.value)?.matched());
        let regex = || sets?.regex(entry.value);
        let alone = || Some((Matched::KeyAlone, self.get(entry.key)?));
        any_case().or_else(regex).or_else(alone)
    }

    /// The node with exactly this text.
    pub(super) fn get(&self, text: &str) -> Option<&Node> {
        self.by_text.get(text).map(|&index| &self.nodes[index as usize].node)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.sets().next().is_none()
    }

    /// The joined texts, in the order of the file, and the texts that stand for sets.
    pub(super) fn texts(&self) -> Vec<&str> {
        let sets = self.sets().flat_map(ValueSets::labels);
        self.nodes.iter().map(|node| node.text.as_str()).chain(sets).collect()
    }

    pub(super) fn sets(&self) -> impl Iterator<Item = &ValueSets> {
        self.sets.iter().map(|(_, sets)| sets)
    }

    /// Calls `visit` with every node.
    pub(super) fn nodes<'r>(&'r self, visit: &mut dyn FnMut(&'r Node)) {
        let sets = self.sets().flat_map(|sets| sets.nodes.iter().map(|set| &set.node));
        self.nodes.iter().map(|joined| &joined.node).chain(sets).for_each(visit);
    }
}
