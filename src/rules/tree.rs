//! The compiled rules of a domain, and how a descriptor is matched against them.
//!
//! Each entry of the descriptor selects one of the nodes of its level: that with its exact key and value; else the first
//! in the order of the file with a wildcard key or wildcard value that matches; else that with its key and no value; else
//! the descriptor has no rule. The selection is final: if the next entry finds nothing below it, no other node is tried.
//! The rule is that of the last entry; rules of nodes above it do not apply.
//!
//! Nodes with exact keys and values are found by hash; wildcards are tried one after another.

use super::{
    KeyPrefix, Origin, Rule, RuleLimit,
    error::Problems,
    explain::{Explanation, Matched},
    grammar::{Declared, DeclaredDomain, DeclaredKey, DeclaredValue},
    pattern::Pattern,
    redaction::{Redaction, Redactions},
    text_map::TextMap,
};
use crate::limit::{Entry, Override, Unit};
use smallvec::SmallVec;
use smol_str::SmolStr;
use std::{
    collections::{BTreeMap, btree_map},
    sync::Arc,
};

/// The rules of one domain.
#[derive(Clone, Debug)]
pub struct DomainRules {
    name: Arc<str>,
    root: Level,
    /// The limits of requests that have their own, one for each of [`Unit::ALL`]; the number of requests is theirs.
    overrides: [RuleLimit; Unit::ALL.len()],
    has_replaces: bool,
    may_queue: bool,
    redactions: Redactions,
}

/// The rule of a descriptor.
#[derive(Clone, Debug)]
pub struct Found<'r> {
    /// The rule of the last entry.
    pub rule: &'r Rule,
    /// Entries, by index, with a counter that all their values share: its key has this pattern instead of the value.
    pub shared: SharedPatterns<'r>,
}

/// Patterns, each with the index of its entry.
type SharedPatterns<'r> = SmallVec<[(usize, &'r str); 1]>;

/// An entry that leads to a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleEntry<'r> {
    /// The key; none if the rule has a wildcard in its place.
    pub key: Option<&'r str>,
    /// The values that match.
    pub value: RuleValue<'r>,
}

/// The values of an entry that match a rule, and which of them share a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleValue<'r> {
    /// This one.
    Exact(&'r str),
    /// All that match this pattern; they share one counter.
    Shared(&'r str),
    /// Several; each has a counter of its own.
    Any,
}

/// The nodes of one level, by key.
///
/// Most levels have one key. It is stored in the level itself, and that in the node above: with ten thousand rules each
/// box on the path is a cache miss of its own.
#[derive(Clone, Debug)]
pub(super) enum Level {
    One(SmolStr, Siblings),
    Many(TextMap<Siblings>),
    Wildcards(Box<WildcardLevel>),
}

/// The nodes of a level in which some keys are wildcards.
#[derive(Clone, Debug)]
pub(super) struct WildcardLevel {
    /// The nodes with exact keys.
    exact: Level,
    /// In the order of the file.
    wildcards: Box<[KeyWildcard]>,
}

/// A node with a wildcard key.
#[derive(Clone, Debug)]
struct KeyWildcard {
    key: Pattern,
    value: DeclaredValue,
    /// Its place among all nodes of the level, in the order of the file.
    order: u32,
    node: Node,
}

/// The nodes of one level with the same key.
#[derive(Clone, Debug)]
pub(super) struct Siblings {
    exact: TextMap<Node>,
    /// In the order of the file.
    wildcards: Box<[Wildcard]>,
    alone: Option<Box<Node>>,
}

#[derive(Clone, Debug)]
struct Wildcard {
    pattern: Pattern,
    /// All values that match share one counter.
    shared: bool,
    /// Its place among all nodes of the level, in the order of the file.
    order: u32,
    node: Node,
}

/// A descriptor of the rules. The level below is stored beside the value that selects this node, and the rule after it.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Node {
    pub(super) below: Level,
    pub(super) rule: Rule,
}

