//! A counter of the server of which this process may hold credits.

use super::messages::CounterId;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tidegate_core::sync::{Mutex, MutexGuard};
use tidegate_shared::lease::{Holder, HolderTerms, LeaseRequest, LeaseResponse, Monotonic, NodeId};

/// A counter.
pub(super) struct Counter {
    pub(super) id: CounterId,
    /// None once it is dropped: the server decides, and what is known of requests to it is learnt anew.
    holder: Mutex<Option<Holder>>,
    /// Nanoseconds of the clock at which a claim may be due. Changed under the lock of the holder.
    look_at: AtomicU64,
    /// Nanoseconds of the clock at its last use. Changed under the lock of the holder.
    used_at: AtomicU64,
}

/// The locked holder of a counter.
pub(super) type LockedHolder<'c> = MutexGuard<'c, Option<Holder>>;

impl Counter {
    pub(super) fn new(id: CounterId, terms: HolderTerms, now: Monotonic) -> Arc<Self> {
        let holder = Mutex::new(Some(Holder::new(terms, now)));
        let time = || AtomicU64::new(now.as_nanos());
        Arc::new(Self { id, holder, look_at: time(), used_at: time() })
    }

    pub(super) fn lock(&self) -> LockedHolder<'_> {
        self.holder.lock()
    }

    pub(super) fn is_dropped(&self) -> bool {
        self.lock().is_none()
    }

    /// Takes note of a decision by its locked holder: by what that spent, a claim may be due earlier.
    pub(super) fn was_used(&self, holder: &Holder, now: Monotonic) {
        self.used_at.store(now.as_nanos(), Ordering::Relaxed);
        let before = Monotonic::from_nanos(self.look_at.load(Ordering::Relaxed));
        let mut look_at = before;
        holder.lower_next_look(&mut look_at, now);
        if look_at != before {
            self.look_at.store(look_at.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Whether a claim may be due.
    pub(super) fn may_be_due(&self, now: Monotonic) -> bool {
        self.look_at.load(Ordering::Relaxed) <= now.as_nanos()
    }

    /// The claim that is due, if one is, and whether the counter is kept: without use a new one would do the same.
    pub(super) fn claim(&self, node: NodeId, now: Monotonic) -> (Option<LeaseRequest>, bool) {
        let mut locked = self.lock();
        let Some(holder) = &mut *locked else { return (None, false) };
        holder.drop_expired(now);
        let claim = holder.poll(node, now);
        let unused = now.nanos_since(Monotonic::from_nanos(self.used_at.load(Ordering::Relaxed)));
        let is_kept = claim.is_some() || unused < UNUSED_NANOS || !holder.is_idle(now);
        // A holder without credits is due by requests, which are counted wherever they are decided: looked at before it is idle.
        let latest = now.plus_nanos(LOOK_NANOS_MAX);
        self.look_at.store(holder.next_look().min(latest).as_nanos(), Ordering::Relaxed);
        if !is_kept {
            *locked = None;
        }
        (claim, is_kept)
    }

    /// Takes the response to a claim.
    pub(super) fn accept(&self, grant: &LeaseResponse, now: Monotonic) {
        if let Some(holder) = &mut *self.lock() {
            holder.accept(grant, now);
            let look_at = holder.next_look().as_nanos();
            self.look_at.fetch_min(look_at, Ordering::Relaxed);
        }
    }

    /// Drops the holder. The claim gives back its credits, and reports what it spent.
    pub(super) fn retire(&self, node: NodeId, now: Monotonic) -> Option<LeaseRequest> {
        self.lock().take()?.release(node, now)
    }
}

/// Nanoseconds without use after which a counter may be dropped.
const UNUSED_NANOS: u64 = 1_000_000_000;
/// The longest time between two looks at a holder.
const LOOK_NANOS_MAX: u64 = 25_000_000;
