//! The decision log: one JSON line for each decision, or for a sample of them.
//!
//! Invariants:
//!
//! - A decision never waits for the log. Decisions that do not fit into the queue, or that the target does not accept, are dropped and
//!   counted, and the log contains their number.
//! - Values that the rules redact are in memory only until their line is written.
//! - Lines contain the rules that decided, so that `replay/` can repeat the decisions.

mod assignments;
mod changes;
mod line;
mod queue;
mod record;
mod shared;
mod sink;
mod target;
mod writer;

pub use changes::{ResetRecord, RulesText};
pub(crate) use line::value_hash;
pub(crate) use queue::Queue as RecordQueue;
pub(crate) use record::{
    DescriptorRecord, Record, bytes_max as record_bytes_max, cancellation_bytes_max,
    decode_all as decode_records, encode as encode_record, encode_cancellation,
};
pub use shared::SampleRate;
pub(crate) use shared::{sample_hash, sample_hash_of};
pub use sink::Rotation;
pub use target::Target;

use crate::config::RulesInForce;
use assignments::Assignments;
use changes::WrittenTexts;
use line::Hex;
use parking_lot::Mutex as Lock;
use queue::{Appended, Queue};
use shared::Shared;
use sink::Sink;
use std::{
    fmt, io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tidegate_core::{
    clock::Clock,
    limit::{Code, Entry, Request},
    limiter::Limiter,
    rules::Redaction,
};
use tidegate_service::{AssignmentEvent, Cancellation, DecisionReader, Event};
use tidegate_threads::{BackgroundThread, Priority};
use writer::{Failures, Writer};

/// Time for the last lines at the end of the process.
const FINISH_TIMEOUT: Duration = Duration::from_secs(3);

/// Settings of the log.
#[derive(Clone, Debug)]
pub struct DecisionLogSettings {
    /// Where lines are written.
    pub target: Target,
    /// The share of requests whose admissions are logged.
    pub sample: SampleRate,
    /// The share of requests whose denials are logged.
    pub sample_denials: SampleRate,
    /// Rotation of a file.
    pub rotation: Rotation,
    /// Capacity of the queue, for each worker.
    pub queue_bytes: usize,
    /// Redaction of values whose key has no declaration in a rule.
    pub values: Redaction,
    /// The secret of the hashes of values.
    pub salt: Vec<u8>,
    /// How much of the rules in force is written.
    pub rules_text: RulesText,
}

/// The log cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the decision log {target}: {source}")]
pub struct DecisionLogError {
    target: Target,
    source: io::Error,
}

/// The running log. Clones share it.
#[derive(Clone)]
pub struct DecisionLog(Arc<Shared>);

impl fmt::Debug for DecisionLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecisionLog")
    }
}

impl DecisionLog {
    /// Opens the target and starts the thread that writes to it.
    pub fn start(settings: DecisionLogSettings, clock: Arc<dyn Clock>) -> Result<Self, DecisionLogError> {
        let failed = |source| DecisionLogError { target: settings.target.clone(), source };
        let sink = Sink::open(&settings.target, settings.rotation).map_err(failed)?;
        let shared = Arc::new(Shared {
            queue: Queue::new(settings.queue_bytes),
            sample: settings.sample,
            sample_denials: settings.sample_denials,
            limiter: OnceLock::new(),
            writer: OnceLock::new(),
            rules: Lock::default(),
            resets: Lock::default(),
            assignments: Assignments::new(settings.queue_bytes),
            reopen: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            thread: Lock::default(),
            written: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        let mut run = [0; 8];
        getrandom::fill(&mut run).map_err(io::Error::from).map_err(failed)?;
        let writer = Writer {
            shared: Arc::clone(&shared),
            sink,
            clock,
            values: settings.values,
            salt: settings.salt.clone(),
            rules_text: settings.rules_text,
            run: Hex(run),
            dropped_stated: 0,
            in_force: None,
            needs_rules: false,
            written_texts: WrittenTexts::default(),
            failures: Failures::default(),
        };
        let thread = BackgroundThread::start("decision-log", Priority::Full, || writer.run());
        let thread = thread.map_err(io::Error::from).map_err(failed)?;
        let _ = shared.writer.set(thread.handle().clone());
        *shared.thread.lock() = Some(thread);
        Ok(Self(shared))
    }

    /// Redacts by the rules of this limiter from now on. Called before the first decision.
    pub fn set_limiter(&self, limiter: &Arc<Limiter>) {
        let _ = self.0.limiter.set(Arc::clone(limiter));
    }

    /// Writes a line about rules that are put in force.
    pub fn put_in_force(&self, rules: RulesInForce<'_>) {
        self.0.rules.lock().push(rules.into());
    }

    /// Writes a line about counters that an operator removed.
    pub fn reset(&self, record: ResetRecord) {
        self.0.resets.lock().push(record);
    }

    /// Reopens the target, for a file that was renamed.
    pub fn reopen(&self) {
        self.0.reopen.store(true, Ordering::Relaxed);
        self.0.wake_writer();
    }

    /// Writes what is queued and ends the thread. Gives up if the target accepts nothing.
    pub fn finish(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
        self.0.wake_writer();
        let thread = self.0.thread.lock().take();
        if thread.is_some_and(|thread| !thread.join_within(FINISH_TIMEOUT)) {
            tracing::warn!("the last lines of the decision log could not be written in time");
        }
    }

    /// Lines written.
    pub fn written(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }

    /// Decisions and assignments for which there was no room.
    pub fn dropped(&self) -> u64 {
        self.0.dropped()
    }

    /// Lines that the target did not accept.
    pub fn failed(&self) -> u64 {
        self.0.failed.load(Ordering::Relaxed)
    }
}

impl DecisionReader for DecisionLog {
    fn read(&self, event: &Event<'_, '_, '_>) {
        let shared = &*self.0;
        let rate = match event.decision.code {
            Code::Ok => shared.sample,
            Code::OverLimit => shared.sample_denials,
        };
        if !rate.has(event.request) {
            return;
        }
        let number = shared.number(event.decision.number);
        self.append(record::bytes_max(event), |out| record::encode(event, number, rate.0, out));
    }

    fn follows(&self, request: &Request<'_>) -> bool {
        self.0.sample.has(request)
    }

    fn read_cancelled(&self, cancellation: &Cancellation<'_>) {
        let number = self.0.number(cancellation.number);
        let cancellation = Cancellation { number, ..*cancellation };
        self.append(cancellation_bytes_max(&cancellation), |out| {
            encode_cancellation(&cancellation, out);
        });
    }

    fn read_assignment(&self, event: AssignmentEvent) {
        let rate = self.0.sample;
        if rate == SampleRate::ALL || rate.takes(hash_of_bucket(&event)) {
            self.0.assignments.add(event);
        }
    }
}

impl DecisionLog {
    fn append(&self, bytes_max: usize, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.0.queue.append(bytes_max, encode) == Appended::HalfFull {
            self.0.wake_writer();
        }
    }
}

/// The hash of a request with the entries of the bucket, sorted by key.
fn hash_of_bucket(AssignmentEvent { domain, bucket, .. }: &AssignmentEvent) -> u64 {
    let entries: Vec<Entry<'_>> = bucket.entries().collect();
    sample_hash(domain, entries.iter().map(|entry| (entry.key, entry.value)))
}
