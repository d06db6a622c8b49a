//! The JSON fields of a line of the decision log.

use super::LoggedSource;
use serde::Deserialize;
use smol_str::SmolStr;
use tidegate_core::{limit::Code, rules::Semantics};

#[derive(Deserialize)]
pub(super) struct LoggedLine {
    pub(super) v: u32,
    pub(super) time: SmolStr,
    pub(super) dropped: Option<u64>,
    pub(super) run: Option<SmolStr>,
    pub(super) seq: Option<u64>,
    pub(super) generation: Option<u64>,
    pub(super) rules: Option<LoggedRules>,
    pub(super) reset: Option<LoggedReset>,
    pub(super) assignment: Option<serde::de::IgnoredAny>,
    pub(super) cancelled: Option<LoggedCancelled>,
    #[serde(default)]
    pub(super) report: bool,
    pub(super) domain: Option<SmolStr>,
    pub(super) code: Option<Code>,
    pub(super) sample: Option<f64>,
    pub(super) ticket: Option<SmolStr>,
    pub(super) ticket_hash: Option<SmolStr>,
    pub(super) descriptors: Option<Vec<LoggedDescriptor>>,
}

#[derive(Deserialize)]
pub(super) struct LoggedRules {
    pub(super) semantics: Semantics,
    pub(super) default_algorithm: Option<SmolStr>,
    pub(super) merge_domains: bool,
    pub(super) global_shadow: bool,
    pub(super) quota_mode: bool,
    pub(super) stop_counting: bool,
    pub(super) sources: Vec<LoggedSource>,
}

#[derive(Deserialize)]
pub(super) struct LoggedReset {
    pub(super) domain: String,
    pub(super) rule: Option<String>,
    #[serde(default)]
    pub(super) descriptors: Vec<Vec<LoggedEntry>>,
}

#[derive(Deserialize)]
pub(super) struct LoggedCancelled {
    pub(super) ticket: Option<SmolStr>,
    pub(super) ticket_hash: Option<SmolStr>,
}

/// The part of a line that every version has.
#[derive(Deserialize)]
pub(super) struct LoggedVersion {
    pub(super) v: u32,
}

#[derive(Deserialize)]
pub(super) struct LoggedDescriptor {
    pub(super) entries: Vec<LoggedEntry>,
    pub(super) hits: u64,
    #[serde(default)]
    pub(super) give_back: bool,
    pub(super) own_limit: Option<LoggedOwnLimit>,
    pub(super) code: Code,
    pub(super) limit: Option<LoggedLimit>,
    pub(super) remaining: u32,
    pub(super) reset_ns: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct LoggedEntry {
    pub(super) key: SmolStr,
    pub(super) value: Option<SmolStr>,
    pub(super) value_hash: Option<SmolStr>,
}

#[derive(Deserialize)]
pub(super) struct LoggedOwnLimit {
    pub(super) requests: u32,
    pub(super) unit: SmolStr,
}

#[derive(Deserialize)]
pub(super) struct LoggedLimit {
    #[serde(default)]
    pub(super) rule: SmolStr,
}
