//! The way of a descriptor through the rules, told to people.

use super::{
    Pattern, Rule,
    tree::{Level, Siblings},
};
use crate::limit::Entry;
use std::fmt;

/// Step by step, which rule a descriptor reaches, or where its way ends and why.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation<'r> {
    /// One for each entry that matched, in order.
    pub steps: Vec<Step<'r>>,
    /// How it ends.
    pub outcome: Outcome<'r>,
}

/// An entry that matched.
#[derive(Clone, PartialEq, Debug)]
pub struct Step<'r> {
    /// The entry's key.
    pub key: String,
    /// The entry's value.
    pub value: String,
    /// What of the rules it matched.
    pub matched: Matched<'r>,
    /// The rule there.
    pub rule: &'r Rule,
}

/// What an entry matched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matched<'r> {
    /// Key and value.
    Exact,
    /// The key, and a value with wildcards.
    Wildcard {
        /// The value with wildcards.
        pattern: &'r Pattern,
        /// All values that fit share one counter.
        shared: bool,
    },
    /// A key with wildcards.
    KeyWildcard {
        /// The key with wildcards.
        key: &'r Pattern,
        /// The value with wildcards, if all values that match it share one counter.
        shared: Option<&'r Pattern>,
    },
    /// A descriptor without a value.
    KeyAlone,
}

impl<'r> Matched<'r> {
    /// The pattern whose values share one counter.
    #[inline]
    pub(super) fn shared(self) -> Option<&'r Pattern> {
        match self {
            Self::Wildcard { pattern, shared: true } => Some(pattern),
            Self::KeyWildcard { shared, .. } => shared,
            Self::Wildcard { .. } | Self::Exact | Self::KeyAlone => None,
        }
    }
}

/// Where the way ends.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome<'r> {
    /// The last entry reached this rule, and it applies.
    Reached(&'r Rule),
    /// The descriptor has no entries.
    NoEntries,
    /// No descriptor of the level has the entry's key.
    NoSuchKey {
        /// Which entry, by index.
        entry: usize,
        /// Its key.
        key: String,
        /// The keys there, sorted; none where the rules end.
        known: Vec<&'r str>,
    },
    /// Descriptors have the key, but none takes the value.
    NoSuchValue {
        /// Which entry, by index.
        entry: usize,
        /// Its key.
        key: String,
        /// Its value.
        value: String,
        /// The exact values there are, sorted, and then the wildcards in their order.
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
                let outcome = match level.siblings(entry.key).map(Siblings::values) {
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
            Self::KeyAlone => f.write_str("the key alone"),
        }
    }
}

impl fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reached(rule) if rule.unlimited => write!(f, "{}: unlimited", rule.info.path),
            Self::Reached(rule) if rule.limits.is_empty() => {
                write!(f, "{}: listed, without a limit", rule.info.path)
            }
            Self::Reached(rule) => write!(f, "{}: limited", rule.info.path),
            Self::NoEntries => f.write_str("no rule: the descriptor has no entries"),
            Self::NoSuchKey { key, known, .. } if known.is_empty() => {
                write!(f, "no rule: nothing lies below, so nothing takes {key}")
            }
            Self::NoSuchKey { key, known, .. } => {
                write!(f, "no rule: no descriptor here has the key {key}; there are ")?;
                list(f, known)
            }
            Self::NoSuchValue { key, value, known, .. } => {
                write!(f, "no rule: no descriptor here takes {key}={value}; there are ")?;
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
            writeln!(f, "{key}={value} matches {matched} ({})", rule.origin)?;
        }
        write!(f, "{}", self.outcome)
    }
}
