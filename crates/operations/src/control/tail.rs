//! The stream of decisions, for operators.
//!
//! Invariants:
//!
//! - Without a reader, a decision costs one relaxed load.
//! - A decision never waits for a watcher: decisions that do not fit into the queues are dropped and counted.
//! - Values are redacted as the rules declare, before a filter reads them.

use super::redaction::{ShownEntry, Values};
use crate::telemetry::{
    DescriptorRecord, Record, RecordQueue, decode_records, encode_record, record_bytes_max,
};
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};
use tidegate_core::{
    limit::{Code, DenialCause, Hits, Reset},
    rules::{Pattern, RuleSet},
};
use tidegate_service::Event;
use tokio::sync::mpsc;

/// The most queued decisions for one watcher.
const WATCHER_QUEUE: usize = 4_096;
/// The most watchers at once.
const WATCHERS_MAX: usize = 16;

/// Selects the decisions of a watcher. Each condition may be none.
#[derive(Clone, Debug, Default)]
pub struct TailFilter {
    /// Decisions of this domain.
    pub domain: Option<String>,
    /// Decisions to which a limit of one of these rules applied. The rules are named by their paths.
    pub rules: Option<Vec<String>>,
    /// Decisions with this code.
    pub code: Option<Code>,
    /// Decisions with an entry of this key.
    pub key: Option<String>,
    /// Only if the entry has this value, or a matching one.
    pub value: Option<ValueFilter>,
    /// The share of the selected decisions that is sent.
    pub share: f64,
}

/// A value, or a pattern of values.
#[derive(Clone, Debug)]
pub enum ValueFilter {
    /// Exactly this value.
    Exact(String),
    /// Values that match.
    Pattern(Pattern),
}

impl ValueFilter {
    /// A filter for this text. `*` matches any text.
    pub fn new(text: &str) -> Self {
        Pattern::new(text).map_or_else(|| Self::Exact(text.to_owned()), Self::Pattern)
    }

    fn matches(&self, value: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == value,
            Self::Pattern(pattern) => pattern.matches(value),
        }
    }
}

/// A decision for watchers.
#[derive(Clone, PartialEq, Debug)]
pub struct TailDecision {
    /// Nanoseconds since the Unix epoch.
    pub received: u64,
    /// Time from the receipt of the request to its response.
    pub latency: Duration,
    /// The domain.
    pub domain: String,
    /// The verdict on the request.
    pub code: Code,
    /// The other end of the connection.
    pub peer: String,
    /// The trace of the request.
    pub trace_id: Option<[u8; 16]>,
    /// Its descriptors.
    pub descriptors: Vec<TailDescriptor>,
}

/// A descriptor with its status.
#[derive(Clone, PartialEq, Debug)]
pub struct TailDescriptor {
    /// Its entries.
    pub entries: Vec<ShownEntry>,
    /// The verdict on it.
    pub code: Code,
    /// The path of the rule. Empty without a rule, and if a value is redacted.
    pub rule: String,
    /// Hits taken.
    pub hits: u64,
    /// Hits per window.
    pub requests: u32,
    /// The window.
    pub window: Duration,
    /// Hits that would be admitted.
    pub remaining: u32,
    /// See [`Reset`].
    pub reset: Option<Reset>,
    /// The name of the limit, as its rule declares it; may be empty.
    pub name: String,
    /// The cause of the denial, if not its limit.
    pub cause: Option<DenialCause>,
}

/// A watcher's end of the stream.
pub struct TailStream {
    /// The stream. It ends with the server.
    pub decisions: mpsc::Receiver<TailDecision>,
    dropped: std::sync::Arc<AtomicU64>,
}

impl TailStream {
    /// Decisions dropped since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

struct Watcher {
    filter: TailFilter,
    /// The sum of the shares of decisions since the last sent decision.
    share: f64,
    decisions: mpsc::Sender<TailDecision>,
    dropped: std::sync::Arc<AtomicU64>,
}

/// The stream of decisions.
#[derive(Default)]
pub struct Tail {
    is_watched: AtomicBool,
    is_ended: AtomicBool,
    queue: RecordQueue,
    watchers: Mutex<Vec<Watcher>>,
    /// The part of the queue's dropped decisions that watchers have been sent.
    dropped: AtomicU64,
}

impl Tail {
    /// Queues a decision if anyone watches.
    #[inline]
    pub(super) fn read(&self, event: &Event<'_, '_, '_>) {
        if self.is_watched.load(Ordering::Relaxed) {
            self.queue.append(record_bytes_max(event), |out| encode_record(event, 0, 1.0, out));
        }
    }

