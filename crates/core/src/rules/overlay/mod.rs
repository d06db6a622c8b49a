//! Overrides and blocks: what applies to some descriptors instead of the rules of their domain.
//!
//! Blocks win over overrides, and overrides over rules and over limits in requests. If several match, an override without wildcards
//! wins, else the last declared. Matching takes no memory and parses addresses only for keys with networks. Values of a key of which a
//! rule ignores the case of letters match in any case, since they share a counter: only there, values in upper case take memory.
//!
//! An override with limits continues the counters of the rule behind it: [`Rule::overridden_limit`]. Blocks, and overrides that deny
//! or admit everything, count nothing; resets and give-backs reach the counters behind them.

mod all_declared;
mod block;
mod block_lines;
mod blocks;
mod declared;
mod override_limit;
mod override_rule;
mod value_pattern;

pub(super) use all_declared::DeclaredOverlay;
pub use block::{Block, BlockedValues};
pub(super) use blocks::Blocks;
pub(super) use declared::Document;
pub use declared::{OverrideAction, OverrideRule};
pub use override_limit::{OVERRIDE_LIMITS_MAX, OverrideLimit, OverrideLimitError};
pub(super) use override_rule::Context;

use super::{
    Pattern, Rule, letter_case::AnyCaseKeys, limits::Registrar, pattern_set::PatternSet, text_map::TextMap,
};
use crate::{algorithm::NotShareable, limit::Entry};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;
use smol_str::SmolStr;
use std::{
    borrow::Cow,
    hash::{BuildHasher as _, Hash as _, Hasher as _},
    sync::Arc,
};
use value_pattern::ValuePattern;

/// Finds the rule of entries, without overrides and blocks.
pub(super) type Behind<'r> = dyn Fn(&[Entry<'_>]) -> Option<&'r Rule> + 'r;

/// The path of the rule that blocked requests get.
const BLOCKED: &str = "(blocked)";

/// The overrides and blocks of one domain.
#[derive(Clone, Debug)]
pub(super) struct Overlay {
    /// Blocks of every domain, which all overlays share because they may be many.
    common_blocks: Arc<Blocks>,
    own_blocks: Blocks,
    /// Those of the blocks of both kinds whose values match in any case of letters.
    any_case_blocks: Blocks,
    any_case: Arc<AnyCaseKeys>,
    blocked: Option<Box<Rule>>,
    /// Overrides without wildcards, by the hash of their entries.
    exact: HashMap<u64, SmallVec<[u32; 1]>, FixedState>,
    /// Overrides with wildcards, by the position and the key of one of these.
    by_wildcard: Box<[TextMap<PatternSet>]>,
    /// In the order of their declarations.
    overrides: Box<[Overlaid]>,
}

#[derive(Clone, Debug)]
struct Overlaid {
    id: Box<str>,
    entries: Box<[(SmolStr, ValuePattern)]>,
    rule: Rule,
    /// Why it counts by another algorithm than it declares, if it does.
    not_shareable: Option<NotShareable>,
}

