//! Declarations of a rule file.

use crate::rules::{
    OwnLimitSettings, QuotaSettings, Redaction, conditions::ConditionalLimit, error::Origin,
    pattern::Pattern, rule::Rule, semantics::Semantics, value_set::ValueSet,
};
use std::sync::Arc;

/// One file's part of a domain.
pub(in crate::rules) struct DeclaredDomain {
    pub(in crate::rules) name: Arc<str>,
    pub(in crate::rules) origin: Origin,
    pub(in crate::rules) descriptors: Vec<Declared>,
    /// Limits that apply by conditions: those of a LIMITS_FILE. A domain has these or descriptors.
    pub(in crate::rules) limits: Vec<ConditionalLimit>,
    /// Whether its counters are in a shared store.
    pub(in crate::rules) is_shared: bool,
    /// How it is served over RLQS; none if it is not.
    pub(in crate::rules) quotas: Option<DeclaredQuotas>,
    /// How limits in requests count, and where that is stated.
    pub(in crate::rules) own_limits: Option<(OwnLimitSettings, Origin)>,
}

/// How a domain is served over RLQS.
pub(in crate::rules) struct DeclaredQuotas {
    pub(in crate::rules) settings: QuotaSettings,
    pub(in crate::rules) origin: Origin,
    /// Whether the counters of the domain are in a shared store.
    pub(in crate::rules) is_shared: bool,
    /// Whether counters there are leased.
    pub(in crate::rules) is_leased: bool,
    pub(in crate::rules) semantics: Semantics,
}

/// One descriptor with those below it.
pub(in crate::rules) struct Declared {
    pub(in crate::rules) key: DeclaredKey,
    pub(in crate::rules) value: DeclaredValue,
    /// Whether all values that match share one counter.
    pub(in crate::rules) shares_counter: bool,
    pub(in crate::rules) rule: Rule,
    pub(in crate::rules) below: Vec<Declared>,
    /// How the decision log writes values of the key; none if the descriptor does not declare it.
    pub(in crate::rules) redaction: Option<Redaction>,
    /// The keys and indices that lead to it in the file, for messages.
    pub(in crate::rules) path_in_file: String,
}

/// The keys of a descriptor.
pub(in crate::rules) enum DeclaredKey {
    /// This key.
    Exact(Box<str>),
    /// Keys that the pattern matches.
    Wildcard(Pattern),
}

/// The values of a descriptor's key.
#[derive(Clone, Debug)]
pub(in crate::rules) enum DeclaredValue {
    /// Values that no other descriptor of the key matches.
    Any,
    /// This value.
    Exact(Box<str>),
    /// Values that the pattern matches, with its text as written; all of them share one counter, or each has its own.
    Wildcard { pattern: Pattern, text: Box<str>, shared: bool },
    /// Values of the set; only for an exact key.
    Set(Box<ValueSet>),
}

impl Declared {
    /// Adds the settings of limits in requests, of this descriptor and those below it.
    pub(in crate::rules) fn add_own_limits(&self, settings: &mut Vec<OwnLimitSettings>) {
        settings.extend(self.rule.own_limits.as_deref());
        self.below.iter().for_each(|below| below.add_own_limits(settings));
    }

    /// The text by which the reference server finds it.
    pub(in crate::rules) fn joined(&self) -> String {
        joined(&self.key, &self.value)
    }
}

/// `key_value`, or the key alone.
pub(super) fn joined(key: &DeclaredKey, value: &DeclaredValue) -> String {
    let key = key.as_str();
    match value {
        DeclaredValue::Any => key.to_owned(),
        DeclaredValue::Exact(value) => format!("{key}_{value}"),
        DeclaredValue::Wildcard { text, .. } => format!("{key}_{text}"),
        // The reference server has no sets: metrics show the entry as a key alone.
        DeclaredValue::Set(set) if set.shares_counter => format!("{key}_{}", set.label()),
        DeclaredValue::Set(_) => key.to_owned(),
    }
}

impl DeclaredKey {
    /// As it is written.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Exact(key) => key,
            Self::Wildcard(pattern) => pattern.as_str(),
        }
    }
}

impl DeclaredValue {
    /// Whether the descriptor matches this value.
    pub(in crate::rules) fn matches(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => **exact == *value,
            Self::Wildcard { pattern, .. } => pattern.matches(value),
            // Called for wildcard keys, which have no sets.
            Self::Set(_) => false,
        }
    }

    /// Whether both match the same values.
    pub(in crate::rules) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, Self::Any) => true,
            (Self::Exact(one), Self::Exact(other)) => one == other,
            (Self::Wildcard { pattern: one, .. }, Self::Wildcard { pattern: other, .. }) => one == other,
            _ => false,
        }
    }
}
