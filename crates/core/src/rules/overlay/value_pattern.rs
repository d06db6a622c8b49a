//! A value as overrides and blocks have it, in which `*` matches any text.

use crate::rules::Pattern;
use smol_str::SmolStr;

#[derive(Clone, Debug)]
pub(super) enum ValuePattern {
    Exact(SmolStr),
    Wildcard(Pattern),
}

impl ValuePattern {
    pub(super) fn new(text: &str) -> Self {
        Pattern::unescaped(text).map_or_else(|text| Self::Exact(text.into()), Self::Wildcard)
    }

    pub(super) fn matches(&self, value: &str) -> bool {
        match self {
            Self::Exact(exact) => *exact == *value,
            Self::Wildcard(pattern) => pattern.matches(value),
        }
    }
}
