//! The matching of a descriptor, entry by entry.

use super::{matched::Matched, node::Level};
use crate::{
    limit::Entry,
    rules::{ConditionalLimit, Rule},
};
use std::fmt;

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
                write!(f, "no rule: no descriptor here has the key {key}; known keys: {}", listed(known))
            }
            Self::NoSuchValue { key, value, known, .. } => {
                let known = listed(known);
                write!(f, "no rule: no descriptor here matches {key}={value}; known values: {known}")
            }
        }
    }
}

/// One line for each step, and a line for the outcome.
impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Step { key, value, matched, rule } in &self.steps {
            writeln!(f, "{key}={value} matches {matched} ({})", rule.declared_at())?;
        }
        write!(f, "{}", self.outcome)
    }
}

/// The first few, and how many more there are.
pub(in crate::rules) fn listed(items: &[&str]) -> String {
    const SHOWN_MAX: usize = 8;
    let shown = items[..items.len().min(SHOWN_MAX)].join(", ");
    match items.len().saturating_sub(SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
