//! Levels from the descriptors that the files declare; duplicates are reported.

use super::node::{
    JoinedLevel, KeyWildcard, Level, MixedLevel, Node, SetNode, Siblings, ValueSets, Wildcard, Wildcards,
};
use crate::rules::{
    Origin, Semantics,
    error::Problems,
    grammar::{Declared, DeclaredKey, DeclaredValue},
    pattern::Pattern,
    pattern_set::PatternSet,
    value_set::Values,
};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, hash_map::Entry};
use smol_str::SmolStr;
use std::{cmp::Reverse, collections::BTreeMap, mem};

impl Level {
    pub(super) fn compile(declared: Vec<Declared>, semantics: Semantics, problems: &Problems) -> Self {
        if semantics == Semantics::Reference {
            return Self::Joined(Box::new(JoinedLevel::compile(declared, problems)));
        }
        let mut groups: BTreeMap<SmolStr, Group> = BTreeMap::new();
        let mut wildcards: Vec<KeyWildcard> = Vec::new();
        for (Declared { key, value, rule, below, path_in_file, .. }, order) in declared.into_iter().zip(0..) {
            let node = Node { rule, below: Self::compile(below, semantics, problems) };
            let origin = node.rule.origin.clone();
            let inserted = match (key, value) {
                (DeclaredKey::Exact(key), DeclaredValue::Set(values)) => {
                    let path_in_file = path_in_file.as_str().into();
                    let set = SetNode { values, order, node, path_in_file };
                    groups.entry(key.into()).or_default().sets.push(set);
                    Ok(())
                }
                (DeclaredKey::Exact(key), value) => {
                    groups.entry(key.into()).or_default().insert(value, order, node)
                }
                (DeclaredKey::Wildcard(key), value) => {
                    insert_wildcard(&mut wildcards, key, value, order, node)
                }
            };
            if let Err(first) = inserted {
                let message = format!("the same key and value as at {first}; keep one of the two");
                problems.at(&origin, path_in_file, message);
            }
        }
        put_in_order(&mut groups, &mut wildcards);
        let mut sets: Vec<(SmolStr, ValueSets)> = Vec::new();
        for (key, group) in &mut groups {
            if !group.sets.is_empty() {
                let nodes = mem::take(&mut group.sets);
                let exact = |text: &str| group.exact.get(text).map(|node| &node.rule);
                sets.push((key.clone(), ValueSets::new(nodes, exact, problems)));
            }
        }
        let mut levels = groups.into_iter().map(|(key, group)| (key, Siblings::from(group)));
        let exact = match (levels.len(), levels.next()) {
            (1, Some((key, siblings))) => Self::One(key, siblings),
            (_, first) => Self::Many(first.into_iter().chain(levels).collect()),
        };
        if wildcards.is_empty() && sets.is_empty() {
            return exact;
        }
        Self::Mixed(Box::new(MixedLevel::new(exact, wildcards, sets)))
    }
}

/// Numbers the wildcards of a level: by more characters beside their `*`, in key and value; then by fewer `*`; then those with a value;
/// then in the order of the file. A key without a value counts as with the value `*`.
fn put_in_order(groups: &mut BTreeMap<SmolStr, Group>, keys: &mut [KeyWildcard]) {
    type Rank = (Reverse<usize>, usize, bool, u32);
    fn rank(order: u32, is_alone: bool, lengths: [(usize, usize); 2]) -> Rank {
        let sum =
            |(characters, stars): (usize, usize), (more, more_stars)| (characters + more, stars + more_stars);
        let (characters, stars) = lengths.into_iter().fold((0, 0), sum);
        (Reverse(characters), stars, is_alone, order)
    }
    let mut places: Vec<(Rank, &mut u32)> = Vec::new();
    for KeyWildcard { key, value, order, .. } in &mut *keys {
        let of_value = match value {
            DeclaredValue::Exact(value) => (value.chars().count(), 0),
            DeclaredValue::Wildcard { pattern, .. } => pattern.length(),
            DeclaredValue::Any | DeclaredValue::Set(_) => (0, 1),
        };
        let is_alone = matches!(value, DeclaredValue::Any);
        places.push((rank(*order, is_alone, [key.length(), of_value]), order));
    }
    for (key, group) in &mut *groups {
        let of_key = (key.chars().count(), 0);
        for Wildcard { pattern, order, .. } in &mut group.wildcards {
            places.push((rank(*order, false, [of_key, pattern.length()]), order));
        }
        for SetNode { values, order, .. } in &mut group.sets {
            if let Values::Wildcard(pattern) = &values.values {
                places.push((rank(*order, false, [of_key, pattern.length()]), order));
            }
        }
    }
    places.sort_unstable_by_key(|(rank, _)| *rank);
    places.into_iter().zip(0..).for_each(|((_, order), place)| *order = place);
    keys.sort_unstable_by_key(|wildcard| wildcard.order);
    for group in groups.values_mut() {
        group.wildcards.sort_unstable_by_key(|wildcard| wildcard.order);
    }
}

impl MixedLevel {
    fn new(exact: Level, wildcards: Vec<KeyWildcard>, sets: Vec<(SmolStr, ValueSets)>) -> Self {
        let numbered = (0..).zip(&wildcards);
        let keys = PatternSet::new(numbered.clone().map(|(number, wildcard)| (number, &wildcard.key)));
        let values = numbered.filter_map(|(number, wildcard)| match &wildcard.value {
            DeclaredValue::Wildcard { pattern, .. } => Some((number, pattern)),
            DeclaredValue::Any | DeclaredValue::Exact(_) | DeclaredValue::Set(_) => None,
        });
        let values = PatternSet::new(values);
        let sets = (!sets.is_empty()).then(|| sets.into_iter().collect());
        Self { exact, keys, values, wildcards: wildcards.into(), sets }
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
    sets: Vec<SetNode>,
    alone: Option<Box<Node>>,
}

impl Group {
    /// Adds a node without a set, or returns where its duplicate is declared.
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
            DeclaredValue::Wildcard { pattern, shared, .. } => {
                match self.wildcards.iter().find(|wildcard| wildcard.pattern == pattern) {
                    Some(first) => return Err(origin(&first.node)),
                    None => self.wildcards.push(Wildcard { pattern, shared, order, node }),
                }
            }
            DeclaredValue::Set(_) => {}
        }
        Ok(())
    }
}

impl From<Group> for Siblings {
    fn from(group: Group) -> Self {
        let Group { exact, wildcards, alone, sets: _ } = group;
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
