//! The entries that lead to a rule.

use crate::rules::{Pattern, ValueSet};

/// An entry of a descriptor, as the rules declare it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeclaredEntry<'r> {
    /// The key; none if the rule has a wildcard in its place.
    pub key: Option<&'r str>,
    /// The values.
    pub values: DeclaredValues<'r>,
}

/// The values of an entry that select a descriptor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum DeclaredValues<'r> {
    /// Values that no other descriptor of the key matches.
    Any,
    /// This value.
    Exact(&'r str),
    /// Values that the pattern matches.
    Wildcard {
        /// The pattern.
        pattern: &'r Pattern,
        /// Whether all of them share a counter.
        shares_counter: bool,
    },
    /// Values of the set.
    Set(&'r ValueSet),
}
