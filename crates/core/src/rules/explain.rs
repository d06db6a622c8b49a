//! Explanations of how the rules apply to a request, for people and tools.
//!
//! Invariant: an explanation agrees with the decisions of the limiter (`tests/it/explain.rs`).

use super::{
    ConditionalLimit, ConditionalLimits, DomainRules, Network, Pattern, Rule, RuleLimit, SharedForm,
    ValueSet, conditions, tree::Level,
};
use crate::limit::{Entry, Override};
use std::{borrow::Cow, fmt};

/// A descriptor to explain, with the limit of its own that a request may send along.
#[derive(Clone, PartialEq, Debug)]
pub struct ExplainedDescriptor<'e> {
    /// The entries.
    pub entries: &'e [Entry<'e>],
    /// The request's own limit, in the place of the rules.
    pub own_limit: Option<Override>,
}

/// Application of the rules to one descriptor of a request.
#[derive(Clone, PartialEq, Debug)]
pub struct Applied<'r> {
    /// The rule of the descriptor and how it was found; none if the request's own limit stands in its place.
    pub matching: Option<Explanation<'r>>,
    /// The limits of the rule, or the request's own.
    pub limits: Vec<AppliedLimit<'r>>,
}

/// A limit of a descriptor.
#[derive(Clone, PartialEq, Debug)]
pub struct AppliedLimit<'r> {
    /// The limit.
    pub limit: Cow<'r, RuleLimit>,
    /// The rule that replaces it in this request: then it does not apply, and counts nothing.
    pub replaced_by: Option<&'r Rule>,
    /// Whether its `when` does not hold for this request: likewise.
    pub is_unmet: bool,
}

impl<'r> Applied<'r> {
    /// The rule of the descriptor, if it has one.
    pub fn rule(&self) -> Option<&'r Rule> {
        match &self.matching.as_ref()?.outcome {
            Outcome::Reached(rule) => Some(rule),
            Outcome::Conditional(limits) => limits.first().map(|limit| &limit.rule),
            _ => None,
        }
    }

    /// The limits that apply.
    pub fn in_force(&self) -> impl Iterator<Item = &RuleLimit> {
        let applies = |limit: &&AppliedLimit<'_>| limit.replaced_by.is_none() && !limit.is_unmet;
        self.limits.iter().filter(applies).map(|limit| &*limit.limit)
    }

    /// Whether a limit applies, whatever is done when it is exceeded.
    pub fn is_limited(&self) -> bool {
        self.in_force().next().is_some() || self.is_with_request()
    }

    /// Whether its limits are those of another descriptor, which has those of the request.
    fn is_with_request(&self) -> bool {
        self.matching.as_ref().is_some_and(|matching| matching.outcome == Outcome::WithRequest)
    }

    /// Whether exceeding a limit is counted and reported, but denies nothing.
    pub fn is_shadow(&self) -> bool {
        self.is_limited() && self.rule().is_some_and(|rule| rule.shadow)
    }

    /// Whether it denies only if every other quota descriptor of the request is over its limit too.
    pub fn is_quota(&self) -> bool {
        self.is_limited() && self.rule().is_some_and(|rule| rule.info.quota)
    }
}

