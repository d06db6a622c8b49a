//! Overrides and blocks: what applies to some descriptors in the place of the rules of their domain.
//!
//! Blocks win over overrides, and overrides over rules and over limits in requests. Of several overrides that match, one
//! without wildcards wins, else the first by id. Matching takes no memory and parses addresses only for keys with networks.

mod declared;
mod networks;

pub(super) use declared::DeclaredOverlay;
pub use declared::{Block, BlockedValues, OverrideAction, OverrideRule};
pub use networks::{Network, NetworkError};

use super::{
    Charge, LimitIdentity, LimitInfo, Origin, Pattern, Rule, RuleLimit, Semantics, SourceId,
    limits::{LimitNumbers, Registrar, tag_of_label},
    text_map::TextMap,
};
use crate::limit::{Entry, RuleInfo, Unit};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use networks::Networks;
use smallvec::SmallVec;
use smol_str::SmolStr;
use std::{
    hash::{BuildHasher as _, Hash as _, Hasher as _},
    net::IpAddr,
    sync::Arc,
};

/// The path of the rule that blocked requests get.
const BLOCKED: &str = "(blocked)";

/// The overrides and blocks of one domain.
#[derive(Clone, Debug)]
pub(super) struct Overlay {
    blocks: TextMap<KeyBlocks>,
    /// Those that match, for explanations.
    declared_blocks: Box<[Block]>,
    blocked: Option<Box<Rule>>,
    /// Without wildcards, by the hash of their entries.
    exact: HashMap<u64, SmallVec<[u32; 1]>, FixedState>,
    /// With wildcards, by id.
    patterns: Box<[u32]>,
    overrides: Box<[Overlaid]>,
}

/// The blocks of one key.
#[derive(Clone, Debug, Default)]
struct KeyBlocks {
    values: TextMap<()>,
    patterns: Box<[Pattern]>,
    networks: Networks,
}

#[derive(Clone, Debug)]
struct Overlaid {
    id: Box<str>,
    entries: Box<[(SmolStr, ValuePattern)]>,
    rule: Rule,
}

#[derive(Clone, Debug)]
enum ValuePattern {
    Exact(SmolStr),
    Wildcard(Pattern),
}

impl ValuePattern {
    fn new(text: &str) -> Self {
        Pattern::unescaped(text).map_or_else(|text| Self::Exact(text.into()), Self::Wildcard)
    }

    fn matches(&self, value: &str) -> bool {
        match self {
            Self::Exact(exact) => *exact == *value,
            Self::Wildcard(pattern) => pattern.matches(value),
        }
    }
}

