//! Rule sets: every domain of every document, and the limits by number.

mod unmatched_blocks;

use super::{
    Block, DeclaredEntry, DomainRules, KeyPrefix, LimitIdentity, LimitName, LimitTable, LoadOptions, Rule,
    RuleError, RuleErrors, RuleLimit, Semantics, Source,
    error::Problems,
    grammar::{self, DeclaredDomain, ExtensionDocuments},
    limits::{NamedLimit, Registered, Registrar},
    other_files::{may_have_rule_files, rule_files},
    overlay::{DeclaredOverlay, Overlay},
    own_limits::OwnLimits,
    text_map::TextMap,
};
use crate::{
    algorithm::Algorithm,
    limit::{LimitId, SeriesId},
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{
    collections::{BTreeMap, btree_map},
    mem,
    sync::Arc,
};

/// The rules of all domains. Immutable; a reload builds another set.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    domains: TextMap<DomainRules>,
    /// Whether any domain has a rule that may queue requests.
    may_queue: bool,
    /// Whether requests may wait for slots of a rule of any domain.
    may_wait_for_slots: bool,
    /// Whether decisions of any domain may take time.
    may_wait: bool,
    limits: LimitTable,
    /// The most hits of counters whose limits reserve and bound debts, those of former rules too.
    reserved_at_most: HashMap<LimitId, u64, FixedState>,
    /// The greatest limits of schedules, those of former rules too.
    greatest: HashMap<LimitId, Algorithm, FixedState>,
    /// Number of limits before those of overrides and blocks, by index.
    of_rules: usize,
    /// By [`RuleLimit::index`]: keeps the limits' numbers.
    named: Box<[NamedLimit]>,
    /// Keeps the numbers of limits without names of their own.
    beside: Box<[Registered]>,
    /// Warnings of the documents with rules.
    warnings: Box<[RuleError]>,
    /// Warnings of files of blocks.
    block_warnings: Box<[RuleError]>,
    /// Extensions that no rule has.
    without_effect: Box<[RuleError]>,
}

impl RuleSet {
    /// Compiles the documents, or returns every error in them. The rules are the first of their [`LimitTable`].
    pub fn parse(sources: &[Source], options: &LoadOptions) -> Result<Self, RuleErrors> {
        Self::build(sources, options, &Self::default())
    }

    /// Compiles the documents into the rules that follow these: limits that did not change keep their numbers. Only
    /// the owner of the rules in force can put the result in their place.
    pub(crate) fn successor(&self, sources: &[Source], options: &LoadOptions) -> Result<Self, RuleErrors> {
        let mut next = Self::build(sources, options, self)?;
        // A counter keeps its former limit until it is used again.
        let is_known = |limit: LimitId| self.limits.get(limit).is_some();
        for (&limit, &most) in self.reserved_at_most.iter().filter(|(limit, _)| is_known(**limit)) {
            next.reserved_at_most.entry(limit).or_insert(most);
        }
        for (&limit, greatest) in self.greatest.iter().filter(|(limit, _)| is_known(**limit)) {
            next.greatest.entry(limit).or_insert_with(|| greatest.clone());
        }
        Ok(next)
    }

    /// These rules with other overrides and blocks. The rules themselves are not read again, and the limits of both keep their numbers.
    pub(crate) fn successor_with_overlays(
        &self,
        overlays: &[Source],
        options: &LoadOptions,
    ) -> Result<Self, RuleErrors> {
        let problems = Problems::default();
        let mut overlaid = DeclaredOverlay::default();
        overlays.iter().for_each(|source| overlaid.read(source, &problems));
        problems.or(())?;
        let mut limits = Registrar::new(self.limits.clone(), options.series_max, &self.beside);
        limits.used = self.named[..self.of_rules].to_vec();
        limits.beside = self.beside.to_vec();
        let mut next = self.clone();
        next.set_overlays(overlaid, options.semantics, limits);
        Ok(next)
    }

