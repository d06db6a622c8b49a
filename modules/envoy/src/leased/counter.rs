//! A counter of the server, for which this process may hold credits.

use super::messages::CounterId;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use tidegate_core::sync::{Mutex, MutexGuard};
use tidegate_shared::lease::{Holder, LeaseRequest, LeaseResponse, Monotonic, NodeId};

/// Nanoseconds without use after which a counter may be dropped.
const COUNTER_UNUSED_NANOS: u64 = 1_000_000_000;
/// The shortest time between two checks of an unused counter without credits.
const UNUSED_LOOK_NANOS: u64 = 25_000_000;

/// A counter.
pub(super) struct Counter {
    pub(super) id: CounterId,
    /// None once it is dropped: the server decides, and the counters of requests to it are learnt anew.
    holder: Mutex<Option<Holder>>,
    is_dropped: AtomicBool,
    /// Nanoseconds of the clock at which a claim may be due. Changed under the lock of the holder.
    look_at: AtomicU64,
    /// Nanoseconds of the clock at its last use. Changed under the lock of the holder.
    used_at: AtomicU64,
    /// Whether it is listed in `moved`.
    is_moved: AtomicBool,
    moved: Arc<Moved>,
}

/// Counters that a decision has made due earlier.
#[derive(Default)]
pub(super) struct Moved {
    counters: Mutex<Vec<CounterId>>,
    /// Nanoseconds of the clock at which the thread checks by itself.
    next_look: AtomicU64,
}

impl Moved {
    pub(super) fn take(&self) -> Vec<CounterId> {
        std::mem::take(&mut *self.counters.lock())
    }

    /// Sets the time until which the thread sleeps. False if a decision has since moved a counter without waking the thread.
    pub(super) fn may_sleep_until(&self, next_look: Monotonic) -> bool {
        self.next_look.store(next_look.as_nanos(), Ordering::Relaxed);
        // A decision lists its counter before it reads the time: so either the list has the counter, or the decision sees the time.
        self.counters.lock().is_empty()
    }

    /// Lists a counter; returns whether the thread has to be woken to check it in time.
    fn add(&self, id: CounterId, look_at: Monotonic) -> bool {
        self.counters.lock().push(id);
        look_at.as_nanos() < self.next_look.load(Ordering::Relaxed)
    }
}

/// The locked holder of a counter.
pub(super) type LockedHolder<'c> = MutexGuard<'c, Option<Holder>>;

impl Counter {
    pub(super) fn new(id: CounterId, holder: Holder, moved: Arc<Moved>, now: Monotonic) -> Arc<Self> {
        let holder = Mutex::new(Some(holder));
        let time = || AtomicU64::new(now.as_nanos());
        let (is_dropped, is_moved) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { id, holder, is_dropped, look_at: time(), used_at: time(), is_moved, moved })
    }

    pub(super) fn lock(&self) -> LockedHolder<'_> {
        self.holder.lock()
    }

    pub(super) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Relaxed)
    }

    /// Notes a decision by the locked holder: the credits it spent may make a claim due earlier. Returns whether the thread has to be woken
    /// for that.
    pub(super) fn was_used(&self, holder: &Holder, now: Monotonic) -> bool {
        self.used_at.store(now.as_nanos(), Ordering::Relaxed);
        let before = Monotonic::from_nanos(self.look_at.load(Ordering::Relaxed));
        let mut look_at = before;
        holder.lower_next_look(&mut look_at, now);
        if look_at == before {
            return false;
        }
        self.look_at.store(look_at.as_nanos(), Ordering::Relaxed);
        !self.is_moved.swap(true, Ordering::AcqRel) && self.moved.add(self.id, look_at)
    }

    /// Called before it is put in the order: a later decision that moves it lists it again.
    pub(super) fn is_not_moved(&self) {
        self.is_moved.swap(false, Ordering::AcqRel);
    }

    /// Nanoseconds of the clock at which a claim may be due.
    pub(super) fn look_at(&self) -> u64 {
        self.look_at.load(Ordering::Relaxed)
    }

    /// Returns the claim that is due, if any, and whether the counter is kept: a new counter would do the same as an unused one.
    pub(super) fn claim(&self, node: NodeId, now: Monotonic) -> (Option<LeaseRequest>, bool) {
        let mut locked = self.lock();
        let Some(holder) = &mut *locked else { return (None, false) };
        holder.drop_expired(now);
        let claim = holder.poll(node, now);
        let used_at = self.used_at.load(Ordering::Relaxed);
        let unused = now.nanos_since(Monotonic::from_nanos(used_at));
        let is_kept = claim.is_some() || unused < COUNTER_UNUSED_NANOS || !holder.is_idle(now);
        // Without credits, only requests make a claim due: until then the counter is checked only to be dropped.
        let is_passive = claim.is_none() && holder.credits(now) == 0 && holder.next_look() <= now;
        let look_at = match is_passive {
            true => {
                now.plus_nanos(UNUSED_LOOK_NANOS).as_nanos().max(used_at.saturating_add(COUNTER_UNUSED_NANOS))
            }
            // Later than now, so that one pass checks each counter once.
            false => holder.next_look().as_nanos().max(now.as_nanos() + 1),
        };
        self.look_at.store(look_at, Ordering::Relaxed);
        if !is_kept {
            *locked = None;
            self.is_dropped.store(true, Ordering::Relaxed);
        }
        (claim, is_kept)
    }

    /// Applies the response to a claim.
    pub(super) fn accept(&self, grant: &LeaseResponse, now: Monotonic) {
        if let Some(holder) = &mut *self.lock() {
            holder.accept(grant, now);
            self.look_at.store(holder.next_look().as_nanos(), Ordering::Relaxed);
        }
    }

    /// Drops the holder. The claim returns its credits, and reports the credits spent.
    pub(super) fn retire(&self, node: NodeId, now: Monotonic) -> Option<LeaseRequest> {
        self.is_dropped.store(true, Ordering::Relaxed);
        self.lock().take()?.release(node, now)
    }
}
