//! Recent decisions in memory, for [`what_if`](super).
//!
//! Invariants:
//!
//! - While nothing is recorded, a decision costs one relaxed load.
//! - A decision never waits for the recorder: decisions that do not fit into its queue are dropped and counted.
//! - The memory is bounded. If it does not suffice for [`SPAN`], the recorded share of requests is halved. All requests with equal values
//!   are recorded, or none, so that counters of recorded clients have all their hits.

use crate::telemetry::{
    DescriptorRecord, Record, RecordQueue, cancellation_bytes_max, decode_records, encode_cancellation,
    encode_record, record_bytes_max, sample_hash, sample_hash_of,
};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};
use tidegate_core::limit::{Request, Timestamp};
use tidegate_replay::{CancelledStep, Event as Decided, EventDescriptor, Place, RecordedStatus, Step};
use tidegate_service::{Cancellation, Event};

/// The most bytes of all recorded decisions.
pub const BYTES_MAX: usize = 16 << 20;
/// Time that the record should cover.
const SPAN: Duration = Duration::from_secs(300);
/// The recording ends this long after the last request for it.
const LEASE: Duration = Duration::from_secs(600);
/// One process numbers all recorded decisions.
const THIS_PROCESS: u64 = 0;
/// The share is halved at most this often.
const HALVINGS_MAX: u32 = 32;

/// Records decisions for `LEASE` after each request for a recording.
#[derive(Default)]
pub struct Recorder {
    is_on: AtomicBool,
    /// Number of halvings of the share: a request is recorded if as many leading bits of its hash are zero.
    halvings: AtomicU32,
    queue: RecordQueue,
    kept: Mutex<Kept>,
}

/// State of the record.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RecorderStatus {
    /// Recorded decisions.
    pub decisions: u64,
    /// Time of the first one.
    pub first: Option<Timestamp>,
    /// Bytes of all of them.
    pub bytes: usize,
    /// Share of requests that is recorded.
    pub share: f64,
    /// Decisions that are missing because the queues had no room.
    pub dropped: u64,
}

#[derive(Default)]
struct Kept {
    /// Rounds in the order of time.
    rounds: VecDeque<Round>,
    /// Number of decisions that the queue dropped before this recording began.
    dropped_before: u64,
    /// End of the recording.
    until: Timestamp,
}

/// Records that were collected together.
struct Round {
    at: Timestamp,
    decisions: usize,
    bytes: Vec<u8>,
}

impl Recorder {
    /// Queues a decision if decisions are recorded.
    #[inline]
    pub(in crate::control) fn read(&self, event: &Event<'_, '_, '_>) {
        if self.is_on.load(Ordering::Relaxed) {
            self.append(event);
        }
    }

    fn append(&self, event: &Event<'_, '_, '_>) {
        let halvings = self.halvings.load(Ordering::Relaxed);
        if is_selected(halvings, || sample_hash_of(event.request)) {
            let number = event.decision.number;
            self.queue.append(record_bytes_max(event), |out| encode_record(event, number, 1.0, out));
        }
    }

    /// Whether the record has the decision on a request.
    pub(in crate::control) fn follows(&self, request: &Request<'_>) -> bool {
        self.is_on() && is_selected(self.halvings.load(Ordering::Relaxed), || sample_hash_of(request))
    }

    /// Queues the cancellation of a recorded request if decisions are recorded.
    pub(in crate::control) fn read_cancelled(&self, cancellation: &Cancellation<'_>) {
        if self.is_on() {
            self.queue
                .append(cancellation_bytes_max(cancellation), |out| encode_cancellation(cancellation, out));
        }
    }

    /// Whether decisions are recorded.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Records for a while from now on, and keeps what is already recorded. `number` starts the numbering of decisions. It and `cease` in
    /// [`Self::collect`] are called under one lock, so that decisions are numbered while they are recorded.
    pub fn keep_on(&self, now: Timestamp, number: impl FnOnce()) -> RecorderStatus {
        let mut kept = self.kept.lock();
        number();
        if !self.is_on.load(Ordering::Relaxed) {
            // Drops decisions that were queued before the former recording ended.
            self.queue.take(&mut Vec::new());
            *kept = Kept { dropped_before: self.queue.dropped(), ..Kept::default() };
            self.halvings.store(0, Ordering::Relaxed);
            self.is_on.store(true, Ordering::Relaxed);
        }
        kept.until = now.saturating_add(LEASE);
        self.status_of(&kept)
    }

    fn status_of(&self, kept: &Kept) -> RecorderStatus {
        RecorderStatus {
            decisions: kept.rounds.iter().map(|round| round.decisions as u64).sum(),
            first: kept.rounds.iter().flat_map(Round::records).next().map(|(first, _)| first),
            bytes: kept.bytes(),
            share: share(self.halvings.load(Ordering::Relaxed)),
            dropped: self.queue.dropped() - kept.dropped_before,
        }
    }

    /// Moves queued decisions to the record. When the recording is over, ends it and calls `cease`. Called by one thread.
    pub(in crate::control) fn collect(&self, taken: &mut Vec<Vec<u8>>, now: Timestamp, cease: impl FnOnce()) {
        if !self.is_on() {
            return;
        }
        let mut kept = self.kept.lock();
        if now > kept.until {
            self.is_on.store(false, Ordering::Relaxed);
            cease();
            *kept = Kept::default();
            return;
        }
        self.queue.take(taken);
        let mut records: Vec<(Timestamp, &[u8])> = taken.iter().flat_map(|bytes| encoded(bytes)).collect();
        records.sort_by_key(|(received, _)| *received);
        // Some records may have been queued before the share was halved.
        let halvings = self.halvings.load(Ordering::Relaxed);
        kept.rounds.push_back(Round::new(now, halvings, records.into_iter()));
        self.fit(&mut kept, now, BYTES_MAX);
    }