    /// Sets the overrides and blocks of all domains; the registrar has the limits of their rules.
    fn set_overlays(&mut self, mut overlaid: DeclaredOverlay, semantics: Semantics, mut limits: Registrar) {
        self.of_rules = limits.used.len();
        self.block_warnings = unmatched_blocks::warnings(&overlaid, &self.domains).into();
        let common_blocks = overlaid.take_common_blocks();
        (self.may_queue, self.may_wait_for_slots, self.may_wait) = (false, false, false);
        for (_, domain) in self.domains.iter_mut() {
            domain.set_overlay(semantics, |context, any_case, behind| {
                Overlay::compile(&context, any_case, &overlaid, &common_blocks, behind, &mut limits)
            });
            self.may_queue |= domain.features.queues;
            self.may_wait_for_slots |= domain.features.waits_for_slots;
            self.may_wait |= domain.may_wait();
        }
        let (mut reserved_at_most, mut greatest) =
            (mem::take(&mut self.reserved_at_most), mem::take(&mut self.greatest));
        for (_, limit) in self.rule_limits_unsorted() {
            // Also of limits that reserve nothing any more: reservations from before a change of the rules may be open.
            reserved_at_most.extend(limit.counted_at_most().map(|most| (limit.id, most)));
            if limit.schedule.is_some() {
                greatest.insert(limit.id, limit.greatest().algorithm.clone());
            }
        }
        (self.reserved_at_most, self.greatest) = (reserved_at_most, greatest);
        let Registrar { table, used, beside, .. } = limits;
        (self.limits, self.named, self.beside) = (table, used.into(), beside.into());
    }

    fn build(sources: &[Source], options: &LoadOptions, former: &Self) -> Result<Self, RuleErrors> {
        let problems = Problems::default();
        let mut limits = Registrar::new(former.limits.clone(), options.series_max, &former.beside);
        let mut domains: BTreeMap<Arc<str>, DeclaredDomain> = BTreeMap::new();
        let mut overlaid = DeclaredOverlay::default();
        let unwrapped: Vec<Source>;
        let sources = if sources.iter().any(may_have_rule_files) {
            unwrapped = sources.iter().cloned().flat_map(rule_files).collect();
            &unwrapped
        } else {
            sources
        };
        let documents = ExtensionDocuments::read(sources, &problems);
        let extensions = documents.extensions(options, &problems);
        for (index, source) in sources.iter().enumerate() {
            if documents.contain(index) {
                continue;
            }
            if source.id.is_overlay() {
                overlaid.read(source, &problems);
                continue;
            }
            for declared in grammar::domains(source, options, &extensions, &mut limits, &problems) {
                add_domain(&mut domains, declared, options, &problems);
            }
        }
        let without_effect = extensions.without_effect(|name| domains.contains_key(name));
        let mut compiled = Vec::with_capacity(domains.len());
        for (name, declared) in domains {
            let mut of_descriptors = Vec::new();
            declared.descriptors.iter().for_each(|one| one.add_own_limits(&mut of_descriptors));
            let kind = (options.semantics, declared.is_shared);
            let own = declared.own_limits.as_ref().map(|(settings, _)| *settings);
            let own_limits = OwnLimits::new(&name, own, &of_descriptors, kind, &mut limits);
            let rules = DomainRules::compile(declared, own_limits, options.semantics, &problems);
            compiled.push((name.into(), rules));
        }
        let warnings = problems.take_warnings().into();
        problems.or(())?;
        let domains = compiled.into_iter().collect();
        let mut rules = Self { domains, without_effect, warnings, ..Self::default() };
        rules.set_overlays(overlaid, options.semantics, limits);
        Ok(rules)
    }

    /// The extensions that no rule has, each with its place and the reason.
    pub fn extensions_without_effect(&self) -> &[RuleError] {
        &self.without_effect
    }

    /// Overrides that a shared store cannot count as they are declared: they count by the default algorithm.
    pub fn overrides_not_shareable(&self) -> Vec<String> {
        let overlays = self.domains().filter_map(DomainRules::overlay);
        let all = overlays.flat_map(|overlay| overlay.not_shareable());
        all.map(|(id, reason)| {
            format!("the override {id} counts by another algorithm than it names: {reason}")
        })
        .collect()
    }