impl DomainRules {
    /// Applies the rules to a request with these descriptors, and explains each step.
    pub fn explain_request(&self, descriptors: &[ExplainedDescriptor<'_>]) -> Vec<Applied<'_>> {
        if let Some(limits) = self.conditional() {
            return self.explain_conditional(limits, descriptors);
        }
        let mut all: Vec<Applied<'_>> = descriptors.iter().map(|one| self.apply(one)).collect();
        let entries: Vec<&[Entry<'_>]> = descriptors.iter().map(|descriptor| descriptor.entries).collect();
        for limit in all.iter_mut().flat_map(|applied| &mut applied.limits) {
            let when = limit.limit.when.as_ref();
            limit.is_unmet = when.is_some_and(|when| !conditions::holds_for(when, &limit.limit, &entries));
        }
        let is_in_force = |applied: &&Applied<'_>| {
            applied.limits.is_empty() || applied.limits.iter().any(|limit| !limit.is_unmet)
        };
        let rules: Vec<&Rule> = all.iter().filter(is_in_force).filter_map(Applied::rule).collect();
        for limit in all.iter_mut().flat_map(|applied| &mut applied.limits) {
            let name = &limit.limit.name;
            let replaces = |rule: &&Rule| rule.replaces.contains(name);
            limit.replaced_by = rules.iter().copied().find(replaces).filter(|_| !name.is_empty());
        }
        all
    }

    /// The limits that apply by conditions are those of the first descriptor without an override or a block.
    fn explain_conditional<'r>(
        &'r self,
        limits: &'r ConditionalLimits,
        descriptors: &[ExplainedDescriptor<'_>],
    ) -> Vec<Applied<'r>> {
        let entries: Vec<&[Entry<'_>]> = descriptors.iter().map(|descriptor| descriptor.entries).collect();
        let of_request = limits.applied(&entries);
        let of_others =
            if of_request.is_empty() { Outcome::Conditional(Vec::new()) } else { Outcome::WithRequest };
        let mut of_request = Some(Outcome::Conditional(of_request));
        let applied = |outcome: Outcome<'r>| {
            let limits: Vec<&RuleLimit> = match &outcome {
                Outcome::Reached(rule) if !rule.unlimited => rule.limits.iter().collect(),
                Outcome::Conditional(limits) => limits.iter().map(|limit| limit.limit()).collect(),
                _ => Vec::new(),
            };
            let limit =
                |limit| AppliedLimit { limit: Cow::Borrowed(limit), replaced_by: None, is_unmet: false };
            let limits = limits.into_iter().map(limit).collect();
            Applied { matching: Some(Explanation { steps: Vec::new(), outcome }), limits }
        };
        let outcome = |entries: &[Entry<'_>]| match self.overlaid(entries) {
            Some(rule) => Outcome::Reached(rule),
            None => of_request.take().unwrap_or_else(|| of_others.clone()),
        };
        entries.into_iter().map(outcome).map(applied).collect()
    }

    fn apply(&self, descriptor: &ExplainedDescriptor<'_>) -> Applied<'_> {
        if let Some(own) = descriptor.own_limit
            && self.overlaid(descriptor.entries).is_none()
        {
            let limit = AppliedLimit {
                limit: Cow::Owned(self.override_limit(own)),
                replaced_by: None,
                is_unmet: false,
            };
            return Applied { matching: None, limits: vec![limit] };
        }
        let matching = self.explain(descriptor.entries);
        let limits = match matching.outcome {
            Outcome::Reached(rule) if !rule.unlimited => &rule.limits[..],
            _ => &[],
        };
        let applied =
            |limit| AppliedLimit { limit: Cow::Borrowed(limit), replaced_by: None, is_unmet: false };
        Applied { limits: limits.iter().map(applied).collect(), matching: Some(matching) }
    }
}

/// Explains the matching of a descriptor, entry by entry: its rule, or the reason why it has none.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation<'r> {
    /// One for each entry that matched, in order.
    pub steps: Vec<Step<'r>>,
    /// The result.
    pub outcome: Outcome<'r>,
}

/// An entry that matched.
#[derive(Clone, PartialEq, Debug)]
pub struct Step<'r> {
    /// The entry's key.
    pub key: String,
    /// The entry's value.
    pub value: String,
    /// The kind of match.
    pub matched: Matched<'r>,
    /// The rule that it selects.
    pub rule: &'r Rule,
}

/// The kind of match of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matched<'r> {
    /// Key and value.
    Exact,
    /// The key, and a value with wildcards.
    Wildcard {
        /// The value with wildcards.
        pattern: &'r Pattern,
        /// All values that match share one counter.
        shared: bool,
    },
    /// A key with wildcards.
    KeyWildcard {
        /// The key with wildcards.
        key: &'r Pattern,
        /// The value with wildcards, if all values that match it share one counter.
        shared: Option<&'r Pattern>,
    },
    /// The key, and one of the values of a set.
    Set {
        /// The set.
        values: &'r ValueSet,
        /// The network that has the value, if it is a set of networks.
        network: Option<&'r Network>,
    },
    /// A descriptor without a value.
    KeyAlone,
}

impl<'r> Matched<'r> {
    /// The form of the value in keys of counters, and the text that stands for it; none if that is the value as it is.
    #[inline]
    pub(super) fn shared(self) -> Option<(SharedForm, &'r str)> {
        let pattern = match self {
            Self::Wildcard { pattern, shared: true } => pattern,
            Self::KeyWildcard { shared, .. } => shared?,
            Self::Set { values, .. } => return values.form(),
            Self::Wildcard { .. } | Self::Exact | Self::KeyAlone => return None,
        };
        Some((SharedForm::Pattern, pattern.as_str()))
    }
}

