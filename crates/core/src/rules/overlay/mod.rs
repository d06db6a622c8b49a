//! Overrides and blocks: what applies to some descriptors in the place of the rules of their domain.
//!
//! Blocks win over overrides, and overrides over rules and over limits in requests. Of several overrides that match, one
//! without wildcards wins, else the first by id. Matching takes no memory and parses addresses only for keys with networks.

mod block_lines;
mod blocks;
mod declared;
mod networks;

pub(super) use blocks::Blocks;
pub(super) use declared::DeclaredOverlay;
pub use declared::{Block, BlockedValues, OverrideAction, OverrideRule};
pub use networks::{Network, NetworkError};

use super::{
    Charge, LimitIdentity, LimitInfo, Origin, Pattern, Rule, RuleLimit, Semantics, SourceId,
    limits::{LimitNumbers, Registrar, tag_of_label},
    pattern_set::PatternSet,
    text_map::TextMap,
};
use crate::limit::{Entry, RuleInfo, Unit};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;
use smol_str::SmolStr;
use std::{
    hash::{BuildHasher as _, Hash as _, Hasher as _},
    sync::Arc,
};

/// The path of the rule that blocked requests get.
const BLOCKED: &str = "(blocked)";

/// The overrides and blocks of one domain.
#[derive(Clone, Debug)]
pub(super) struct Overlay {
    /// Those of every domain, which all overlays share: they may be many.
    common_blocks: Arc<Blocks>,
    own_blocks: Blocks,
    blocked: Option<Box<Rule>>,
    /// Without wildcards, by the hash of their entries.
    exact: HashMap<u64, SmallVec<[u32; 1]>, FixedState>,
    /// With wildcards, by the position and the key of one of them.
    by_wildcard: Box<[TextMap<SelectedByWildcard>]>,
    /// By id.
    overrides: Box<[Overlaid]>,
}

/// Overrides with a wildcard for the same key, by index.
#[derive(Clone, Debug, Default)]
struct SelectedByWildcard {
    overrides: Vec<u32>,
    /// Their wildcards; none if they are few.
    set: Option<Box<PatternSet>>,
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

/// Overrides and blocks in the place of the rules.
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
        (declared, common_blocks): (&DeclaredOverlay, &Arc<Blocks>),
        limits: &mut Registrar,
    ) -> Option<Box<Self>> {
        let own_blocks = Blocks::new(declared.blocks_of(domain).to_vec());
        let has_blocks = !own_blocks.is_empty() || !common_blocks.is_empty();
        let mut overrides: Vec<&OverrideRule> =
            declared.overrides.iter().filter(|declared| *declared.domain == **domain).collect();
        if !has_blocks && overrides.is_empty() {
            return None;
        }
        overrides.sort_by(|one, other| one.id.cmp(&other.id));
        let mut build =
            |path: String, id: &str, action| rule(domain, path, id, action, (semantics, is_shared), limits);
        let blocked =
            has_blocks.then(|| Box::new(build(BLOCKED.to_owned(), "blocks", OverrideAction::Denied)));
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
        let mut exact = HashMap::default();
        for (index, overlaid) in (0..).zip(&overrides) {
            if let Some(hash) = hash_of_exact(&overlaid.entries) {
                exact.entry(hash).or_insert_with(SmallVec::new).push(index);
            }
        }
        Some(Box::new(Self {
            common_blocks: Arc::clone(common_blocks),
            own_blocks,
            blocked,
            exact,
            by_wildcard: by_wildcard(&overrides),
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
        self.common_blocks.match_one_of(entries) || self.own_blocks.match_one_of(entries)
    }

    fn overridden(&self, entries: &[Entry<'_>]) -> Option<&Overlaid> {
        if self.overrides.is_empty() {
            return None;
        }
        let matches = |index: &u32| self.overrides[*index as usize].matches(entries);
        let exact = self.exact.get(&hash_of(entries.iter().map(|entry| (entry.key, entry.value))));
        let exact = exact.and_then(|candidates| candidates.iter().copied().find(matches));
        let with_wildcards = || {
            let selected = self.by_wildcard.iter().zip(entries).filter_map(|(by_key, entry)| {
                let SelectedByWildcard { overrides, set } = by_key.get(entry.key)?;
                match set {
                    None => overrides.iter().copied().find(matches),
                    Some(set) => set.all(entry.value).into_iter().find(matches),
                }
            });
            selected.min()
        };
        exact.or_else(with_wildcards).map(|index| &self.overrides[index as usize])
    }

    /// The override or block of a descriptor, for explanations.
    pub(super) fn explain(&self, entries: &[Entry<'_>]) -> Option<OverlayMatch<'_>> {
        let block = self.common_blocks.find(entries).or_else(|| self.own_blocks.find(entries));
        let overridden = || self.overridden(entries).map(|overlaid| OverlayMatch::Override(&overlaid.id));
        block.map(|block| OverlayMatch::Block(&block.id)).or_else(overridden)
    }

    /// The blocks of every domain.
    pub(super) fn common_blocks(&self) -> &[Block] {
        self.common_blocks.declared()
    }

    /// The blocks of this domain alone.
    pub(super) fn own_blocks(&self) -> &[Block] {
        self.own_blocks.declared()
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

/// For each key, the numbers of overrides and their wildcards.
type ByKey<'o> = HashMap<SmolStr, Vec<(u32, &'o Pattern)>, FixedState>;

/// Overrides with wildcards by the position of the one with the longest text, and its key.
fn by_wildcard(overrides: &[Overlaid]) -> Box<[TextMap<SelectedByWildcard>]> {
    let mut by_position: Vec<ByKey<'_>> = Vec::new();
    for (index, overlaid) in (0..).zip(overrides) {
        let wildcards =
            overlaid.entries.iter().enumerate().filter_map(|(position, (key, value))| match value {
                ValuePattern::Wildcard(pattern) => Some((position, key, pattern)),
                ValuePattern::Exact(_) => None,
            });
        let longest = wildcards.max_by_key(|(_, _, pattern)| pattern.as_str().len());
        let Some((position, key, pattern)) = longest else { continue };
        if by_position.len() <= position {
            by_position.resize_with(position + 1, HashMap::default);
        }
        by_position[position].entry(key.clone()).or_default().push((index, pattern));
    }
    let selected = |(key, overrides): (SmolStr, Vec<(u32, &Pattern)>)| {
        let set = PatternSet::new(overrides.iter().copied());
        (key, SelectedByWildcard { overrides: overrides.into_iter().map(|(index, _)| index).collect(), set })
    };
    by_position.into_iter().map(|by_key| by_key.into_iter().map(selected).collect()).collect()
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
            queues: false,
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
