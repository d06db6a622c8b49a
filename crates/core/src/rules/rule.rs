//! A rule: the limits and options of one node of the rule tree, for the descriptors that match it.

use super::{Origin, own_limits::OwnLimitSettings, rule_limit::RuleLimit, semantics::Semantics};
use crate::{
    limit::{RuleInfo, Window},
    prefetch::prefetch,
};
use smallvec::SmallVec;
use std::sync::Arc;

/// A limit that another limit replaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replaced {
    /// Its name.
    pub name: Box<str>,
    /// Index in the rule of the limit that replaces it where that limit applies; none for an unlimited rule.
    pub by: Option<u32>,
}

/// A node of the tree. A rule that has no limits and is not unlimited only lists its descriptors: OK.
///
/// The fields that most decisions read are first and adjacent: with many rules, none is in a near cache.
#[derive(Clone, PartialEq, Debug)]
#[repr(C)]
pub struct Rule {
    /// All must admit. Empty for an unlimited rule and for an allow-list entry.
    pub limits: SmallVec<[RuleLimit; 1]>,
    /// See [`Rule::plain_limit`]; computed once, from fields in other cache lines.
    pub(super) has_plain_limit: bool,
    /// Whether [`RuleInfo::shown_values`] has any.
    pub shows_values: bool,
    /// Not limited, and reported as such.
    pub unlimited: bool,
    /// Nothing is denied.
    pub shadow: bool,
    /// Description of the rule for responses: its path, and options.
    pub info: RuleInfo,
    /// Place at which the descriptor is declared.
    pub origin: Origin,
    /// Place of the extension with further keys, in another document.
    pub extended_at: Option<Box<Origin>>,
    /// Limits that do not apply to a request that matches this rule.
    pub replaces: Box<[Replaced]>,
    /// Metrics show every value of the descriptor, not only those that the rule names.
    pub detailed_metric: bool,
    /// Metrics show the value of this rule's entry, even if the rule names none.
    pub value_to_metric: bool,
    /// Settings of limits that requests to this rule bring along; none if the domain's settings apply.
    pub(super) own_limits: Option<Box<OwnLimitSettings>>,
    /// Index of the entry whose value chooses the slot of the counters in a cluster; all entries choose it if none.
    pub shard_by: Option<u32>,
    /// Whether shared counters of the rule are never leased: the store makes every decision.
    pub is_never_leased: bool,
}

impl Rule {
    /// The rule of this path with these limits, and without any option.
    pub(super) fn new(path: Arc<str>, limits: SmallVec<[RuleLimit; 1]>, origin: Origin) -> Self {
        let info = RuleInfo {
            path,
            declared_at: origin.to_string().into(),
            queues: limits.iter().any(|limit| limit.algorithm.queueing().is_some()),
            holds_slots: limits.iter().any(|limit| limit.algorithm.holds_slots()),
            ..RuleInfo::default()
        };
        Self {
            limits,
            has_plain_limit: false,
            shows_values: false,
            unlimited: false,
            shadow: false,
            info,
            origin,
            extended_at: None,
            replaces: Box::default(),
            detailed_metric: false,
            value_to_metric: false,
            own_limits: None,
            shard_by: None,
            is_never_leased: false,
        }
    }

    /// The rule with `has_plain_limit` computed.
    pub(super) fn with_plain_limit(mut self) -> Self {
        let is_plain = !self.shadow && !self.info.quota && !self.unlimited;
        self.has_plain_limit = is_plain && matches!(&*self.limits, [limit] if limit.is_plain());
        self
    }

    /// The origin, and the extension's, as shown to people and tools.
    pub fn declared_at(&self) -> String {
        match &self.extended_at {
            None => self.origin.to_string(),
            Some(extension) => format!("{}, extended at {extension}", self.origin),
        }
    }

    /// Settings of limits that requests to this rule bring along; none if the domain's settings apply.
    pub fn own_limits(&self) -> Option<&OwnLimitSettings> {
        self.own_limits.as_deref()
    }

    /// Names of the limits that it replaces.
    pub fn replaced_names(&self) -> Vec<&str> {
        self.replaces.iter().map(|replaced| &*replaced.name).collect()
    }

    /// The names of its limits that replace others, each with a name that it replaces.
    pub(super) fn replacements(&self) -> impl Iterator<Item = (&str, &str)> {
        self.replaces.iter().filter_map(|replaced| {
            let by = self.limits.get(replaced.by? as usize)?;
            Some((&*by.name, &*replaced.name))
        })
    }

