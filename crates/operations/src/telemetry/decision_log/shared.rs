//! The state that deciding threads share with the writing thread.

use super::{
    assignments::Assignments,
    changes::{ResetRecord, RulesRecord},
    queue::Queue,
};
use foldhash::fast::FixedState;
use parking_lot::Mutex as Lock;
use std::{
    hash::{BuildHasher as _, Hasher as _},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64},
    },
    thread::Thread,
};
use tidegate_core::{limit::Request, limiter::Limiter};
use tidegate_service::sampled_values;
use tidegate_threads::BackgroundThread;

/// The share of requests that is logged. It is chosen by their domain and values, so that all requests of a client are logged, or none.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SampleRate(pub(super) f64);

impl SampleRate {
    /// Every request.
    pub const ALL: Self = Self(1.0);

    /// A share from 0 to 1.
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self(share))
    }

    /// Whether the sample has the request.
    pub(super) fn has(self, request: &Request<'_>) -> bool {
        self == Self::ALL || self.takes(sample_hash_of(request))
    }

    /// Whether a request with this hash is logged.
    pub(super) fn takes(self, hash: u64) -> bool {
        // A double holds 53 bits exactly.
        ((hash >> 11) as f64) < self.0 * (1_u64 << 53) as f64
    }
}

/// A hash of the domain and of the values of entries. It is the same in every process of a version.
#[inline]
pub(crate) fn sample_hash<'t>(
    domain: &str,
    entries: impl Iterator<Item = (&'t str, &'t str)> + Clone,
) -> u64 {
    const STATE: FixedState = FixedState::with_seed(0);
    let mut hasher = STATE.build_hasher();
    hasher.write(domain.as_bytes());
    sampled_values(entries).for_each(|value| hasher.write(value.as_bytes()));
    hasher.finish()
}

/// The hash of a request.
#[inline]
pub(crate) fn sample_hash_of(request: &Request<'_>) -> u64 {
    let entries = request.descriptors().iter().flat_map(|descriptor| &descriptor.entries);
    sample_hash(request.domain(), entries.map(|entry| (entry.key, entry.value)))
}

pub(super) struct Shared {
    pub(super) queue: Queue,
    pub(super) sample: SampleRate,
    pub(super) sample_denials: SampleRate,
    /// The limiter whose rules redact.
    pub(super) limiter: OnceLock<Arc<Limiter>>,
    pub(super) writer: OnceLock<Thread>,
    /// Rules that were put in force and are not written yet.
    pub(super) rules: Lock<Vec<RulesRecord>>,
    /// Removed counters that are not written yet.
    pub(super) resets: Lock<Vec<ResetRecord>>,
    /// Assignments of quotas that are not written yet.
    pub(super) assignments: Assignments,
    pub(super) reopen: AtomicBool,
    pub(super) stop: AtomicBool,
    /// The writing thread. It ends when everything is written.
    pub(super) thread: Lock<Option<BackgroundThread>>,
    pub(super) written: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl Shared {
    /// Lines for which there was no room.
    pub(super) fn dropped(&self) -> u64 {
        self.queue.dropped() + self.assignments.dropped()
    }

    /// The number of an event. If it has none, it takes one now: a shared store made the decision, or a queue released it, and it changed
    /// no counter.
    pub(super) fn number(&self, number: u64) -> u64 {
        match number {
            0 => self.limiter.get().map_or(0, |limiter| limiter.store().next_number()),
            number => number,
        }
    }

    pub(super) fn wake_writer(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }
}