/// The result of matching a descriptor.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome<'r> {
    /// The last entry selects this rule: it applies.
    Reached(&'r Rule),
    /// The descriptor has the limits of the request that apply by conditions; none if no condition holds.
    Conditional(Vec<&'r ConditionalLimit>),
    /// Another descriptor has the limits of the request.
    WithRequest,
    /// The descriptor has no entries.
    NoEntries,
    /// No descriptor of the level has the entry's key.
    NoSuchKey {
        /// Which entry, by index.
        entry: usize,
        /// Its key.
        key: String,
        /// The keys of that level, sorted; none if there is no such level.
        known: Vec<&'r str>,
    },
    /// Descriptors of the level have the key, but none matches the value.
    NoSuchValue {
        /// Which entry, by index.
        entry: usize,
        /// Its key.
        key: String,
        /// Its value.
        value: String,
        /// The exact values of the key, sorted, then its wildcards in their order, and the texts that stand for sets.
        known: Vec<&'r str>,
    },
}

impl<'r> Explanation<'r> {
    pub(super) fn new(root: &'r Level, entries: &[Entry<'_>]) -> Self {
        let mut steps: Vec<Step<'r>> = Vec::with_capacity(entries.len());
        let mut level = root;
        for (index, entry) in entries.iter().enumerate() {
            let (key, value) = (entry.key.to_owned(), entry.value.to_owned());
            let Some((matched, node)) = level.step(entry) else {
                let outcome = match level.known_values(entry.key) {
                    Some(known) => Outcome::NoSuchValue { entry: index, key, value, known },
                    None => Outcome::NoSuchKey { entry: index, key, known: level.keys() },
                };
                return Self { steps, outcome };
            };
            steps.push(Step { key, value, matched, rule: &node.rule });
            level = &node.below;
        }
        let outcome = steps.last().map_or(Outcome::NoEntries, |step| Outcome::Reached(step.rule));
        Self { steps, outcome }
    }
}

impl fmt::Display for Matched<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("key and value"),
            Self::Wildcard { pattern, shared: false } => write!(f, "the wildcard {pattern}"),
            Self::Wildcard { pattern, shared: true } => {
                write!(f, "the wildcard {pattern}, with one counter for all its values")
            }
            Self::KeyWildcard { key, shared: None } => write!(f, "the wildcard key {key}"),
            Self::KeyWildcard { key, shared: Some(value) } => {
                write!(f, "the wildcard key {key}, with one counter for all values {value}")
            }
            Self::Set { values, network: Some(network) } if values.has_several_networks() => {
                write!(f, "the network {network}, of {values}")
            }
            Self::Set { values, .. } => values.fmt(f),
            Self::KeyAlone => f.write_str("the key alone"),
        }
    }
}

impl fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reached(rule) if rule.unlimited => write!(f, "{}: unlimited", rule.info.path),
            Self::Reached(rule) if rule.limits.is_empty() => {
                write!(f, "{}: a rule without a limit", rule.info.path)
            }
            Self::Reached(rule) => write!(f, "{}: limited", rule.info.path),
            Self::Conditional(limits) if limits.is_empty() => {
                f.write_str("no limit: the conditions of none hold, or a variable has no value")
            }
            Self::Conditional(limits) => {
                let paths: Vec<&str> = limits.iter().map(|limit| &*limit.rule.info.path).collect();
                write!(f, "limited: {}", paths.join("; "))
            }
            Self::WithRequest => f.write_str("its limits are those of the request, listed above"),
            Self::NoEntries => f.write_str("no rule: the descriptor has no entries"),
            Self::NoSuchKey { key, known, .. } if known.is_empty() => {
                write!(f, "no rule: the rules end here, so none has the key {key}")
            }
            Self::NoSuchKey { key, known, .. } => {
                write!(f, "no rule: no descriptor here has the key {key}; known keys: ")?;
                list(f, known)
            }
            Self::NoSuchValue { key, value, known, .. } => {
                write!(f, "no rule: no descriptor here matches {key}={value}; known values: ")?;
                list(f, known)
            }
        }
    }
}

/// The first few, and how many more there are.
fn list(f: &mut fmt::Formatter<'_>, items: &[&str]) -> fmt::Result {
    const SHOWN_MAX: usize = 8;
    f.write_str(&items[..items.len().min(SHOWN_MAX)].join(", "))?;
    match items.len().checked_sub(SHOWN_MAX) {
        None | Some(0) => Ok(()),
        Some(more) => write!(f, " and {more} more"),
    }
}

/// One line for each step, and one for the outcome.
impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Step { key, value, matched, rule } in &self.steps {
            writeln!(f, "{key}={value} matches {matched} ({})", rule.declared_at())?;
        }
        write!(f, "{}", self.outcome)
    }
}
