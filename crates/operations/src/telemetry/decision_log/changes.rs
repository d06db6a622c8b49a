//! Lines about changes that decisions depend on: rules put in force, counters removed by operators, and calls that clients reset.

use super::{
    line::{Entry, Hex, Run, Time, VERSION, Values, append, entry, ticket},
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RulesText {
    /// Their texts, unless the values of some key are redacted: rules may contain the same values.
    #[default]
    Auto,
    /// Their texts.
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
    semantics: Semantics,
    default_algorithm: Option<DefaultAlgorithm>,
    merge_domains: bool,
    sources: Vec<Source>,
}

impl From<RulesInForce<'_>> for RulesRecord {
    fn from(rules: RulesInForce<'_>) -> Self {
        let RulesInForce { generation, number, at, options, sources } = rules;
        let LoadOptions { semantics, default_algorithm, merge_domains, .. } = *options;
        let (time, sources) = (at.as_nanos(), sources.to_vec());
        Self { generation, number, time, semantics, default_algorithm, merge_domains, sources }
    }
}

/// Counters that an operator removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResetRecord {
    /// See [`Removed::number`](tidegate_core::store::Removed::number).
    pub number: u64,
    /// Number of the rules by which counters were found.
    pub generation: u64,
    /// Nanoseconds since the Unix epoch.
    pub time: u64,
    /// The domain.
    pub domain: String,
    /// The path of the rule whose counters were removed; empty for those of the descriptors, or of the domain.
    pub rule: String,
    /// Keys and values of the descriptors whose counters were removed.
    pub descriptors: Vec<Vec<(String, String)>>,
}

#[derive(Serialize)]
struct RulesLine<'r> {
    v: u32,
    time: Time,
    run: Run,
    seq: u64,
    generation: u64,
    rules: Rules<'r>,
}

#[derive(Serialize)]
struct Rules<'r> {
    semantics: &'static str,
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
    kind: &'static str,
    name: &'r str,
    sha256: Hex<32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Cow<'r, str>>,
}

#[derive(Serialize)]
struct ResetLine<'r> {
    v: u32,
    time: Time,
    run: Run,
    seq: u64,
    generation: u64,
    reset: LoggedReset<'r>,
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
struct CancelledLine<'r> {
    v: u32,
    time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<Run>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    cancelled: Cancelled<'r>,
}

#[derive(Serialize)]
struct Cancelled<'r> {
    domain: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket_hash: Option<Hex<16>>,
}

/// Texts that the file being written contains, by hash: each is written once.
pub(super) type WrittenTexts = HashSet<[u8; 32]>;

/// Appends the line of rules that were put in force. Texts in `written` are left out, those that the line contains are added.
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
        let (kind, name) = match &source.id {
            SourceId::File(path) => ("file", path),
            SourceId::Xds(name) => ("xds", name),
            SourceId::Override(id) => ("override", id),
            SourceId::Blocks(path) => ("blocks", path),
        };
        let hash: [u8; 32] = Sha256::digest(&*text).into();
        let is_new = has_texts && written.insert(hash);
        SourceLine { kind, name, sha256: Hex(hash), text: is_new.then_some(text) }
    });
    let compat = limiter.compat();
    let rules = Rules {
        semantics: match record.semantics {
            Semantics::Exact => "exact",
            Semantics::Reference => "reference",
        },
        default_algorithm: record.default_algorithm.map(DefaultAlgorithm::name),
        merge_domains: record.merge_domains,
        global_shadow: limiter.is_global_shadow(),
        quota_mode: compat.quota_mode,
        stop_counting: compat.stop_counting,
        sources: sources.collect(),
    };
    let (time, seq, generation) = (Time(record.time), record.number, record.generation);
    append(&RulesLine { v: VERSION, time, run, seq, generation, rules }, out);
}

/// Appends the line of a reset.
pub(super) fn reset(record: &ResetRecord, values: &Values<'_>, run: Run, out: &mut Vec<u8>) {
    let redaction = values.of_domain(&record.domain);
    let entries = record.descriptors.iter().map(|entries| entries.iter());
    let entries =
        entries.map(|entries| entries.map(|(key, value)| entry(key, value, redaction(key), values.salt)));
    let descriptors = entries.map(Iterator::collect).collect();
    let reset = LoggedReset { domain: &record.domain, rule: &record.rule, descriptors };
    let (time, seq, generation) = (Time(record.time), record.number, record.generation);
    append(&ResetLine { v: VERSION, time, run, seq, generation, reset }, out);
}

/// Appends the line of the end of a request whose client reset the call.
pub(super) fn cancelled(record: &Record<'_>, values: &Values<'_>, run: Run, out: &mut Vec<u8>) {
    let (ticket, ticket_hash) = ticket(record, values);
    let is_numbered = record.number > 0;
    let line = CancelledLine {
        v: VERSION,
        time: Time(record.received),
        run: is_numbered.then_some(run),
        seq: is_numbered.then_some(record.number),
        generation: is_numbered.then_some(record.generation),
        cancelled: Cancelled { domain: record.domain, ticket, ticket_hash },
    };
    append(&line, out);
}
