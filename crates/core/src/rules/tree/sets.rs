//! The nodes of a level and key whose values are sets: lists, networks, regular expressions, texts in any case of letters.
//!
//! Invariant: no two nodes have the same value, network, wildcard or expression; and a value of a list is no exact value beside it.

use super::{
    matched::Matched,
    node::{Node, SetNode, ValueSets},
};
use crate::rules::{
    Network, Rule,
    error::Problems,
    letter_case::folded,
    networks::NetworkMap,
    pattern::Pattern,
    pattern_set::PatternSet,
    regexes::{Regex, Regexes},
    value_set::Values,
};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, hash_map::Entry};
use smol_str::SmolStr;
use std::hash::Hash;

/// An index by values, which finds duplicates.
type Index<V> = HashMap<V, u32, FixedState>;

impl SetNode {
    pub(super) fn wildcard(&self) -> Option<&Pattern> {
        if let Values::Wildcard(pattern) = &self.values.values { Some(pattern) } else { None }
    }

    pub(super) fn regex(&self) -> Option<&Regex> {
        if let Values::Regex(regex) = &self.values.values { Some(regex) } else { None }
    }

    pub(super) fn matched(&self) -> (Matched<'_>, &Node) {
        (Matched::Set { values: &self.values, network: None }, &self.node)
    }
}

impl ValueSets {
    /// The nodes in the order of the file, but wildcards in their own. `exact` returns the rule beside them for exactly a value.
    pub(super) fn new<'e>(
        nodes: Vec<SetNode>,
        exact: impl Fn(&str) -> Option<&'e Rule>,
        problems: &Problems,
    ) -> Self {
        let (mut texts, mut any_case, mut by_network) =
            (Index::default(), Index::default(), Index::default());
        let (mut wildcards, mut regexes): (Index<Pattern>, Index<(Box<str>, bool)>) = Default::default();
        let mut regex_nodes: Vec<u32> = Vec::new();
        for (index, node) in (0..).zip(&nodes) {
            let mut add = Adding { nodes: &nodes, index, problems };
            match &node.values.values {
                Values::One(text) => add.to(&mut any_case, SmolStr::from(folded(text)), text),
                Values::List(list) if node.values.ignores_case => {
                    list.iter().for_each(|text| add.to(&mut any_case, SmolStr::from(folded(text)), text));
                }
                Values::List(list) => {
                    for text in list {
                        match exact(text) {
                            Some(first) => add.reject(text, first),
                            None => add.to(&mut texts, text.clone(), text),
                        }
                    }
                }
                Values::Networks(networks) => {
                    networks.iter().for_each(|network| add.to(&mut by_network, *network, network));
                }
                Values::Wildcard(pattern) => add.to(&mut wildcards, pattern.clone(), pattern),
                Values::Regex(regex) => {
                    let key = (regex.as_str().into(), node.values.ignores_case);
                    add.to(&mut regexes, key, &regex.as_str());
                    regex_nodes.push(index);
                }
            }
        }
        let mut networks: Vec<(Network, u32)> = by_network.into_iter().collect();
        networks.sort_unstable();
        let mut wildcards: Vec<u32> = wildcards.into_values().collect();
        wildcards.sort_unstable_by_key(|index| nodes[*index as usize].order);
        let patterns =
            (0..).zip(&wildcards).filter_map(|(at, index)| Some((at, nodes[*index as usize].wildcard()?)));
        Self {
            texts: texts.into_iter().collect(),
            texts_any_case: (!any_case.is_empty()).then(|| any_case.into_iter().collect()),
            by_address: NetworkMap::new((0..).zip(&networks).map(|(at, (network, _))| (*network, at))),
            networks: networks.into(),
            wildcard_set: PatternSet::new(patterns),
            wildcards: wildcards.into(),
            automaton: automaton(&nodes, &regex_nodes, problems),
            regexes: regex_nodes.into(),
            nodes: nodes.into(),
        }
    }

    /// The node of a list or a network with this value.
    pub(super) fn listed(&self, value: &str) -> Option<(Matched<'_>, &Node)> {
        let any_case = || self.texts_any_case.as_ref().and_then(|texts| texts.get(&folded(value)));
        if let Some(index) = self.texts.get(value).or_else(any_case) {
            return Some(self.nodes[*index as usize].matched());
        }
        if self.by_address.is_empty() {
            return None;
        }
        let at = self.by_address.of_value(value)?;
        let (network, index) = &self.networks[at as usize];
        let SetNode { values, node, .. } = &self.nodes[*index as usize];
        Some((Matched::Set { values, network: Some(network) }, node))
    }

    /// The first wildcard that matches the value.
    pub(super) fn wildcard(&self, value: &str) -> Option<&SetNode> {
        if self.wildcards.is_empty() {
            return None;
        }
        let first = self.wildcard_set.first(&folded(value))?;
        Some(&self.nodes[self.wildcards[first as usize] as usize])
    }

    /// The node of the first regular expression that matches the value.
    pub(super) fn regex(&self, value: &str) -> Option<(Matched<'_>, &Node)> {
        let first = self.automaton.as_ref()?.first(value)?;
        Some(self.nodes[self.regexes[first as usize] as usize].matched())
    }

    /// The texts that stand for the values, in the order of the file.
    pub(super) fn labels(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.values.label())
    }
}

/// Adds the values of one node.
struct Adding<'n, 'p> {
    nodes: &'n [SetNode],
    index: u32,
    problems: &'p Problems,
}

impl Adding<'_, '_> {
    fn to<V: Hash + Eq>(&mut self, values: &mut Index<V>, value: V, shown: &dyn std::fmt::Display) {
        match values.entry(value) {
            Entry::Vacant(place) => _ = place.insert(self.index),
            Entry::Occupied(first) => {
                let first = &self.nodes[*first.get() as usize].node.rule;
                self.reject(shown, first);
            }
        }
    }

    fn reject(&mut self, shown: &dyn std::fmt::Display, first: &Rule) {
        let SetNode { node, path_in_file, .. } = &self.nodes[self.index as usize];
        let message = format!(
            "the value {shown} is that of the descriptor at {} too; keep it in one of the two",
            first.origin
        );
        self.problems.at(&node.rule.origin, &**path_in_file, message);
    }
}

/// The automaton of the regular expressions, unless they are too many.
fn automaton(nodes: &[SetNode], indices: &[u32], problems: &Problems) -> Option<Regexes> {
    let regexes: Vec<&Regex> = indices.iter().filter_map(|index| nodes[*index as usize].regex()).collect();
    if let Some(at) = Regexes::first_too_many(regexes.iter().copied()) {
        let SetNode { node, path_in_file, .. } = &nodes[indices[at] as usize];
        let message = "is too much for one automaton, with the regular expressions above it; write narrower ones, or \
                       fewer beside one another";
        problems.at(&node.rule.origin, &**path_in_file, message);
        return None;
    }
    (!regexes.is_empty()).then(|| Regexes::new(&regexes))
}
