//! Requests that this process decides: the counters of each, and decisions by their credits and kept denials.
//!
//! Invariants:
//!
//! - All counters of a request are charged, or none: their holders are locked together, in one order.
//! - A kept denial is a denial by the server for the same descriptors: with the body and headers of its rules.
//! - The number of known requests is bounded; the server decides all others.

use super::{
    counter::{Counter, LockedHolder},
    messages::Additions,
};
use crate::{
    response::Consequence,
    status::{ShownLimit, ShownStatus},
};
use smallvec::SmallVec;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};
use tidegate_core::{
    limit::{Hits, Request},
    store::{Fingerprint, Key, Seed},
    sync::Mutex,
};
use tidegate_shared::lease::{HolderDecision, Monotonic};

/// Shards of the requests, a power of two: a sweep of one holds its lock for some microseconds.
pub(super) const SHARDS: usize = 512;
/// The most requests of a shard. Each takes some 300 bytes.
const REQUESTS_MAX: usize = 128;
/// Nanoseconds after its last use at which a request without counters is dropped.
const REQUEST_UNUSED_NANOS: u64 = 10_000_000_000;
/// Nanoseconds within which two uses count as one.
const USE_NANOS: u64 = 1_000_000_000;
/// The most sets of descriptors for which denials are kept.
const DENIALS_MAX: usize = 8;

/// Hits of each descriptor.
pub(super) type HitList = SmallVec<[u64; 2]>;

/// The requests that are known, by fingerprint.
pub(super) struct KnownRequests {
    seed: Seed,
    shards: Box<[Mutex<Shard>]>,
}

/// Some of the requests.
type Shard = HashMap<Key, Arc<Known>>;

/// The denials of a request, by the set of descriptors that were over, as bits.
type KeptDenials = SmallVec<[(u64, Arc<KeptDenial>); 1]>;

/// A request that is known.
pub(super) struct Known {
    /// The counter of each descriptor; none if nothing limits it.
    parts: SmallVec<[Option<Part>; 2]>,
    /// The indices of descriptors with counters, in the order of locking.
    order: SmallVec<[usize; 2]>,
    denials: Mutex<KeptDenials>,
    used_at: AtomicU64,
}

/// The counter of a descriptor, and its limit as headers show it.
pub(super) struct Part {
    pub(super) counter: Arc<Counter>,
    pub(super) limit: Option<ShownLimit<Box<str>>>,
    /// Hits that remained as of the last response of the server.
    pub(super) remaining: AtomicU32,
}

/// The response to requests that certain descriptors deny.
struct KeptDenial {
    /// False if the rules let such requests pass with a mark.
    is_denied: bool,
    additions: Additions,
}

/// A decision of this process.
pub(crate) struct LocalDecision {
    known: Arc<Known>,
    denial: Option<Arc<KeptDenial>>,
    /// Numbers of each counter, in the order of descriptors.
    numbers: SmallVec<[Numbers; 2]>,
    /// Whether the thread has to be woken for a claim.
    pub(super) needs_claim: bool,
}

#[derive(Clone, Copy)]
struct Numbers {
    is_over: bool,
    remaining: u32,
    reset: Duration,
}

impl KnownRequests {
    pub(super) fn new(seed: Seed) -> Self {
        Self { seed, shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// Returns the fingerprint of a request, and its hits; none if credits can never decide it.
    pub(super) fn key(&self, request: &Request<'_>) -> Option<(Key, HitList)> {
        let mut key = Fingerprint::new(&self.seed);
        key.text(request.domain());
        let mut hits = HitList::new();
        for descriptor in request.descriptors() {
            let (Hits::Take(own), None) = (descriptor.hits, descriptor.limit) else { return None };
            hits.push(own.get());
            key.number(descriptor.entries.len() as u64);
            for entry in &descriptor.entries {
                key.text(entry.key);
                key.text(entry.value);
            }
        }
        (hits.len() <= u64::BITS as usize).then(|| (key.finish(), hits))
    }

    pub(super) fn find(&self, key: Key) -> Option<Arc<Known>> {
        self.shard(key).lock().get(&key).map(Arc::clone)
    }

    /// Adds a known request, unless there are too many.
    pub(super) fn insert(&self, key: Key, known: Known) -> Option<Arc<Known>> {
        let known = Arc::new(known);
        let mut shard = self.shard(key).lock();
        let has_room = shard.len() < REQUESTS_MAX || shard.contains_key(&key);
        has_room.then(|| shard.insert(key, Arc::clone(&known)));
        has_room.then_some(known)
    }

    /// Drops all known requests.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let former = std::mem::take(&mut *shard.lock());
            // Dropped without the lock.
            drop(former);
        }
    }

