//! The compiled rules of a domain, and the way a descriptor takes through them.
//!
//! At each level, for each entry of the descriptor in turn: the exact value of its key; else the first wildcard that
//! fits, in the order of the file; else the key alone; else the descriptor reaches no rule. The choice is final: if it
//! leads nowhere, no other is tried. The rule is that of the last entry; those on the way there limit nothing.
//!
//! Siblings with exact values cost nothing: they are found by hash, however many there are.

use super::{
    KeyPrefix, Origin, Rule, RuleLimit,
    error::Problems,
    explain::{Explanation, Matched},
    grammar::{Declared, DeclaredDomain, DeclaredValue},
    pattern::Pattern,
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
    /// The limits of requests that bring their own, one for each of [`Unit::ALL`]; the number is the request's.
    overrides: [RuleLimit; Unit::ALL.len()],
    has_replaces: bool,
    may_queue: bool,
}

/// The rule that a descriptor reached.
#[derive(Clone, Debug)]
pub struct Found<'r> {
    /// The rule of the last entry.
    pub rule: &'r Rule,
    /// Entries, by index, in whose place the counter's key has this pattern: their values share one counter.
    pub shared: SharedPatterns<'r>,
}

/// Patterns, each with the index of the entry in whose place it is.
type SharedPatterns<'r> = SmallVec<[(usize, &'r str); 1]>;

/// An entry on the way to a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleEntry<'r> {
    /// The key.
    pub key: &'r str,
    /// The values that lead on.
    pub value: RuleValue<'r>,
}

/// The values of an entry that lead on to a rule, as far as counters tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleValue<'r> {
    /// This one.
    Exact(&'r str),
    /// All that fit this pattern; they share one counter.
    Shared(&'r str),
    /// Several; each has a counter of its own.
    Any,
}

/// Descriptors side by side, by key.
///
/// Most levels have one key. It lies in the level itself, which lies in the node above: a decision that meets one of ten
/// thousand rules waits for its memory, and for each box on the way anew.
#[derive(Clone, Debug)]
pub(super) enum Level {
    One(SmolStr, Siblings),
    Many(TextMap<Siblings>),
}

/// Descriptors side by side with the same key.
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
    /// All values that fit share one counter.
    shared: bool,
    node: Node,
}

