//! The compiled rules of a domain, and how a descriptor is matched against them.
//!
//! Each entry of the descriptor selects one of the nodes of its level. Of those that match, in this order: exact key and value; a list
//! of values; the longest network; the wildcard, in the value or in the key, with most characters; the first regular expression of the
//! file; the key without a value; else the descriptor has no rule. The selection is final: if the next entry finds nothing below it, no
//! other node is tried. The rule is that of the last entry; rules of nodes above it do not apply.
//!
//! Nodes with exact keys and values are found by hash.

mod any_case;
mod compile;
mod entry;
mod explanation;
mod features;
mod joined;
mod level;
mod matched;
mod node;
mod paths;
mod redactions;
mod sets;
mod warnings;

pub use entry::{DeclaredEntry, DeclaredValues};
pub(super) use explanation::listed;
pub use explanation::{Explanation, Outcome, Step};
pub use features::Features;
pub use matched::Matched;
pub(super) use node::Level;
pub use paths::DeclaredPath;

use super::{
    ConditionalLimit, ConditionalLimits, KeyPrefix, OwnLimitSettings, Rule, RuleLimit, Semantics,
    error::Problems,
    grammar::DeclaredDomain,
    letter_case::AnyCaseKeys,
    overlay::{Behind, Context, Overlay, OverlayMatch, OverrideRule},
    own_limits::OwnLimits,
    quota_settings::QuotaSettings,
    redaction::Redaction,
    value_set::SharedValue,
};
use crate::{
    algorithm::NotShareable,
    limit::{Entry, RequestLimit, Window},
};
use redactions::Redactions;
use smallvec::SmallVec;
use std::sync::Arc;

/// The rules of one domain.
#[derive(Clone, Debug)]
pub struct DomainRules {
    name: Arc<str>,
    root: Level,
    /// The limits that requests bring along.
    own_limits: OwnLimits,
    is_shared: bool,
    /// What its rules have.
    pub features: Features,
    redactions: Redactions,
    /// The keys whose values overrides and blocks compare without regard to the case of letters.
    any_case: Arc<AnyCaseKeys>,
    /// How it is served over RLQS; none if it is not.
    quotas: Option<QuotaSettings>,
    /// Instead of the tree: limits that apply by conditions.
    conditional: Option<Box<ConditionalLimits>>,
    /// Overrides and blocks instead of these rules, for some descriptors; none if there are none.
    overlay: Option<Box<Overlay>>,
}

/// The rule of a descriptor.
#[derive(Clone, Debug)]
pub struct Found<'r> {
    /// The rule of the last entry.
    pub rule: &'r Rule,
    /// The entries whose values share counters with others: keys have another form of the value.
    pub shared: SharedValues<'r>,
}

/// Values, in the order of their entries.
type SharedValues<'r> = SmallVec<[SharedValue<'r>; 1]>;

