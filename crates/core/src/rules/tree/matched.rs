//! Kinds of match of an entry.

use crate::rules::{Network, Pattern, SharedForm, ValueSet};
use std::fmt;

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
    pub(in crate::rules) fn shared(self) -> Option<(SharedForm, &'r str)> {
        let pattern = match self {
            Self::Wildcard { pattern, shared: true } => pattern,
            Self::KeyWildcard { shared, .. } => shared?,
            Self::Set { values, .. } => return values.form(),
            Self::Wildcard { .. } | Self::Exact | Self::KeyAlone => return None,
        };
        Some((SharedForm::Pattern, pattern.as_str()))
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