/// A descriptor of the rules. What leads on lies beside the value that led here, and what limits is the next to it.
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

    /// The rule that the entries reach, if they reach one.
    #[inline]
    pub fn find<'r>(&'r self, entries: &[Entry<'_>]) -> Option<Found<'r>> {
        let mut shared = SmallVec::new();
        let rule = self.follow(entries, &mut shared)?;
        Some(Found { rule, shared })
    }

    /// The same; patterns that stand for values are added to `shared`. What it returns fits a register.
    fn follow<'r>(&'r self, entries: &[Entry<'_>], shared: &mut SharedPatterns<'r>) -> Option<&'r Rule> {
        let (mut level, mut rule) = (&self.root, None);
        for (index, entry) in entries.iter().enumerate() {
            let (matched, node) = level.step(entry)?;
            if let Matched::Wildcard { pattern, shared: true } = matched {
                shared.push((index, pattern.as_str()));
            }
            (level, rule) = (&node.below, Some(&node.rule));
        }
        rule
    }

    /// The way that the entries take, step by step.
    pub fn explain(&self, entries: &[Entry<'_>]) -> Explanation<'_> {
        Explanation::new(&self.root, entries)
    }

    /// Whether any rule replaces limits of others.
    pub fn has_replaces(&self) -> bool {
        self.has_replaces
    }

    /// Whether any rule may hold an answer until its turn. A shadow never does.
    pub fn may_queue(&self) -> bool {
        self.may_queue
    }

    /// The limit that a request brings along, with the algorithm that rules have by default.
    pub fn override_limit(&self, limit: Override) -> RuleLimit {
        let Override { requests, unit } = limit;
        let template = &self.overrides[unit as usize];
        let algorithm = template.semantics.algorithm(requests, template.window);
        RuleLimit { requests, algorithm, ..template.clone() }
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

    /// Compiles what all files together declare for the domain; descriptors given twice are reported.
    pub(super) fn compile(
        declared: DeclaredDomain,
        overrides: [RuleLimit; Unit::ALL.len()],
        problems: &mut Problems,
    ) -> Self {
        let root = Level::compile(declared.descriptors, problems);
        let mut rules = Self { name: declared.name, root, overrides, has_replaces: false, may_queue: false };
        rules.has_replaces = rules.rules().iter().any(|rule| !rule.replaces.is_empty());
        rules.may_queue = rules.rules().iter().any(|rule| rule.may_queue());
        rules
    }
}

impl Level {
    /// One entry further down.
    #[inline]
    pub(super) fn step(&self, entry: &Entry<'_>) -> Option<(Matched<'_>, &Node)> {
        let siblings = self.siblings(entry.key)?;
        if let Some(node) = siblings.exact.get(entry.value) {
            return Some((Matched::Exact, node));
        }
        for Wildcard { pattern, shared, node } in &siblings.wildcards {
            if pattern.matches(entry.value) {
                return Some((Matched::Wildcard { pattern, shared: *shared }, node));
            }
        }
        siblings.alone.as_ref().map(|node| (Matched::KeyAlone, &**node))
    }

    /// The descriptors with this key.
    #[inline]
    pub(super) fn siblings(&self, key: &str) -> Option<&Siblings> {
        match self {
            Self::One(only, siblings) => (*only == *key).then_some(siblings),
            Self::Many(map) => map.get(key),
        }
    }

    /// Every key with its descriptors, in no order.
    fn iter(&self) -> impl Iterator<Item = (&str, &Siblings)> {
        let (one, many) = match self {
            Self::One(key, siblings) => (Some((key.as_str(), siblings)), None),
            Self::Many(map) => (None, Some(map.iter())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// The keys of this level, sorted.
    pub(super) fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<_> = self.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
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
    }

    fn set_key_prefixes<'r>(
        &'r mut self,
        way: &mut Vec<RuleEntry<'r>>,
        start: &mut impl FnMut(&RuleLimit, &[RuleEntry<'_>]) -> Option<KeyPrefix>,
    ) {
        let (one, many) = match self {
            Self::One(key, siblings) => (Some((key.as_str(), siblings)), None),
            Self::Many(map) => (None, Some(map.iter_mut())),
        };
        for (key, Siblings { exact, wildcards, alone }) in one.into_iter().chain(many.into_iter().flatten()) {
            let exact = exact.iter_mut().map(|(value, node)| (RuleValue::Exact(value), node));
            let wildcards = wildcards.iter_mut().map(|Wildcard { pattern, shared, node }| {
                (if *shared { RuleValue::Shared(pattern.as_str()) } else { RuleValue::Any }, node)
            });
            let alone = alone.as_deref_mut().map(|node| (RuleValue::Any, node));
            for (value, Node { below, rule }) in exact.chain(wildcards).chain(alone) {
                way.push(RuleEntry { key, value });
                for limit in &mut rule.limits {
                    limit.key_prefix = start(limit, way);
                }
                below.set_key_prefixes(way, start);
                way.pop();
            }
        }
    }

    fn compile(declared: Vec<Declared>, problems: &mut Problems) -> Self {
        let mut groups: BTreeMap<SmolStr, Group> = BTreeMap::new();
        for Declared { key, value, rule, below, path_in_file } in declared {
            let node = Node { rule, below: Self::compile(below, problems) };
            if let Err((origin, first)) = groups.entry(key.into()).or_default().insert(value, node) {
                let message = format!("the same key and value as at {first}; keep one of the two");
                problems.at(&origin, path_in_file, message);
            }
        }
        let mut levels = groups.into_iter().map(|(key, group)| (key, Siblings::from(group)));
        match (levels.len(), levels.next()) {
            (1, Some((key, siblings))) => Self::One(key, siblings),
            (_, first) => Self::Many(first.into_iter().chain(levels).collect()),
        }
    }
}

impl Siblings {
    /// The exact values, sorted, and then the wildcards in their order.
    pub(super) fn values(&self) -> Vec<&str> {
        let mut values: Vec<_> = self.exact.iter().map(|(value, _)| value).collect();
        values.sort_unstable();
        values.extend(self.wildcards.iter().map(|wildcard| wildcard.pattern.as_str()));
        values
    }
}

/// Siblings in the making.
#[derive(Default)]
struct Group {
    exact: BTreeMap<SmolStr, Node>,
    wildcards: Vec<Wildcard>,
    alone: Option<Box<Node>>,
}

impl Group {
    /// Takes the node in, or says where it is and where the one is that takes its place already.
    fn insert(&mut self, value: DeclaredValue, node: Node) -> Result<(), (Origin, Origin)> {
        let origin = |node: &Node| node.rule.origin.clone();
        match value {
            DeclaredValue::Any => match &self.alone {
                Some(first) => return Err((origin(&node), origin(first))),
                None => self.alone = Some(Box::new(node)),
            },
            DeclaredValue::Exact(value) => match self.exact.entry(value.into()) {
                btree_map::Entry::Occupied(first) => return Err((origin(&node), origin(first.get()))),
                btree_map::Entry::Vacant(place) => _ = place.insert(node),
            },
            DeclaredValue::Wildcard { pattern, shared } => {
                match self.wildcards.iter().find(|wildcard| wildcard.pattern == pattern) {
                    Some(first) => return Err((origin(&node), origin(&first.node))),
                    None => self.wildcards.push(Wildcard { pattern, shared, node }),
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