/// Overrides and blocks instead of the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OverlayMatch<'o> {
    /// The block of this id.
    Block(&'o str),
    /// The override of this id.
    Override(&'o str),
}

impl Overlay {
    /// The overlay of a domain; none if nothing is declared for it. `behind` has the rule of the domain for entries.
    pub(super) fn compile<'r>(
        context: &Context<'_>,
        any_case: &Arc<AnyCaseKeys>,
        declared: &DeclaredOverlay,
        common_blocks: &Arc<Blocks>,
        behind: &Behind<'r>,
        limits: &mut Registrar,
    ) -> Option<Box<Self>> {
        let domain = &**context.domain;
        let own_blocks = Blocks::new(declared.blocks_of(domain).to_vec());
        let all_blocks = common_blocks.declared().iter().chain(own_blocks.declared());
        let any_case_blocks = Blocks::in_any_case(all_blocks.filter(|block| any_case.contains(&block.key)));
        let has_blocks = !own_blocks.is_empty() || !common_blocks.is_empty();
        let overrides: Vec<&Arc<OverrideRule>> =
            declared.overrides.iter().filter(|declared| declared.domain == *domain).collect();
        if !has_blocks && overrides.is_empty() {
            return None;
        }
        let mut build = |path: String, id: &str, action: &OverrideAction, behind: Option<&Rule>| {
            context.rule(path.into(), id, action, behind, limits)
        };
        let blocked =
            has_blocks.then(|| Box::new(build(BLOCKED.to_owned(), "blocks", &OverrideAction::Denied, None)));
        let overrides: Box<[Overlaid]> = overrides
            .into_iter()
            .map(|declared| {
                // The rule for the entries as written: an override with a wildcard may replace several rules.
                let behind = behind(&declared.as_entries());
                let entries = declared.entries.iter();
                Overlaid {
                    id: declared.id.as_str().into(),
                    entries: entries
                        .map(|(key, value)| {
                            (key.as_str().into(), ValuePattern::new(&any_case.form(key, value)))
                        })
                        .collect(),
                    rule: build(
                        format!("(override {})", declared.id),
                        &declared.id,
                        &declared.action,
                        behind,
                    ),
                    not_shareable: context.not_shareable(&declared.action, behind).map(|(_, reason)| reason),
                }
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
            any_case_blocks,
            any_case: Arc::clone(any_case),
            blocked,
            exact,
            by_wildcard: by_wildcard(&overrides),
            overrides,
        }))
    }

    /// The rule that applies instead of the domain's.
    #[inline]
    pub(super) fn find(&self, entries: &[Entry<'_>]) -> Option<&Rule> {
        match &self.blocked {
            Some(blocked) if self.is_blocked(entries) => Some(blocked),
            _ => self.overridden(entries).map(|overlaid| &overlaid.rule),
        }
    }

    fn is_blocked(&self, entries: &[Entry<'_>]) -> bool {
        self.common_blocks.match_one_of(entries)
            || self.own_blocks.match_one_of(entries)
            || self.any_case_blocks.match_one_of(entries)
    }

    fn overridden(&self, entries: &[Entry<'_>]) -> Option<&Overlaid> {
        if self.overrides.is_empty() {
            return None;
        }
        let matches = |index: &u32| self.overrides[*index as usize].matches(entries, &self.any_case);
        let exact = self.exact.get(&hash_of(
            entries.iter().map(|entry| (entry.key, self.any_case.form(entry.key, entry.value))),
        ));
        let exact = exact.and_then(|candidates| candidates.iter().rev().copied().find(matches));
        let with_wildcards = || {
            let selected = self.by_wildcard.iter().zip(entries).filter_map(|(by_key, entry)| {
                let value = self.any_case.form(entry.key, entry.value);
                by_key.get(entry.key)?.all(&value).into_iter().rev().find(matches)
            });
            selected.max()
        };
        exact.or_else(with_wildcards).map(|index| &self.overrides[index as usize])
    }

    /// The override or block of a descriptor, for explanations.
    pub(super) fn explain(&self, entries: &[Entry<'_>]) -> Option<OverlayMatch<'_>> {
        let all = [&*self.common_blocks, &self.own_blocks, &self.any_case_blocks];
        let block = all.into_iter().find_map(|blocks| blocks.find(entries));
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

    /// The rule of the override of these entries, as [`Self::find`] returns it unless they are blocked.
    pub(super) fn override_of(&self, entries: &[Entry<'_>]) -> Option<&Rule> {
        self.overridden(entries).map(|overlaid| &overlaid.rule)
    }

    /// The ids of overrides that a shared store cannot count as they are declared, with the reason.
    pub(super) fn not_shareable(&self) -> impl Iterator<Item = (&str, NotShareable)> {
        self.overrides.iter().filter_map(|overlaid| Some((&*overlaid.id, overlaid.not_shareable?)))
    }

    /// Every rule.
    pub(super) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.blocked.as_deref().into_iter().chain(self.overrides.iter().map(|overlaid| &overlaid.rule))
    }
}

impl Overlaid {
    fn matches(&self, entries: &[Entry<'_>], any_case: &AnyCaseKeys) -> bool {
        let both = self.entries.iter().zip(entries);
        let matches = |((key, value), entry): (&(SmolStr, ValuePattern), &Entry<'_>)| {
            *key == *entry.key && value.matches(&any_case.form(key, entry.value))
        };
        self.entries.len() == entries.len() && both.into_iter().all(matches)
    }
}

/// For each key, the numbers of overrides and their wildcards.
type ByKey<'o> = HashMap<SmolStr, Vec<(u32, &'o Pattern)>, FixedState>;

/// Overrides with wildcards, by the position and the key of their longest wildcard.
fn by_wildcard(overrides: &[Overlaid]) -> Box<[TextMap<PatternSet>]> {
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
    let set =
        |(key, overrides): (SmolStr, Vec<(u32, &Pattern)>)| (key, PatternSet::new(overrides.into_iter()));
    by_position.into_iter().map(|by_key| by_key.into_iter().map(set).collect()).collect()
}

/// The hash of entries without wildcards.
fn hash_of_exact(entries: &[(SmolStr, ValuePattern)]) -> Option<u64> {
    let pair = |(key, value): &'_ (SmolStr, ValuePattern)| match value {
        ValuePattern::Exact(value) => Some((key.clone(), value.clone())),
        ValuePattern::Wildcard(_) => None,
    };
    let pairs: Vec<(SmolStr, SmolStr)> = entries.iter().map(pair).collect::<Option<_>>()?;
    Some(hash_of(pairs.iter().map(|(key, value)| (key.as_str(), Cow::Borrowed(value.as_str())))))
}

/// Clients only look up: a fixed seed cannot be exploited.
fn hash_of<'e>(entries: impl Iterator<Item = (&'e str, Cow<'e, str>)>) -> u64 {
    let mut hasher = FixedState::with_seed(0).build_hasher();
    entries.for_each(|pair| pair.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests;
