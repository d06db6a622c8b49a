//! The types of the tree. Levels contain nodes, and nodes the levels below them.

use crate::rules::{
    Network, Rule, ValueSet, grammar::DeclaredValue, networks::NetworkMap, pattern::Pattern,
    pattern_set::PatternSet, regexes::Regexes, text_map::TextMap,
};
use smol_str::SmolStr;

/// The nodes of one level, by key.
///
/// Most levels have one key. It is stored in the level itself, and the level in the node above: with ten thousand rules, each box on the
/// path is a cache miss of its own.
#[derive(Clone, Debug)]
pub(in crate::rules) enum Level {
    One(SmolStr, Siblings),
    Many(TextMap<Siblings>),
    Mixed(Box<MixedLevel>),
    Joined(Box<JoinedLevel>),
}

/// The nodes of a level in which some keys are wildcards, or some values sets.
#[derive(Clone, Debug)]
pub(in crate::rules) struct MixedLevel {
    /// The nodes with exact keys.
    pub(super) exact: Level,
    /// In the order of wildcards.
    pub(super) wildcards: Box<[KeyWildcard]>,
    /// The keys of these.
    pub(super) keys: PatternSet,
    /// Their values that are patterns.
    pub(super) values: PatternSet,
    /// The nodes whose values are sets, by key; none if there are none.
    pub(super) sets: Option<TextMap<ValueSets>>,
}

/// A node with a wildcard key.
#[derive(Clone, Debug)]
pub(super) struct KeyWildcard {
    pub(super) key: Pattern,
    pub(super) value: DeclaredValue,
    /// Its place among the wildcards of the level.
    pub(super) order: u32,
    pub(super) node: Node,
}

/// The nodes of one level with the same key.
#[derive(Clone, Debug)]
pub(in crate::rules) struct Siblings {
    pub(super) exact: TextMap<Node>,
    /// None if there are none.
    pub(super) wildcards: Option<Box<Wildcards>>,
    pub(super) alone: Option<Box<Node>>,
}

/// The nodes with wildcard values.
#[derive(Clone, Debug)]
pub(super) struct Wildcards {
    /// In the order of wildcards.
    pub(super) list: Box<[Wildcard]>,
    /// Their patterns.
    pub(super) set: PatternSet,
}

#[derive(Clone, Debug)]
pub(super) struct Wildcard {
    pub(super) pattern: Pattern,
    /// All values that match share one counter.
    pub(super) shared: bool,
    /// Its place among the wildcards of the level.
    pub(super) order: u32,
    pub(super) node: Node,
}

/// A descriptor of the rules. The level below is stored beside the value that selects this node, and the rule after it.
#[derive(Clone, Debug)]
#[repr(C)]
pub(in crate::rules) struct Node {
    pub(in crate::rules) below: Level,
    pub(in crate::rules) rule: Rule,
}

/// The nodes of one level, by joined text.
#[derive(Clone, Debug)]
pub(in crate::rules) struct JoinedLevel {
    /// In the order of the file.
    pub(super) nodes: Box<[JoinedNode]>,
    /// Every node by its text, wildcards too: the index in `nodes`.
    pub(super) by_text: TextMap<u32>,
    /// The patterns of nodes with a wildcard, by index in `nodes`.
    pub(super) patterns: PatternSet,
    /// The nodes whose values are sets, which the reference server lacks: by key.
    pub(super) sets: TextMap<ValueSets>,
}

#[derive(Clone, Debug)]
pub(super) struct JoinedNode {
    pub(super) text: SmolStr,
    pub(super) pattern: Option<Pattern>,
    /// All entries that match the pattern share one counter.
    pub(super) shares_counter: bool,
    pub(super) node: Node,
}

/// A node and its values.
#[derive(Clone, Debug)]
pub(super) struct SetNode {
    pub(super) values: Box<ValueSet>,
    /// Its place among the wildcards of the level, if it is one.
    pub(super) order: u32,
    pub(super) node: Node,
    pub(super) path_in_file: Box<str>,
}

/// The nodes of one key. Each kind has the indices of its nodes.
#[derive(Clone, Debug)]
pub(super) struct ValueSets {
    pub(super) nodes: Box<[SetNode]>,
    pub(super) texts: TextMap<u32>,
    /// In lower case; none if there are none.
    pub(super) texts_any_case: Option<TextMap<u32>>,
    pub(super) networks: Box<[(Network, u32)]>,
    pub(super) by_address: NetworkMap,
    /// In their order.
    pub(super) wildcards: Box<[u32]>,
    /// Their patterns.
    pub(super) wildcard_set: PatternSet,
    pub(super) regexes: Box<[u32]>,
    pub(super) automaton: Option<Regexes>,
}