    /// Names of the limits that it replaces, unless `applies` is false for the replacing limit.
    pub(crate) fn replaced(&self, applies: impl Fn(&RuleLimit) -> bool) -> impl Iterator<Item = &str> {
        let limit = |replaced: &Replaced| self.limits.get(replaced.by? as usize);
        let replaces = move |replaced: &&Replaced| limit(replaced).is_none_or(&applies);
        self.replaces.iter().filter(replaces).map(|replaced| &*replaced.name)
    }

    /// Prefetches the fields that a decision reads.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(&self.limits);
        prefetch(&self.has_plain_limit);
    }

    /// The plain limit of a rule: its only limit, which denies requests over it and counts only admitted hits, in a state of
    /// two words.
    #[inline]
    pub fn plain_limit(&self) -> Option<&RuleLimit> {
        if self.has_plain_limit { self.limits.first() } else { None }
    }

    /// The limit of a rule whose shared counters may be leased: its only limit, which denies requests over it, counts only admitted
    /// hits, and queues none.
    pub fn leasable_limit(&self) -> Option<&RuleLimit> {
        let is_plain = !self.shadow && !self.info.quota && !self.unlimited;
        match &*self.limits {
            [limit] if is_plain && !limit.is_local && !self.is_never_leased && limit.counts_plainly() => {
                Some(limit)
            }
            _ => None,
        }
    }

    /// Whether each server counts for itself, even if the counters of the domain are in a shared store.
    pub fn is_local(&self) -> bool {
        self.limits.iter().any(|limit| limit.is_local)
    }

    /// `counters` as a rule file has it; `default` if it does not.
    pub fn counters_text(&self) -> &'static str {
        if self.is_local() { "local" } else { "default" }
    }

    /// `lease` as a rule file has it.
    pub fn lease_text(&self) -> &'static str {
        if self.is_never_leased { "off" } else { "auto" }
    }

    /// The semantics of its limits.
    pub fn semantics(&self) -> Semantics {
        self.limits.first().map_or_else(Semantics::default, |limit| limit.semantics)
    }

    /// The limit of this rule that an override's limit replaces, given the override's windows and the limit's index: the limit of the same
    /// window, else the limit in the same position, unless another limit of the override replaces that.
    pub fn overridden_limit(&self, index: usize, windows: &[Window]) -> Option<&RuleLimit> {
        let window = *windows.get(index)?;
        let of_window = self.limits.iter().find(|limit| limit.window == window);
        let of_position = || self.limits.get(index).filter(|limit| !windows.contains(&limit.window));
        of_window.or_else(of_position)
    }

    /// The limits of this rule that no limit of an override with these windows replaces. While the override is in force, they do not apply.
    pub fn limits_not_overridden(&self, windows: &[Window]) -> impl Iterator<Item = &RuleLimit> {
        let is_replaced = |limit: &RuleLimit| {
            (0..windows.len())
                .filter_map(|index| self.overridden_limit(index, windows))
                .any(|replaced| std::ptr::eq(replaced, limit))
        };
        self.limits.iter().filter(move |limit| !is_replaced(limit))
    }

    /// Whether hits count under it: not if it is a block, or an override without limits to count under.
    pub(crate) fn is_counted(&self) -> bool {
        self.limits.iter().any(|limit| limit.continues)
    }

    /// Whether it is an override or a block that denies everything, whatever other quotas of the request admit.
    pub(crate) fn denies_all(&self) -> bool {
        self.is_overlaid() && !self.unlimited && !self.is_counted()
    }

    /// Whether it is an override or a block.
    pub(crate) fn is_overlaid(&self) -> bool {
        self.origin.source.is_overlay()
    }

    /// Whether it has a limit of requests in flight.
    pub fn holds_slots(&self) -> bool {
        self.limits.iter().any(|limit| limit.algorithm.holds_slots())
    }

    /// Whether it has a limit that charges an estimate until the cost is known.
    pub fn reserves(&self) -> bool {
        self.limits.iter().any(|limit| limit.reserve.is_some())
    }

    /// Whether its requests may wait for slots. Those of a quota do not, since another quota may admit them.
    pub fn waits_for_slots(&self) -> bool {
        !self.shadow
            && !self.info.quota
            && self.limits.iter().any(|limit| limit.algorithm.slot_queue().is_some())
    }

    /// Whether it may queue requests.
    pub fn may_queue(&self) -> bool {
        !self.shadow && self.limits.iter().any(|limit| limit.algorithm.queueing().is_some())
    }
}