/// What applies in the place of the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OverlayMatch<'o> {
    /// The block of this id.
    Block(&'o str),
    /// The override of this id.
    Override(&'o str),
}

impl Overlay {
    /// The overlay of a domain; none if nothing is declared for it.
    pub(super) fn compile(
        domain: &Arc<str>,
        (semantics, is_shared): (Semantics, bool),
        declared: &DeclaredOverlay,
        limits: &mut Registrar,
    ) -> Option<Box<Self>> {
        let is_of_domain = |block: &&Block| block.domain.as_deref().is_none_or(|of| *of == **domain);
        let blocks: Box<[Block]> = declared.blocks.iter().filter(is_of_domain).cloned().collect();
        let mut overrides: Vec<&OverrideRule> =
            declared.overrides.iter().filter(|declared| *declared.domain == **domain).collect();
        if blocks.is_empty() && overrides.is_empty() {
            return None;
        }
        overrides.sort_by(|one, other| one.id.cmp(&other.id));
        let mut build =
            |path: String, id: &str, action| rule(domain, path, id, action, (semantics, is_shared), limits);
        let blocked = (!blocks.is_empty())
            .then(|| Box::new(build(BLOCKED.to_owned(), "blocks", OverrideAction::Denied)));
        let overrides: Box<[Overlaid]> = overrides
            .into_iter()
            .map(|declared| Overlaid {
                id: declared.id.as_str().into(),
                entries: declared
                    .entries
                    .iter()
                    .map(|(key, value)| (key.as_str().into(), ValuePattern::new(value)))
                    .collect(),
                rule: build(format!("(override {})", declared.id), &declared.id, declared.action),
            })
            .collect();
        let (mut exact, mut patterns) = (HashMap::default(), Vec::new());
        for (index, overlaid) in (0..).zip(&overrides) {
            match hash_of_exact(&overlaid.entries) {
                Some(hash) => exact.entry(hash).or_insert_with(SmallVec::new).push(index),
                None => patterns.push(index),
            }
        }
        let key_blocks = by_key(&blocks);
        Some(Box::new(Self {
            blocks: key_blocks,
            declared_blocks: blocks,
            blocked,
            exact,
            patterns: patterns.into(),
            overrides,
        }))
    }

    /// The rule that applies in the place of the domain's.
    #[inline]
    pub(super) fn find(&self, entries: &[Entry<'_>]) -> Option<&Rule> {
        match &self.blocked {
            Some(blocked) if self.is_blocked(entries) => Some(blocked),
            _ => self.overridden(entries).map(|overlaid| &overlaid.rule),
        }
    }

    fn is_blocked(&self, entries: &[Entry<'_>]) -> bool {
        entries
            .iter()
            .any(|entry| self.blocks.get(entry.key).is_some_and(|of_key| of_key.matches(entry.value)))
    }

    fn overridden(&self, entries: &[Entry<'_>]) -> Option<&Overlaid> {
        if self.overrides.is_empty() {
            return None;
        }
        let exact = self.exact.get(&hash_of(entries.iter().map(|entry| (entry.key, entry.value))));
        let candidates = exact.into_iter().flatten().chain(&self.patterns);
        candidates.map(|index| &self.overrides[*index as usize]).find(|overlaid| overlaid.matches(entries))
    }

    /// What applies to a descriptor, for explanations.
    pub(super) fn explain(&self, entries: &[Entry<'_>]) -> Option<OverlayMatch<'_>> {
        let block = self.declared_blocks.iter().find(|block| {
            entries.iter().any(|entry| block.key == entry.key && block.values.match_value(entry.value))
        });
        let overridden = || self.overridden(entries).map(|overlaid| OverlayMatch::Override(&overlaid.id));
        block.map(|block| OverlayMatch::Block(&block.id)).or_else(overridden)
    }

    /// Every rule.
    pub(super) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.blocked.as_deref().into_iter().chain(self.overrides.iter().map(|overlaid| &overlaid.rule))
    }
}

impl Overlaid {
    fn matches(&self, entries: &[Entry<'_>]) -> bool {
        let both = self.entries.iter().zip(entries);
        self.entries.len() == entries.len()
            && both.into_iter().all(|((key, value), entry)| *key == *entry.key && value.matches(entry.value))
    }
}

impl KeyBlocks {
    fn matches(&self, value: &str) -> bool {
        self.values.get(value).is_some()
            || self.patterns.iter().any(|pattern| pattern.matches(value))
            || (!self.networks.is_empty()
                && value.parse::<IpAddr>().is_ok_and(|address| self.networks.contains(address)))
    }
}

impl BlockedValues {
    fn match_value(&self, value: &str) -> bool {
        match self {
            Self::Value(text) => ValuePattern::new(text).matches(value),
            Self::Cidr(network) => match (network.parse::<Network>(), value.parse()) {
                (Ok(network), Ok(address)) => network.contains(address),
                _ => false,
            },
        }
    }
}

fn by_key(blocks: &[Block]) -> TextMap<KeyBlocks> {
    type Values = (Vec<(SmolStr, ())>, Vec<Pattern>, Vec<Network>);
    let mut by_key: HashMap<&str, Values, FixedState> = HashMap::default();
    for block in blocks {
        let (values, patterns, networks) = by_key.entry(&block.key).or_default();
        match &block.values {
            BlockedValues::Value(text) => match Pattern::unescaped(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(text) => values.push((text.into(), ())),
            },
            // Checked when the block was set.
            BlockedValues::Cidr(text) => networks.extend(text.parse::<Network>().ok()),
        }
    }
    let of_key = |(key, (values, patterns, networks)): (&str, Values)| {
        let (values, patterns) = (values.into_iter().collect(), patterns.into());
        (key.into(), KeyBlocks { values, patterns, networks: Networks::new(networks) })
    };
    by_key.into_iter().map(of_key).collect()
}

/// The hash of entries without wildcards.
fn hash_of_exact(entries: &[(SmolStr, ValuePattern)]) -> Option<u64> {
    let pair = |(key, value): &'_ (SmolStr, ValuePattern)| match value {
        ValuePattern::Exact(value) => Some((key.clone(), value.clone())),
        ValuePattern::Wildcard(_) => None,
    };
    let pairs: Vec<(SmolStr, SmolStr)> = entries.iter().map(pair).collect::<Option<_>>()?;
    Some(hash_of(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()))))
}

/// Clients only look up: a fixed seed cannot be exploited.
fn hash_of<'e>(entries: impl Iterator<Item = (&'e str, &'e str)>) -> u64 {
    let mut hasher = FixedState::with_seed(0).build_hasher();
    entries.for_each(|pair| pair.hash(&mut hasher));
    hasher.finish()
}

fn rule(
    domain: &Arc<str>,
    path: String,
    id: &str,
    action: OverrideAction,
    (semantics, is_shared): (Semantics, bool),
    limits: &mut Registrar,
) -> Rule {
    let path: Arc<str> = path.into();
    let rate = match action {
        OverrideAction::Limit { requests, unit } => Some((requests, unit)),
        OverrideAction::Denied => Some((0, Unit::Second)),
        OverrideAction::Unlimited => None,
    };
    let limit = |(requests, unit): (u32, Unit)| {
        let window = unit.window();
        let algorithm = semantics.algorithm(requests, window);
        let algorithm = match is_shared {
            true => algorithm.in_microseconds().unwrap_or(algorithm),
            false => algorithm,
        };
        // Its counters are those of no rule.
        let tag = tag_of_label(&path);
        let identity = LimitIdentity { domain: Arc::clone(domain), path: Arc::clone(&path), tag };
        let info = LimitInfo { identity, algorithm: algorithm.clone() };
        let LimitNumbers { id, index, series } = limits.register(info, Arc::clone(&path));
        RuleLimit {
            id,
            tag,
            index,
            series,
            name: "".into(),
            requests,
            window,
            unit: Some(unit),
            algorithm,
            charge: Charge::Admitted,
            semantics,
            key_prefix: None,
            is_joined: false,
            is_local: false,
        }
    };
    let origin = Origin { source: SourceId::Override(id.into()), position: None };
    let rule = Rule {
        limits: rate.map(limit).into_iter().collect(),
        has_plain_limit: false,
        shows_values: false,
        unlimited: action == OverrideAction::Unlimited,
        shadow: false,
        shard_by: None,
        is_never_leased: false,
        info: RuleInfo {
            path,
            declared_at: origin.to_string().into(),
            quota: false,
            shown_values: 0,
            metric_labels: Box::default(),
            metadata: None,
            on_deny: None,
        },
        origin,
        extended_at: None,
        replaces: Box::default(),
        detailed_metric: false,
        value_to_metric: false,
    };
    rule.with_plain_limit()
}

#[cfg(test)]
mod tests;
