//! Levels from the descriptors that the files declare; duplicates are reported.

use super::{
    joined::JoinedLevel,
    level::{KeyWildcard, Level, Node, Siblings, Wildcard, WildcardLevel, Wildcards},
};
use crate::rules::{
    Origin, Semantics,
    error::Problems,
    grammar::{Declared, DeclaredKey, DeclaredValue},
    pattern::Pattern,
    pattern_set::PatternSet,
};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, hash_map::Entry};
use smol_str::SmolStr;
use std::collections::BTreeMap;

impl Level {
    pub(super) fn compile(declared: Vec<Declared>, semantics: Semantics, problems: &mut Problems) -> Self {
        if semantics == Semantics::Reference {
            return Self::Joined(Box::new(JoinedLevel::compile(declared, problems)));
        }
        let mut groups: BTreeMap<SmolStr, Group> = BTreeMap::new();
        let mut wildcards: Vec<KeyWildcard> = Vec::new();
        for (Declared { key, value, rule, below, path_in_file, .. }, order) in declared.into_iter().zip(0..) {
            let node = Node { rule, below: Self::compile(below, semantics, problems) };
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
        Self::Wildcards(Box::new(WildcardLevel::new(exact, wildcards)))
    }
}

impl WildcardLevel {
    fn new(exact: Level, wildcards: Vec<KeyWildcard>) -> Self {
        let numbered = (0..).zip(&wildcards);
        let keys = PatternSet::new(numbered.clone().map(|(number, wildcard)| (number, &wildcard.key)));
        let values = numbered.filter_map(|(number, wildcard)| match &wildcard.value {
            DeclaredValue::Wildcard { pattern, .. } => Some((number, pattern)),
            DeclaredValue::Any | DeclaredValue::Exact(_) => None,
        });
        let values = PatternSet::new(values);
        Self { exact, keys, values, wildcards: wildcards.into() }
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

/// [`Siblings`] while they are collected.
#[derive(Default)]
struct Group {
    exact: HashMap<SmolStr, Node, FixedState>,
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
                Entry::Occupied(first) => return Err(origin(first.get())),
                Entry::Vacant(place) => _ = place.insert(node),
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
        let Group { exact, wildcards, alone } = group;
        let wildcards = (!wildcards.is_empty()).then(|| Box::new(Wildcards::new(wildcards)));
        Self { exact: exact.into(), wildcards, alone }
    }
}

impl Wildcards {
    fn new(list: Vec<Wildcard>) -> Self {
        let set = PatternSet::new((0..).zip(&list).map(|(number, wildcard)| (number, &wildcard.pattern)));
        Self { list: list.into(), set }
    }
}
