//! Overrides as operators declare them, and the JSON of what operators declare.

use super::{Block, OverrideLimit, override_limit};
use crate::limit::Entry;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Replaces the rules for the descriptors that it matches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OverrideRule {
    /// Its name.
    pub id: String,
    /// The domain.
    pub domain: String,
    /// Keys and values of the descriptor's entries, in order and no more; `*` in a value matches any text, `\*` stands for `*`.
    pub entries: Vec<(String, String)>,
    /// The limit, or the absence of one, instead of the rules.
    pub action: OverrideAction,
}

impl OverrideRule {
    /// The entries as those of a descriptor.
    pub(in crate::rules) fn as_entries(&self) -> Vec<Entry<'_>> {
        self.entries.iter().map(|(key, value)| Entry { key, value }).collect()
    }
}

/// The effect of an override.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverrideAction {
    /// These limits for each descriptor: one or a few, no two of one window.
    #[serde(rename = "limit", with = "override_limit::one_or_several")]
    Limits(Vec<OverrideLimit>),
    /// No limit.
    Unlimited,
    /// No hits.
    Denied,
}

/// The JSON of a document: the form in which a decision log has overrides and blocks that operators set.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::rules) enum Document<'d> {
    Override(Cow<'d, OverrideRule>),
    Blocks(Cow<'d, [Block]>),
}