    /// Warnings about valid rules: what surely does not do what it looks like, descriptors that never apply, networks inside others, hours
    /// that overlap, blocks in files for unknown domains and keys. In the order of the documents.
    pub fn warnings(&self) -> Vec<RuleError> {
        let of_domains = self.domains().flat_map(DomainRules::warnings);
        let mut warnings: Vec<RuleError> =
            self.warnings.iter().chain(&self.block_warnings).cloned().chain(of_domains).collect();
        warnings.sort_by(|one, other| one.origin.cmp(&other.origin));
        warnings
    }

    /// The rules of a domain.
    #[inline]
    pub fn domain(&self, name: &str) -> Option<&DomainRules> {
        self.domains.get(name)
    }

    /// Whether any rule may queue requests.
    pub fn may_queue(&self) -> bool {
        self.may_queue
    }

    /// The rules of a domain, if any of them may queue requests. Costs one branch if no rule of any domain does.
    #[inline]
    pub fn queueing_domain(&self, name: &str) -> Option<&DomainRules> {
        if self.may_queue { self.domain(name).filter(|domain| domain.features.queues) } else { None }
    }

    /// The rules of a domain, if any of them may queue requests or have them wait for slots. Costs one branch if no rule of any domain
    /// does.
    #[inline]
    pub fn waiting_domain(&self, name: &str) -> Option<&DomainRules> {
        let may_wait = |domain: &&DomainRules| domain.features.queues || domain.features.waits_for_slots;
        if self.may_queue || self.may_wait_for_slots { self.domain(name).filter(may_wait) } else { None }
    }

    /// Whether decisions of this domain may take time. Costs one branch if those of no domain do.
    #[inline]
    pub fn may_wait(&self, domain: &str) -> bool {
        self.may_wait && self.domain(domain).is_some_and(DomainRules::may_wait)
    }

    /// Every domain, by name.
    pub fn domains(&self) -> impl Iterator<Item = &DomainRules> {
        let mut domains: Vec<_> = self.domains.iter().map(|(_, rules)| rules).collect();
        domains.sort_unstable_by_key(|rules| rules.name());
        domains.into_iter()
    }

    /// Blocks that files declare, if their domains exist: first those of every domain, then those of each.
    pub fn file_blocks(&self) -> impl Iterator<Item = &Block> {
        let overlays: Vec<&Overlay> = self.domains().filter_map(DomainRules::overlay).collect();
        let common = overlays.first().map(|overlay| overlay.common_blocks());
        let own = overlays.into_iter().flat_map(Overlay::own_blocks);
        common.into_iter().flatten().chain(own).filter(|block| block.is_in_file)
    }