impl DomainRules {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rule of a descriptor with these entries, if it has one.
    #[inline]
    pub fn find<'r>(&'r self, entries: &[Entry<'_>]) -> Option<Found<'r>> {
        let mut shared = SmallVec::new();
        if let Some(rule) = self.overlaid(entries) {
            // The counters of an override are those of the rule behind it, and so are their patterns.
            if rule.is_counted() && self.follow(entries, &mut shared).is_none() {
                shared.clear();
            }
            return Some(Found { rule, shared });
        }
        let rule = self.follow(entries, &mut shared)?;
        Some(Found { rule, shared })
    }

    /// As [`DomainRules::find`], but past blocks and overrides that count nothing: the rule whose counters the descriptor has, now or
    /// once they are deleted.
    pub fn find_counted<'r>(&'r self, entries: &[Entry<'_>]) -> Option<Found<'r>> {
        let mut shared = SmallVec::new();
        let behind = self.follow(entries, &mut shared);
        if behind.is_none() {
            shared.clear();
        }
        match self.overlay.as_ref().and_then(|overlay| overlay.override_of(entries)) {
            Some(rule) if rule.is_counted() => Some(Found { rule, shared }),
            _ => behind.map(|rule| Found { rule, shared }),
        }
    }

    /// The limit in whose counters a limit of an override counts for these entries, with the patterns of shared values.
    pub(crate) fn overridden<'r>(
        &'r self,
        limit: &RuleLimit,
        entries: &[Entry<'_>],
    ) -> Option<(&'r RuleLimit, SharedValues<'r>)> {
        let mut shared = SmallVec::new();
        let behind = self.follow(entries, &mut shared)?;
        let of = &self.overlay.as_ref()?.override_of(entries)?.limits;
        let windows: SmallVec<[Window; 1]> = of.iter().map(|limit| limit.window).collect();
        let index = of.iter().position(|one| one.id == limit.id)?;
        let overridden = behind.overridden_limit(index, &windows)?;
        // Other values count in a shared counter under the rule's limit. If the two limits read its state differently, requests under them in
        // turn would convert it each time: its hits, which count as taken at the conversion, would never age.
        let is_continued = self.shares(overridden) == self.shares(limit)
            && overridden.is_continued_by(limit.window)
            && (limit.keeps_state_of(overridden) || !shared.iter().any(SharedValue::is_of_several));
        is_continued.then_some((overridden, shared))
    }

    /// The rule of an override or a block that matches the entries. It wins over a limit in the request too.
    #[inline]
    pub fn overlaid(&self, entries: &[Entry<'_>]) -> Option<&Rule> {
        self.overlay.as_ref().and_then(|overlay| overlay.find(entries))
    }

    /// The first limit of an override that a shared store cannot count, by its index, and the reason.
    pub fn not_shareable(
        &self,
        declared: &OverrideRule,
        semantics: Semantics,
    ) -> Option<(usize, NotShareable)> {
        let behind = self.rule_behind(declared);
        let context = Context { domain: &self.name, semantics, is_shared: self.is_shared };
        context.not_shareable(&declared.action, behind)
    }

    /// The rule that an override applies instead of, if it is one rule: entries with wildcards are matched as written.
    pub fn rule_behind(&self, declared: &OverrideRule) -> Option<&Rule> {
        self.follow(&declared.as_entries(), &mut SmallVec::new())
    }

    pub(in crate::rules) fn overlay(&self) -> Option<&Overlay> {
        self.overlay.as_deref()
    }

    /// The override or the block that matches the entries.
    pub fn overlay_match(&self, entries: &[Entry<'_>]) -> Option<OverlayMatch<'_>> {
        self.overlay.as_ref().and_then(|overlay| overlay.explain(entries))
    }

    /// As [`DomainRules::find`] without overrides and blocks; adds the shared values to `shared`. The result fits a register.
    pub(in crate::rules) fn follow<'r>(
        &'r self,
        entries: &[Entry<'_>],
        shared: &mut SharedValues<'r>,
    ) -> Option<&'r Rule> {
        let (mut level, mut rule) = (&self.root, None);
        for (index, entry) in entries.iter().enumerate() {
            let share = |form, text| shared.push(SharedValue { entry: index as u32, form, text });
            let node = level.select(entry, share)?;
            (level, rule) = (&node.below, Some(&node.rule));
        }
        rule
    }

    /// Explains the matching of the entries, step by step.
    pub fn explain(&self, entries: &[Entry<'_>]) -> Explanation<'_> {
        match self.overlaid(entries) {
            Some(rule) => Explanation { steps: Vec::new(), outcome: Outcome::Reached(rule) },
            None => Explanation::new(&self.root, entries),
        }
    }

    /// Whether the rule of a descriptor with these entries may queue requests.
    pub fn queues(&self, entries: &[Entry<'_>]) -> bool {
        self.features.queues && self.find(entries).is_some_and(|found| found.rule.may_queue())
    }

    /// Whether the rule of a descriptor with these entries may have requests wait for slots.
    pub fn waits_for_slots(&self, entries: &[Entry<'_>]) -> bool {
        self.features.waits_for_slots && self.find(entries).is_some_and(|found| found.rule.waits_for_slots())
    }

    /// Whether its counters are in a shared store, except those of rules with local counters.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// How it is served over RLQS; none if it is not.
    pub fn quotas(&self) -> Option<QuotaSettings> {
        self.quotas
    }

    pub(super) fn root(&self) -> &Level {
        &self.root
    }

    /// The limits that apply by conditions, instead of rules for descriptors.
    #[inline]
    pub fn conditional(&self) -> Option<&ConditionalLimits> {
        self.conditional.as_deref()
    }

    /// Whether a limit of the domain counts in a shared store.
    #[inline]
    pub fn shares(&self, limit: &RuleLimit) -> bool {
        self.is_shared && !limit.is_local
    }

    /// Whether decisions of the domain may take time: they are queued, wait for slots, or a shared store makes
    /// them.
    #[inline]
    pub fn may_wait(&self) -> bool {
        self.features.queues || self.features.waits_for_slots || self.is_shared
    }

    /// How limits in requests count, if the rules state it.
    pub fn request_limits(&self) -> Option<&OwnLimitSettings> {
        self.own_limits.stated()
    }

    /// The limit that a request with these entries brings along.
    pub fn own_limit(&self, own: RequestLimit, entries: &[Entry<'_>]) -> RuleLimit {
        let reached = self.follow(entries, &mut SmallVec::new());
        self.own_limits.limit(own, reached.and_then(|rule| rule.own_limits.as_deref()))
    }

    /// Whether any descriptor of the rules may have this key. Conditions may read any key.
    pub fn has_key(&self, key: &str) -> bool {
        self.root.has_key(key) || self.conditional.is_some()
    }

    /// How the decision log writes values of this key; none if no descriptor declares it.
    pub fn redaction(&self, key: &str) -> Option<Redaction> {
        self.redactions.of(key)
    }

    /// Whether the decision log does not write the values of some key as they are.
    pub fn redacts_values(&self) -> bool {
        self.redactions.redact()
    }

    /// Every rule, in the order of the files.
    pub fn rules(&self) -> Vec<&Rule> {
        let mut rules = self.rules_unsorted();
        rules.sort_by_key(|rule| &rule.origin);
        rules
    }

    /// Every rule, in no particular order: saves the sorting.
    pub fn rules_unsorted(&self) -> Vec<&Rule> {
        let mut rules = Vec::new();
        self.root.add_rules(&mut rules);
        let conditional = self.conditional.iter().flat_map(|limits| limits.iter());
        rules.extend(conditional.map(|limit| &limit.rule));
        rules.extend(self.overlay.iter().flat_map(|overlay| overlay.rules()));
        rules
    }

    /// See [`RuleSet::set_key_prefixes`](super::RuleSet::set_key_prefixes).
    pub(super) fn set_key_prefixes(
        &mut self,
        start: &mut impl FnMut(&str, bool, &RuleLimit, &[DeclaredEntry<'_>]) -> Option<KeyPrefix>,
    ) {
        let (name, is_shared) = (&self.name, self.is_shared);
        self.root.set_key_prefixes(&mut Vec::new(), &mut |limit, way| {
            start(name, is_shared && !limit.is_local, limit, way)
        });
        for ConditionalLimit { rule, .. } in self.conditional.iter_mut().flat_map(|limits| limits.iter_mut())
        {
            let path = DeclaredEntry { key: Some(&rule.info.path), values: DeclaredValues::Any };
            for limit in &mut rule.limits {
                limit.key_prefix = start(name, is_shared, limit, &[path]);
            }
        }
    }

    /// Compiles the declarations of all files for the domain, without overrides and blocks; duplicate descriptors are reported.
    pub(super) fn compile(
        declared: DeclaredDomain,
        own_limits: OwnLimits,
        semantics: Semantics,
        problems: &Problems,
    ) -> Self {
        let redactions = Redactions::new(&declared.descriptors);
        let any_case = Arc::new(any_case::keys_of(&declared.descriptors));
        if let Some(quotas) = &declared.quotas {
            quotas.check(&declared.descriptors, problems);
        }
        let quotas = declared.quotas.map(|declared| declared.settings);
        let root = Level::compile(declared.descriptors, semantics, problems);
        let conditional = ConditionalLimits::compile(declared.limits, problems);
        let mut rules = Self {
            name: declared.name,
            root,
            own_limits,
            is_shared: declared.is_shared,
            features: Features::default(),
            redactions,
            any_case,
            quotas,
            conditional,
            overlay: None,
        };
        rules.features = rules.find_features();
        rules
    }

    fn find_features(&self) -> Features {
        let rules = self.rules_unsorted();
        let any = |has: fn(&Rule) -> bool| rules.iter().any(|rule| has(rule));
        let local_rules = self.is_shared && any(Rule::is_local);
        let tickets = any(|rule| rule.holds_slots() || rule.reserves()) || self.own_limits.reserve();
        Features {
            replaces: any(|rule| !rule.replaces.is_empty()),
            schedules: any(|rule| rule.limits.iter().any(|limit| limit.schedule.is_some())),
            queues: any(Rule::may_queue),
            waits_for_slots: any(Rule::waits_for_slots),
            local_rules,
            tickets,
            is_apart: tickets || self.conditional.is_some() || self.is_shared && !local_rules,
        }
    }

    /// Sets the overrides and blocks, which `overlay` compiles for the rules of the domain, and what follows from both.
    pub(super) fn set_overlay(
        &mut self,
        semantics: Semantics,
        overlay: impl FnOnce(Context<'_>, &Arc<AnyCaseKeys>, &Behind<'_>) -> Option<Box<Overlay>>,
    ) {
        let had_overlay = self.overlay.take().is_some();
        let context = Context { domain: &self.name, semantics, is_shared: self.is_shared };
        let behind = |entries: &[Entry<'_>]| self.follow(entries, &mut SmallVec::new());
        self.overlay = overlay(context, &self.any_case, &behind);
        if had_overlay || self.overlay.is_some() {
            self.features = self.find_features();
        }
    }
}