    /// Drops the requests of one shard that are of no use.
    pub(super) fn sweep(&self, shard: usize, now: Monotonic) {
        let mut shard = self.shards[shard % SHARDS].lock();
        let removed: Vec<_> = shard.extract_if(|_, known| !known.is_of_use(now)).collect();
        // Dropped without the lock.
        drop(shard);
        drop(removed);
    }

    fn shard(&self, key: Key) -> &Mutex<Shard> {
        &self.shards[key.halves().0 as usize % SHARDS]
    }
}

impl Known {
    /// A request with these counters; none if two descriptors have the same counter.
    pub(super) fn new(parts: SmallVec<[Option<Part>; 2]>, now: Monotonic) -> Option<Self> {
        let id = |index: &usize| parts[*index].as_ref().map(|part| part.counter.id);
        let mut order: SmallVec<[usize; 2]> =
            (0..parts.len()).filter(|&index| parts[index].is_some()).collect();
        order.sort_by_key(id);
        if order.windows(2).any(|two| id(&two[0]) == id(&two[1])) {
            return None;
        }
        Some(Self { parts, order, denials: Mutex::default(), used_at: AtomicU64::new(now.as_nanos()) })
    }

    /// Applies the numbers of a later response; false if it has other counters.
    pub(super) fn renew(&self, parts: &[Option<Part>]) -> bool {
        let is_same = self.parts.len() == parts.len()
            && self.parts.iter().zip(parts).all(|(own, other)| match (own, other) {
                (Some(own), Some(other)) => Arc::ptr_eq(&own.counter, &other.counter),
                (own, other) => own.is_none() && other.is_none(),
            });
        if is_same {
            for (own, other) in self.parts.iter().flatten().zip(parts.iter().flatten()) {
                own.remaining.store(other.remaining.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        is_same
    }

    /// Keeps the response to requests that these descriptors deny.
    pub(super) fn keep_denial(&self, over: u64, is_denied: bool, additions: &Additions) {
        let mut denials = self.denials.lock();
        match denials.iter_mut().find(|(own, _)| *own == over) {
            Some((_, denial)) if denial.is_denied == is_denied && denial.additions == *additions => {}
            Some((_, denial)) => *denial = Arc::new(KeptDenial { is_denied, additions: additions.clone() }),
            None => {
                if denials.len() == DENIALS_MAX {
                    denials.remove(0);
                }
                denials.push((over, Arc::new(KeptDenial { is_denied, additions: additions.clone() })));
            }
        }
    }

    /// Decides a request if credits cover it, or if a denial by its counters is kept. With a denial, the numbers of the other counters are
    /// as of the last response.
    ///
    /// `clock` is read under the locks: with an earlier reading, a thread that was suspended since would spend expired credits.
    pub(super) fn decide(
        self: &Arc<Self>,
        hits: &[u64],
        clock: impl FnOnce() -> Monotonic,
    ) -> Option<LocalDecision> {
        let mut locked: SmallVec<[(usize, LockedHolder<'_>); 2]> = self
            .order
            .iter()
            .filter_map(|&index| Some((index, self.parts[index].as_ref()?.counter.lock())))
            .collect();
        let now = clock();
        self.was_used(now);
        if locked.iter().any(|(_, holder)| holder.is_none()) {
            return None;
        }
        let mut holders: SmallVec<[_; 2]> =
            locked.iter_mut().filter_map(|(index, holder)| Some((*index, holder.as_mut()?))).collect();
        // If a counter is not leased, the server decides and no credits of the others are spent: then only the demand for the unleased
        // counter counts.
        let are_leased = holders.iter().all(|(_, holder)| holder.is_leased());
        let (mut over, mut is_known) = (0_u64, true);
        let decisions: SmallVec<[HolderDecision; 2]> = holders
            .iter_mut()
            .map(|(index, holder)| {
                let decision = match are_leased || !holder.is_leased() {
                    true => holder.evaluate(hits[*index], now),
                    false => holder.preview(hits[*index], now),
                };
                match decision {
                    HolderDecision::Covered => {}
                    HolderDecision::Denied { .. } => over |= 1 << *index,
                    HolderDecision::Undecided => is_known = false,
                }
                decision
            })
            .collect();
        let is_admitted = over == 0 && is_known;
        let mut needs_claim = false;
        let mut numbers: SmallVec<[(usize, Numbers); 2]> = SmallVec::new();
        for ((index, holder), decision) in holders.iter_mut().zip(decisions) {
            if is_admitted {
                holder.spend(hits[*index], now);
            }
            let Some(part) = &self.parts[*index] else { continue };
            needs_claim |= part.counter.was_used(holder, now);
            let (remaining, reset, is_over) = match decision {
                HolderDecision::Denied { until, remaining } => {
                    (remaining, Duration::from_nanos(until.nanos_since(now).max(1)), true)
                }
                HolderDecision::Covered => (holder.remaining(now), holder.until_full(now), false),
                HolderDecision::Undecided => {
                    let last = part.remaining.load(Ordering::Relaxed);
                    (holder.remaining(now).max(last.into()), holder.until_full(now), false)
                }
            };
            let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
            numbers.push((*index, Numbers { is_over, remaining, reset }));
        }
        let denial = match over {
            0 if is_known => None,
            0 => return None,
            // The body and headers of a denial that the server has not yet made are unknown.
            over => Some(self.denial_of(over)?),
        };
        numbers.sort_by_key(|(index, _)| *index);
        let numbers = numbers.into_iter().map(|(_, numbers)| numbers).collect();
        Some(LocalDecision { known: Arc::clone(self), denial, numbers, needs_claim })
    }

    fn denial_of(&self, over: u64) -> Option<Arc<KeptDenial>> {
        self.denials.lock().iter().find(|(own, _)| *own == over).map(|(_, denial)| Arc::clone(denial))
    }

    fn was_used(&self, now: Monotonic) {
        if now.as_nanos().saturating_sub(self.used_at.load(Ordering::Relaxed)) > USE_NANOS {
            self.used_at.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    fn is_of_use(&self, now: Monotonic) -> bool {
        match self.order.is_empty() {
            true => {
                now.as_nanos().saturating_sub(self.used_at.load(Ordering::Relaxed)) < REQUEST_UNUSED_NANOS
            }
            false => !self.parts.iter().flatten().any(|part| part.counter.is_dropped()),
        }
    }
}

impl LocalDecision {
    /// Whether the counters do not admit the request.
    pub(crate) fn is_over(&self) -> bool {
        self.denial.is_some()
    }

    /// Its effects, before the filter's own headers.
    pub(crate) fn consequence(&self) -> Consequence {
        match &self.denial {
            Some(denial) => denial.additions.consequence(denial.is_denied),
            None => Consequence::default(),
        }
    }

    /// The status of each descriptor.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = ShownStatus<&str>> + Clone {
        let mut numbers = self.numbers.iter();
        self.known.parts.iter().map(move |part| {
            let own = part.as_ref().and_then(|part| Some((part, numbers.next()?)));
            match own {
                Some((part, numbers)) => ShownStatus {
                    is_over: numbers.is_over,
                    limit: part.limit.as_ref().map(ShownLimit::borrowed),
                    remaining: numbers.remaining,
                    reset_seconds: numbers.reset.as_nanos().div_ceil(1_000_000_000) as u64,
                },
                None => ShownStatus::default(),
            }
        })
    }
}