    /// Stores in each limit what `start` makes of the domain's name, whether it is shared, the limit and the entries leading to it.
    pub fn set_key_prefixes(
        &mut self,
        mut start: impl FnMut(&str, bool, &RuleLimit, &[DeclaredEntry<'_>]) -> Option<KeyPrefix>,
    ) {
        self.domains.iter_mut().for_each(|(_, domain)| domain.set_key_prefixes(&mut start));
    }

    /// The identities of the bans of all limits.
    pub(crate) fn bans(&self) -> impl Iterator<Item = &LimitIdentity> {
        self.beside.iter().filter(|beside| beside.info.algorithm.is_ban()).map(|ban| &ban.info.identity)
    }

    /// The most hits of a counter whose limit reserves, debts included; none if nothing bounds them.
    pub(crate) fn reserved_at_most(&self, limit: LimitId) -> Option<u64> {
        self.reserved_at_most.get(&limit).copied()
    }

    /// The arithmetic by which ends and renewals change a counter of this limit, if not its own: that of the greatest limit of its
    /// schedule, so that a log keeps the times of as many hits as it may admit.
    pub(crate) fn greatest(&self, limit: LimitId) -> Option<&Algorithm> {
        self.greatest.get(&limit)
    }

    /// The name of one of these rules' limits.
    pub fn limit_name(&self, limit: &RuleLimit) -> &LimitName {
        &self.named[limit.index as usize].name
    }

    /// The number of limits that have no series of their own in metrics.
    pub fn limits_without_series(&self) -> usize {
        self.named.iter().filter(|named| named.series.id == SeriesId::OTHER).count()
    }

    /// The identity of one of these rules' limits.
    pub(super) fn identity(&self, limit: &RuleLimit) -> &LimitIdentity {
        &self.named[limit.index as usize].limit.info.identity
    }

    /// Every limit with its rule, by domain and in the order of the files.
    pub fn rule_limits(&self) -> impl Iterator<Item = (&Rule, &RuleLimit)> {
        let rules = self.domains().flat_map(DomainRules::rules);
        rules.flat_map(|rule| rule.limits.iter().map(move |limit| (rule, limit)))
    }

    /// Every limit with its rule, in no particular order.
    pub fn rule_limits_unsorted(&self) -> impl Iterator<Item = (&Rule, &RuleLimit)> {
        let rules = self.domains.iter().flat_map(|(_, domain)| domain.rules_unsorted());
        rules.flat_map(|rule| rule.limits.iter().map(move |limit| (rule, limit)))
    }

    /// The limits of requests in flight, those of overrides too, with their series.
    pub fn slot_limits(&self) -> impl Iterator<Item = (&LimitIdentity, SeriesId)> {
        let of_slots = self.named.iter().filter(|named| named.limit.info.algorithm.holds_slots());
        of_slots.map(|named| (&named.limit.info.identity, named.series.id))
    }

    /// Every limit by its number, including those of former rules.
    pub fn limits(&self) -> &LimitTable {
        &self.limits
    }
}

/// Adds a file's part of a domain to those of the files before it.
fn add_domain(
    domains: &mut BTreeMap<Arc<str>, DeclaredDomain>,
    declared: DeclaredDomain,
    options: &LoadOptions,
    problems: &Problems,
) {
    let mut first = match domains.entry(Arc::clone(&declared.name)) {
        btree_map::Entry::Vacant(place) => {
            place.insert(declared);
            return;
        }
        btree_map::Entry::Occupied(first) => first,
    };
    let first_origin = &first.get().origin;
    if !options.merge_domains {
        let message = format!(
            "{:?} is already declared at {first_origin}; put its descriptors there, or load with --merge-domains",
            declared.name,
        );
        problems.at(&declared.origin, "domain", message);
        return;
    }
    if first.get().limits.is_empty() != declared.limits.is_empty() {
        let message = format!(
            "has limits with conditions in one file and descriptors in the other, at {first_origin}; write `when` in its \
             descriptors, or give one of the two another domain"
        );
        problems.at(&declared.origin, "domain", message);
        return;
    }
    if first.get().is_shared != declared.is_shared {
        let message = format!("differs from that of the same domain at {first_origin}; write it in both");
        problems.at(&declared.origin, "counters", message);
    }
    match (&first.get().own_limits, declared.own_limits) {
        (Some((one, at)), Some((other, origin))) if *one != other => {
            let message = format!("differs from that of the same domain at {at}; write one of them");
            problems.at(&origin, "request_limits", message);
        }
        (None, Some(own)) => first.get_mut().own_limits = Some(own),
        (_, _) => {}
    }
    match (&first.get().quotas, declared.quotas) {
        (Some(one), Some(other)) if one.settings != other.settings => {
            let message =
                format!("differs from that of the same domain at {}; write one of them", one.origin);
            problems.at(&other.origin, "rlqs", message);
        }
        (None, Some(quotas)) => first.get_mut().quotas = Some(quotas),
        (_, _) => {}
    }
    first.get_mut().descriptors.extend(declared.descriptors);
    first.get_mut().limits.extend(declared.limits);
}

#[cfg(test)]
mod tests;