impl DomainRules {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rule of a descriptor with these entries, if it has one.
    #[inline]
    pub fn find<'r>(&'r self, entries: &[Entry<'_>]) -> Option<Found<'r>> {
        let mut shared = SmallVec::new();
        let rule = self.follow(entries, &mut shared)?;
        Some(Found { rule, shared })
    }

    /// The same; adds the patterns of shared values to `shared`. The result fits a register.
    fn follow<'r>(&'r self, entries: &[Entry<'_>], shared: &mut SharedPatterns<'r>) -> Option<&'r Rule> {
        let (mut level, mut rule) = (&self.root, None);
        for (index, entry) in entries.iter().enumerate() {
            let (matched, node) = level.step(entry)?;
            if let Some(pattern) = matched.shared() {
                shared.push((index, pattern.as_str()));
            }
            (level, rule) = (&node.below, Some(&node.rule));
        }
        rule
    }

    /// Explains the matching of the entries, step by step.
    pub fn explain(&self, entries: &[Entry<'_>]) -> Explanation<'_> {
        Explanation::new(&self.root, entries)
    }

    /// Whether any rule replaces limits of others.
    pub fn has_replaces(&self) -> bool {
        self.has_replaces
    }

    /// Whether any rule may queue requests. A shadow rule never does.
    pub fn may_queue(&self) -> bool {
        self.may_queue
    }

    /// The limit of a request that has its own, with the default algorithm of rules.
    pub fn override_limit(&self, limit: Override) -> RuleLimit {
        let Override { requests, unit } = limit;
        let template = &self.overrides[unit as usize];
        let algorithm = template.semantics.algorithm(requests, template.window);
        RuleLimit { requests, algorithm, ..template.clone() }
    }

    /// How the decision log writes values of this key; none if no descriptor declares it.
    pub fn redaction(&self, key: &str) -> Option<Redaction> {
        self.redactions.of(key)
    }

    /// Every rule, in the order of the files.
    pub fn rules(&self) -> Vec<&Rule> {
        let mut rules = Vec::new();
        self.root.add_rules(&mut rules);
        rules.sort_by_key(|rule| &rule.origin);
        rules
    }

    /// See [`RuleSet::set_key_prefixes`](super::RuleSet::set_key_prefixes).
    pub(super) fn set_key_prefixes(
        &mut self,
        start: &mut impl FnMut(&str, &RuleLimit, &[RuleEntry<'_>]) -> Option<KeyPrefix>,
    ) {
        let name = &self.name;
        self.root.set_key_prefixes(&mut Vec::new(), &mut |limit, way| start(name, limit, way));
    }

    /// Compiles the declarations of all files for the domain; duplicate descriptors are reported.
    pub(super) fn compile(
        declared: DeclaredDomain,
        overrides: [RuleLimit; Unit::ALL.len()],
        problems: &mut Problems,
    ) -> Self {
        let redactions = Redactions::new(&declared.descriptors);
        let root = Level::compile(declared.descriptors, problems);
        let (has_replaces, may_queue) = (false, false);
        let mut rules = Self { name: declared.name, root, overrides, has_replaces, may_queue, redactions };
        rules.has_replaces = rules.rules().iter().any(|rule| !rule.replaces.is_empty());
        rules.may_queue = rules.rules().iter().any(|rule| rule.may_queue());
        rules
    }
}

impl Level {
    /// The node that the entry selects.
    #[inline]
    pub(super) fn step(&self, entry: &Entry<'_>) -> Option<(Matched<'_>, &Node)> {
        let siblings = match self {
            Self::Wildcards(level) => return level.step(entry),
            level => level.siblings(entry.key)?,
        };
        siblings.step(entry.value)
    }

    /// The nodes with exactly this key.
    #[inline]
    pub(super) fn siblings(&self, key: &str) -> Option<&Siblings> {
        match self {
            Self::One(only, siblings) => (*only == *key).then_some(siblings),
            Self::Many(map) => map.get(key),
            Self::Wildcards(level) => level.exact.siblings(key),
        }
    }

    /// Every exact key with its nodes, in no order.
    fn iter(&self) -> Box<dyn Iterator<Item = (&str, &Siblings)> + '_> {
        match self {
            Self::One(key, siblings) => Box::new(std::iter::once((key.as_str(), siblings))),
            Self::Many(map) => Box::new(map.iter()),
            Self::Wildcards(level) => level.exact.iter(),
        }
    }

    fn wildcards(&self) -> &[KeyWildcard] {
        if let Self::Wildcards(level) = self { &level.wildcards } else { &[] }
    }

    /// The exact keys of this level, sorted, and then the wildcards in their order.
    pub(super) fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<_> = self.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys.extend(self.wildcards().iter().map(|wildcard| wildcard.key.as_str()));
        keys.dedup();
        keys
    }

    fn add_rules<'r>(&'r self, rules: &mut Vec<&'r Rule>) {
        for (_, Siblings { exact, wildcards, alone }) in self.iter() {
            let exact = exact.iter().map(|(_, node)| node);
            let wildcards = wildcards.iter().map(|wildcard| &wildcard.node);
            for node in exact.chain(wildcards).chain(alone.as_deref()) {
                rules.push(&node.rule);
                node.below.add_rules(rules);
            }
        }
        for KeyWildcard { node, .. } in self.wildcards() {
            rules.push(&node.rule);
            node.below.add_rules(rules);
        }
    }

    fn set_key_prefixes<'r>(
        &'r mut self,
        way: &mut Vec<RuleEntry<'r>>,
        start: &mut impl FnMut(&RuleLimit, &[RuleEntry<'_>]) -> Option<KeyPrefix>,
    ) {
        let (one, many) = match self {
            Self::One(key, siblings) => (Some((key.as_str(), siblings)), None),
            Self::Many(map) => (None, Some(map.iter_mut())),
            Self::Wildcards(level) => {
                for KeyWildcard { node, .. } in &mut level.wildcards {
                    node.set_key_prefixes(RuleEntry { key: None, value: RuleValue::Any }, way, start);
                }
                return level.exact.set_key_prefixes(way, start);
            }
        };
        for (key, Siblings { exact, wildcards, alone }) in one.into_iter().chain(many.into_iter().flatten()) {
            let exact = exact.iter_mut().map(|(value, node)| (RuleValue::Exact(value), node));
            let wildcards = wildcards.iter_mut().map(|Wildcard { pattern, shared, node, .. }| {
                (if *shared { RuleValue::Shared(pattern.as_str()) } else { RuleValue::Any }, node)
            });
            let alone = alone.as_deref_mut().map(|node| (RuleValue::Any, node));
            for (value, node) in exact.chain(wildcards).chain(alone) {
                node.set_key_prefixes(RuleEntry { key: Some(key), value }, way, start);
            }
        }
    }

    fn compile(declared: Vec<Declared>, problems: &mut Problems) -> Self {
        let mut groups: BTreeMap<SmolStr, Group> = BTreeMap::new();
        let mut wildcards: Vec<KeyWildcard> = Vec::new();
        for (Declared { key, value, rule, below, path_in_file, .. }, order) in declared.into_iter().zip(0..) {
            let node = Node { rule, below: Self::compile(below, problems) };
            let origin = node.rule.origin.clone();
            let inserted = match key {
                DeclaredKey::Exact(key) => groups.entry(key.into()).or_default().insert(value, order, node),
                DeclaredKey::Wildcard(key) => insert_wildcard(&mut wildcards, key, value, order, node),
            };
            if let Err(first) = inserted {
                let message = format!("the same key and value as at {first}; keep one of the two");
                problems.at(&origin, path_in_file, message);
            }
        }
        let mut levels = groups.into_iter().map(|(key, group)| (key, Siblings::from(group)));
        let exact = match (levels.len(), levels.next()) {
            (1, Some((key, siblings))) => Self::One(key, siblings),
            (_, first) => Self::Many(first.into_iter().chain(levels).collect()),
        };
        if wildcards.is_empty() {
            return exact;
        }
        Self::Wildcards(Box::new(WildcardLevel { exact, wildcards: wildcards.into() }))
    }
}

/// Adds a node with a wildcard key, or returns where its duplicate is declared.
fn insert_wildcard(
    wildcards: &mut Vec<KeyWildcard>,
    key: Pattern,
    value: DeclaredValue,
    order: u32,
    node: Node,
) -> Result<(), Origin> {
    match wildcards.iter().find(|first| first.key == key && first.value.is_same(&value)) {
        Some(first) => Err(first.node.rule.origin.clone()),
        None => {
            wildcards.push(KeyWildcard { key, value, order, node });
            Ok(())
        }
    }
}

impl WildcardLevel {
    /// The node that the entry selects. Wildcard values of exact keys and wildcard keys are tried in the order of the
    /// file, as the reference server does.
    fn step(&self, entry: &Entry<'_>) -> Option<(Matched<'_>, &Node)> {
        let siblings = self.exact.siblings(entry.key);
        if let Some(node) = siblings.and_then(|siblings| siblings.exact.get(entry.value)) {
            return Some((Matched::Exact, node));
        }
        let by_value = siblings.and_then(|siblings| siblings.wildcard(entry.value));
        let before = by_value.map_or(u32::MAX, |wildcard| wildcard.order);
        let matches =
            |wildcard: &&KeyWildcard| wildcard.key.matches(entry.key) && wildcard.value.matches(entry.value);
        let mut by_key = self.wildcards.iter().take_while(|wildcard| wildcard.order < before);
        match (by_key.find(matches), by_value) {
            (Some(wildcard), _) => Some(wildcard.matched()),
            (None, Some(wildcard)) => Some(wildcard.matched()),
            (None, None) => siblings?.alone.as_ref().map(|node| (Matched::KeyAlone, &**node)),
        }
    }
}

impl KeyWildcard {
    fn matched(&self) -> (Matched<'_>, &Node) {
        let shared = match &self.value {
            DeclaredValue::Wildcard { pattern, shared: true } => Some(pattern),
            _ => None,
        };
        (Matched::KeyWildcard { key: &self.key, shared }, &self.node)
    }
}

impl Wildcard {
    fn matched(&self) -> (Matched<'_>, &Node) {
        (Matched::Wildcard { pattern: &self.pattern, shared: self.shared }, &self.node)
    }
}

impl Node {
    /// Sets the key prefixes of the limits here and below. `entry` selects this node, and `way` the nodes above it.
    fn set_key_prefixes<'r>(
        &'r mut self,
        entry: RuleEntry<'r>,
        way: &mut Vec<RuleEntry<'r>>,
        start: &mut impl FnMut(&RuleLimit, &[RuleEntry<'_>]) -> Option<KeyPrefix>,
    ) {
        way.push(entry);
        for limit in &mut self.rule.limits {
            limit.key_prefix = start(limit, way);
        }
        self.below.set_key_prefixes(way, start);
        way.pop();
    }
}

impl Siblings {
    /// The node that the value selects.
    #[inline]
    fn step(&self, value: &str) -> Option<(Matched<'_>, &Node)> {
        if let Some(node) = self.exact.get(value) {
            return Some((Matched::Exact, node));
        }
        if let Some(wildcard) = self.wildcard(value) {
            return Some(wildcard.matched());
        }
        self.alone.as_ref().map(|node| (Matched::KeyAlone, &**node))
    }

    /// The first wildcard that matches the value.
    #[inline]
    fn wildcard(&self, value: &str) -> Option<&Wildcard> {
        self.wildcards.iter().find(|wildcard| wildcard.pattern.matches(value))
    }

    /// The exact values, sorted, and then the wildcards in their order.
    pub(super) fn values(&self) -> Vec<&str> {
        let mut values: Vec<_> = self.exact.iter().map(|(value, _)| value).collect();
        values.sort_unstable();
        values.extend(self.wildcards.iter().map(|wildcard| wildcard.pattern.as_str()));
        values
    }
}

/// [`Siblings`] while they are collected.
#[derive(Default)]
struct Group {
    exact: BTreeMap<SmolStr, Node>,
    wildcards: Vec<Wildcard>,
    alone: Option<Box<Node>>,
}

impl Group {
    /// Adds the node, or returns where its duplicate is declared.
    fn insert(&mut self, value: DeclaredValue, order: u32, node: Node) -> Result<(), Origin> {
        let origin = |node: &Node| node.rule.origin.clone();
        match value {
            DeclaredValue::Any => match &self.alone {
                Some(first) => return Err(origin(first)),
                None => self.alone = Some(Box::new(node)),
            },
            DeclaredValue::Exact(value) => match self.exact.entry(value.into()) {
                btree_map::Entry::Occupied(first) => return Err(origin(first.get())),
                btree_map::Entry::Vacant(place) => _ = place.insert(node),
            },
            DeclaredValue::Wildcard { pattern, shared } => {
                match self.wildcards.iter().find(|wildcard| wildcard.pattern == pattern) {
                    Some(first) => return Err(origin(&first.node)),
                    None => self.wildcards.push(Wildcard { pattern, shared, order, node }),
                }
            }
        }
        Ok(())
    }
}

impl From<Group> for Siblings {
    fn from(group: Group) -> Self {
        Self {
            exact: group.exact.into_iter().collect(),
            wildcards: group.wildcards.into(),
            alone: group.alone,
        }
    }
}
