//! Lines about changes on which decisions depend: rules put in force, counters removed by operators, and calls reset by clients.

use super::{
    line::{Entry, Hex, Place, Run, Values, append_named, entry, ticket},
    record::Record,
};
use crate::config::RulesInForce;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::{borrow::Cow, collections::HashSet};
use tidegate_core::{
    limiter::Limiter,
    rules::{DefaultAlgorithm, LoadOptions, Redaction, Semantics, Source, SourceId},
};

/// How much of the rules in force is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum RulesText {
    /// Their texts, or if values of any key are hashed or omitted, the hashes of the texts.
    // Rules may contain the same values.
    #[default]
    Auto,
    /// Their texts.
    #[value(name = "text")]
    Full,
    /// The hashes of their texts.
    Hash,
}

/// Rules that were put in force.
pub(super) struct RulesRecord {
    generation: u64,
    number: u64,
    /// Nanoseconds since the Unix epoch.
    time: u64,
    options: LoadOptions,
    sources: Vec<Source>,
}

impl From<RulesInForce<'_>> for RulesRecord {
    fn from(rules: RulesInForce<'_>) -> Self {
        let RulesInForce { generation, number, at, options, sources } = rules;
        Self { generation, number, time: at.as_nanos(), options: *options, sources: sources.to_vec() }
    }
}

/// Counters that an operator removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResetRecord {
    /// See [`Removed::number`](tidegate_core::store::Removed::number).
    pub number: u64,
    /// Number of the rules with which the counters were found.
    pub generation: u64,
    /// Nanoseconds since the Unix epoch.
    pub time: u64,
    /// The domain.
    pub domain: String,
    /// The path of the rule whose counters were removed. Empty if they are those of the descriptors, or of the domain.
    pub rule: String,
    /// Keys and values of the descriptors whose counters were removed.
    pub descriptors: Vec<Vec<(String, String)>>,
}

#[derive(Serialize)]
struct Rules<'r> {
    semantics: Semantics,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_algorithm: Option<&'static str>,
    merge_domains: bool,
    global_shadow: bool,
    quota_mode: bool,
    stop_counting: bool,
    sources: Vec<SourceLine<'r>>,
}

#[derive(Serialize)]
struct SourceLine<'r> {
    #[serde(flatten)]
    id: &'r SourceId,
    sha256: Hex<32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Cow<'r, str>>,
}

#[derive(Serialize)]
struct LoggedReset<'r> {
    domain: &'r str,
    #[serde(skip_serializing_if = "str::is_empty")]
    rule: &'r str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    descriptors: Vec<Vec<Entry<'r>>>,
}

#[derive(Serialize)]
struct Cancelled<'r> {
    domain: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket_hash: Option<Hex<16>>,
}

/// Hashes of the texts in the current file. Each text is written once.
pub(super) type WrittenTexts = HashSet<[u8; 32]>;

/// Appends the line of rules that were put in force. Leaves out texts in `written`, and adds the texts in the line to it.
pub(super) fn rules(
    record: &RulesRecord,
    (limiter, values, how): (&Limiter, &Values<'_>, RulesText),
    run: Run,
    written: &mut WrittenTexts,
    out: &mut Vec<u8>,
) {
    let has_texts = match how {
        RulesText::Full => true,
        RulesText::Hash => false,
        RulesText::Auto => {
            let redacts = || limiter.rules().domains().any(|domain| domain.redacts_values());
            values.default == Redaction::Plain && !redacts()
        }
    };
    let sources = record.sources.iter().map(|source| {
        let text = source.text();
        let hash: [u8; 32] = Sha256::digest(&*text).into();
        let is_new = has_texts && written.insert(hash);
        SourceLine { id: &source.id, sha256: Hex(hash), text: is_new.then_some(text) }
    });
    let compat = limiter.compat();
    let rules = Rules {
        semantics: record.options.semantics,
        default_algorithm: record.options.default_algorithm.map(DefaultAlgorithm::name),
        merge_domains: record.options.merge_domains,
        global_shadow: limiter.is_global_shadow(),
        quota_mode: compat.quota_mode,
        stop_counting: compat.stop_counting,
        sources: sources.collect(),
    };
    let place = Place::Numbered(run, record.number, record.generation);
    append_named(record.time, place, ("rules", rules), out);
}

/// Appends the line of a reset.
pub(super) fn reset(record: &ResetRecord, values: &Values<'_>, run: Run, out: &mut Vec<u8>) {
    let redaction = values.of_domain(&record.domain);
    let entries = record.descriptors.iter().map(|entries| entries.iter());
    let entries =
        entries.map(|entries| entries.map(|(key, value)| entry(key, value, redaction(key), values.salt)));
    let descriptors = entries.map(Iterator::collect).collect();
    let reset = LoggedReset { domain: &record.domain, rule: &record.rule, descriptors };
    let place = Place::Numbered(run, record.number, record.generation);
    append_named(record.time, place, ("reset", reset), out);
}

/// Appends the line of the end of a request whose client reset the call.
pub(super) fn cancelled(record: &Record<'_>, values: &Values<'_>, run: Run, out: &mut Vec<u8>) {
    let (ticket, ticket_hash) = ticket(record, values);
    let cancelled = Cancelled { domain: record.domain, ticket, ticket_hash };
    append_named(record.received, Place::of(record, run), ("cancelled", cancelled), out);
}