    /// Drops records older than [`SPAN`]. If that does not suffice, halves the share.
    fn fit(&self, kept: &mut Kept, now: Timestamp, bytes_max: usize) {
        while kept.rounds.front().is_some_and(|round| now.since(round.at) > SPAN) {
            kept.rounds.pop_front();
        }
        while kept.bytes() > bytes_max {
            let halvings = self.halvings.load(Ordering::Relaxed) + 1;
            if halvings > HALVINGS_MAX {
                // Nearly all requests have equal values.
                kept.rounds.pop_front();
                continue;
            }
            self.halvings.store(halvings, Ordering::Relaxed);
            for round in &mut kept.rounds {
                *round = Round::new(round.at, halvings, round.records());
            }
        }
    }

    /// As [`Self::fit`], with another bound.
    #[cfg(test)]
    pub(super) fn fit_to(&self, now: Timestamp, bytes_max: usize) {
        self.fit(&mut self.kept.lock(), now, bytes_max);
    }

    /// The recorded decisions, nearly in the order of their receipt, and the state of the record.
    pub(super) fn recorded(&self) -> (Recorded, RecorderStatus) {
        let kept = self.kept.lock();
        let rounds = kept.rounds.iter().map(|round| round.bytes.clone()).collect();
        let status = self.status_of(&kept);
        (Recorded { rounds, share: status.share }, status)
    }
}

impl Kept {
    fn bytes(&self) -> usize {
        self.rounds.iter().map(|round| round.bytes.len()).sum()
    }
}

impl Round {
    /// The records of the requests that are still selected after `halvings`.
    fn new<'r>(at: Timestamp, halvings: u32, records: impl Iterator<Item = (Timestamp, &'r [u8])>) -> Self {
        let selected = records.map(|(_, bytes)| bytes);
        let selected: Vec<&[u8]> = selected.filter(|bytes| is_selected_record(halvings, bytes)).collect();
        Self { at, decisions: selected.len(), bytes: selected.concat() }
    }

    fn records(&self) -> impl Iterator<Item = (Timestamp, &[u8])> {
        encoded(&self.bytes)
    }
}

/// Recorded decisions, encoded.
pub(super) struct Recorded {
    rounds: Vec<Vec<u8>>,
    share: f64,
}

impl Recorded {
    /// The decisions that were received at `from` or later, and the later cancellations.
    pub(super) fn steps(&self, from: Timestamp) -> impl Iterator<Item = Step> {
        let records = self.rounds.iter().flat_map(|bytes| decode_records(bytes));
        let records = records.filter(move |record| record.received >= from.as_nanos());
        records.map(|record| step(&record, self.share))
    }
}

fn share(halvings: u32) -> f64 {
    0.5_f64.powi(halvings.min(HALVINGS_MAX) as i32)
}

fn is_selected(halvings: u32, hash: impl FnOnce() -> u64) -> bool {
    halvings == 0 || hash().leading_zeros() >= halvings
}

fn is_selected_record(halvings: u32, bytes: &[u8]) -> bool {
    if halvings == 0 {
        return true;
    }
    // A cancellation does not contain the values of its request. Cancellations are few.
    let is_kept =
        |record: Record<'_>| record.is_cancellation() || is_selected(halvings, || hash_of_record(&record));
    decode_records(bytes).next().is_some_and(is_kept)
}

/// The encoded records of a buffer, each with its time.
fn encoded(bytes: &[u8]) -> impl Iterator<Item = (Timestamp, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        // A record is preceded by its length.
        let length = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        let record = rest.split_off(..length + size_of::<u32>())?;
        let received = decode_records(record).next()?.received;
        Some((Timestamp::from_nanos(received), record))
    })
}

fn hash_of_record(record: &Record<'_>) -> u64 {
    let entries = record.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    sample_hash(record.domain, entries.copied())
}

/// The step to repeat.
fn step(record: &Record<'_>, sample: f64) -> Step {
    // Decisions of a shared store have no number, and are in the order of time.
    let place = (record.number > 0).then_some(Place {
        run: THIS_PROCESS,
        number: record.number,
        generation: record.generation,
    });
    match record.is_cancellation() {
        true => Step::Cancelled(CancelledStep {
            time: Timestamp::from_nanos(record.received),
            place,
            ticket: record.ticket.into(),
        }),
        false => Step::Decision(decision_of(record, place, sample)),
    }
}

fn decision_of(record: &Record<'_>, place: Option<Place>, sample: f64) -> Decided {
    let descriptor = |of: &DescriptorRecord<'_>| EventDescriptor {
        entries: of.entries.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        hits: of.hits,
        own_limit: of.own_limit.map(|(requests, unit)| tidegate_core::limit::RequestLimit { requests, unit }),
        recorded: Some(RecordedStatus {
            code: of.code,
            remaining: of.remaining,
            reset: of.limit.as_ref().and(of.reset),
            rule: of.limit.as_ref().map(|limit| limit.rule.into()),
        }),
    };
    Decided {
        time: Timestamp::from_nanos(record.received),
        domain: record.domain.into(),
        descriptors: record.descriptors.iter().map(descriptor).collect(),
        code: record.code,
        sample,
        place,
        is_report: record.is_report,
        is_hashed: false,
        ticket: (!record.ticket.is_empty()).then(|| record.ticket.into()),
    }
}