    /// Whether anyone watches.
    pub fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// Watches from now on. None if there are too many watchers, or if the server stops.
    pub fn watch(&self, filter: TailFilter) -> Option<TailStream> {
        let mut watchers = self.watchers.lock();
        if self.is_ended.load(Ordering::Relaxed) {
            return None;
        }
        watchers.retain(|watcher| !watcher.decisions.is_closed());
        if watchers.len() >= WATCHERS_MAX {
            return None;
        }
        if watchers.is_empty() {
            // Drops decisions that were queued for former watchers.
            self.queue.take(&mut Vec::new());
            self.dropped.store(self.queue.dropped(), Ordering::Relaxed);
        }
        let (sender, decisions) = mpsc::channel(WATCHER_QUEUE);
        let dropped = std::sync::Arc::<AtomicU64>::default();
        // The first decision is always sent.
        watchers.push(Watcher { filter, share: 1.0, decisions: sender, dropped: dropped.clone() });
        self.is_watched.store(true, Ordering::Relaxed);
        Some(TailStream { decisions, dropped })
    }

    /// Ends all streams, as the server stops.
    pub fn end(&self) {
        let mut watchers = self.watchers.lock();
        self.is_ended.store(true, Ordering::Relaxed);
        self.is_watched.store(false, Ordering::Relaxed);
        watchers.clear();
    }

    /// Passes queued decisions to the watchers. Called by one thread.
    pub fn pass_on(&self, taken: &mut Vec<Vec<u8>>, rules: &RuleSet, values: &Values) {
        let mut watchers = self.watchers.lock();
        watchers.retain(|watcher| !watcher.decisions.is_closed());
        if watchers.is_empty() {
            self.is_watched.store(false, Ordering::Relaxed);
            return;
        }
        self.queue.take(taken);
        let mut records: Vec<_> = taken.iter().flat_map(|bytes| decode_records(bytes)).collect();
        records.sort_by_key(|record| record.received);
        for record in &records {
            let mut shown = None;
            for watcher in &mut *watchers {
                if watcher.filter.may_select(record) {
                    let decision = shown.get_or_insert_with(|| show(record, rules, values));
                    watcher.send(decision);
                }
            }
        }
        let dropped = self.queue.dropped();
        let more = dropped - self.dropped.swap(dropped, Ordering::Relaxed);
        if more > 0 {
            watchers.iter().for_each(|watcher| _ = watcher.dropped.fetch_add(more, Ordering::Relaxed));
        }
    }
}

impl TailFilter {
    /// Whether the filter may select a decision, by the fields that are not redacted.
    fn may_select(&self, record: &Record<'_>) -> bool {
        self.domain.as_ref().is_none_or(|domain| domain == record.domain)
            && self.code.is_none_or(|code| code == record.code)
    }

    fn selects(&self, decision: &TailDecision) -> bool {
        let is_value = |entry: &ShownEntry| {
            self.value
                .as_ref()
                .is_none_or(|value| entry.value.as_ref().is_some_and(|text| value.matches(text)))
        };
        let has_entry = || {
            let mut entries = decision.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
            entries.any(|entry| self.key.as_ref().is_none_or(|key| *key == entry.key) && is_value(entry))
        };
        let has_one = |rules: &Vec<String>| {
            decision.descriptors.iter().any(|descriptor| rules.contains(&descriptor.rule))
        };
        self.rules.as_ref().is_none_or(has_one) && (self.key.is_none() && self.value.is_none() || has_entry())
    }
}

impl Watcher {
    fn send(&mut self, decision: &TailDecision) {
        if !self.filter.selects(decision) {
            return;
        }
        self.share += self.filter.share;
        if self.share < 1.0 {
            return;
        }
        self.share = (self.share - 1.0).min(1.0 - f64::EPSILON);
        if self.decisions.try_send(decision.clone()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn show(record: &Record<'_>, rules: &RuleSet, values: &Values) -> TailDecision {
    let domain = rules.domain(record.domain);
    let descriptor = |of: &DescriptorRecord<'_>| {
        let entries: Vec<ShownEntry> =
            of.entries.iter().map(|(key, value)| values.show(domain, key, value)).collect();
        // The path of a rule contains values from the rule file, which are those of the request.
        let is_plain = entries.iter().all(|entry| !entry.is_redacted);
        let limit = of.limit.as_ref();
        TailDescriptor {
            entries,
            code: of.code,
            rule: limit.filter(|_| is_plain).map_or_else(String::new, |limit| limit.rule.to_owned()),
            hits: if let Hits::Take(hits) = of.hits { hits.get() } else { 0 },
            requests: limit.map_or(0, |limit| limit.requests),
            window: limit.map_or(Duration::ZERO, |limit| Duration::from_nanos(limit.window)),
            remaining: of.remaining,
            reset: of.reset,
            name: limit.map_or_else(String::new, |limit| limit.name.to_owned()),
            cause: of.cause,
        }
    };
    TailDecision {
        received: record.received,
        latency: Duration::from_nanos(record.latency),
        domain: record.domain.to_owned(),
        code: record.code,
        peer: record.peer.to_owned(),
        trace_id: record.trace.map(|trace| trace.trace_id),
        descriptors: record.descriptors.iter().map(descriptor).collect(),
    }
}
