//! The rule that a descriptor of a request reaches.

use super::compat::Compat;
use crate::{
    limit::RuleInfo,
    rules::{ConditionalLimits, Rule, RuleLimit, Semantics},
};
use smallvec::SmallVec;

/// The rule that a descriptor matched.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Reached<'r> {
    /// No rule, or a rule without a limit.
    Nothing,
    /// A rule with `unlimited: true`.
    Unlimited(&'r Rule),
    /// A rule with limits.
    Rule(&'r Rule),
    /// The limit in the request itself.
    RequestLimit,
    /// Limits that apply by conditions: the descriptor has the limits of the whole request.
    Conditional(&'r ConditionalLimits),
    /// No rule: the descriptor renews what is no longer held, which denies the request.
    NotHeld,
}

impl<'r> Reached<'r> {
    /// Names of the limits that this rule replaces, unless `applies` is false for the replacing limit.
    pub(super) fn replaces(self, applies: impl Fn(&RuleLimit) -> bool) -> impl Iterator<Item = &'r str> {
        let rule = match self {
            Self::Rule(rule) | Self::Unlimited(rule) => Some(rule),
            Self::Nothing | Self::RequestLimit | Self::Conditional(_) | Self::NotHeld => None,
        };
        rule.into_iter().flat_map(move |rule| rule.replaced(&applies).collect::<SmallVec<[&str; 4]>>())
    }

    /// Whether the counters of the rule are local although those of its domain are shared.
    pub(super) fn is_local(self) -> bool {
        matches!(self, Self::Rule(rule) if rule.is_local())
    }

    /// Whether the rule is in shadow mode: it never denies.
    pub(super) fn is_shadow(self) -> bool {
        matches!(self, Self::Rule(rule) if rule.shadow)
    }

    /// Whether requests wait for slots of its limits, rather than being denied at once.
    pub(super) fn waits_for_slots(self, compat: Compat) -> bool {
        !self.is_shadow() && !self.is_quota(compat)
    }

    /// Facts about the rule of one of its limits that responses may carry.
    pub(super) fn rule_info(self, limit: &RuleLimit) -> Option<&'r RuleInfo> {
        match self {
            Self::Rule(rule) => Some(&rule.info),
            Self::Conditional(limits) => limits.rule_of(limit).map(|rule| &rule.info),
            Self::Nothing | Self::Unlimited(_) | Self::RequestLimit | Self::NotHeld => None,
        }
    }

    /// Whether the rule is a quota, by its own mode or by that of all rules: it denies only if every quota of the request is over its
    /// limit. A shadow rule is no quota; with the semantics of the reference server it is a quota that is never over. Overrides and blocks
    /// that deny everything are no quotas. An override that admits everything instead of a quota is a quota that is never over.
    pub(super) fn is_quota(self, compat: Compat) -> bool {
        match self {
            Self::NotHeld => false,
            Self::Unlimited(rule) => rule.is_overlaid() && (rule.info.quota || compat.quota_mode),
            Self::Rule(rule) if rule.shadow && rule.semantics() == Semantics::Exact => false,
            Self::Rule(rule) if rule.info.quota => true,
            Self::Rule(rule) if compat.quota_mode && rule.denies_all() => false,
            Self::Nothing | Self::Rule(_) | Self::RequestLimit | Self::Conditional(_) => compat.quota_mode,
        }
    }
}
