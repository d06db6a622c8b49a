//! The leases that this server holds. Decides requests by credits in hand and by kept denials, and returns the requests for credits that
//! are due. No sockets: `store/leasing.rs` carries the requests.
//!
//! Invariants:
//!
//! - All counters of a request are charged, or none: their shards are locked together, in ascending order.
//! - Credits are spent only under the algorithm for which they were granted. If the algorithm changes, they are released.
//! - The number of holders is bounded; the store decides a counter without a holder.

mod figures;
mod recent;
mod shard;

pub use figures::{LeaseCounts, LeaseEvent};

use super::lease::{
    Holder, HolderDecision, LeaseRequest, LeaseResponse, Monotonic, NodeId, ResponseState, Settings,
    StoreDenial, Terms,
};
use hashbrown::{
    HashMap,
    hash_map::{self, VacantEntry},
};
use recent::Recent;
use shard::{Entry, Hasher, Locked, SHARDS, Shard, shard_of};
use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};
use tidegate_core::{
    algorithm::Algorithm,
    clock::since_boot,
    limit::{Code, Decision, Reset},
    limiter::{LeasableCharge, LeasedStatus, leased_decision},
    store::Key,
    sync::Mutex,
};

/// Each holder is looked at this often in one lease length, or more often.
const LOOKS_PER_LENGTH: u64 = 8;

/// The most holders. A holder takes some 400 bytes.
const HOLDERS_MAX: usize = 16_384;

/// The holders of all counters that this server decides often.
pub struct Holders {
    /// Length of a lease, and so on.
    pub settings: Settings,
    /// This server.
    pub node: NodeId,
    shards: Box<[Mutex<Shard>]>,
    recent: Recent,
    holders: AtomicUsize,
    /// The store's epoch, as of the last reply; zero before the first.
    epoch: AtomicU64,
    /// The figures.
    pub counts: LeaseCounts,
}

/// A request for credits that is due.
#[derive(Clone, Debug)]
pub struct DueRequest {
    /// Key of the counter.
    pub key: Key,
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// The request.
    pub request: LeaseRequest,
}

impl Holders {
    /// Without credits, for a server with this random number.
    pub fn new(settings: Settings, node: u64) -> Self {
        Self {
            settings,
            node: NodeId(node),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            recent: Recent::new(settings.length_nanos()),
            holders: AtomicUsize::new(0),
            epoch: AtomicU64::new(0),
            counts: LeaseCounts::default(),
        }
    }

    /// The time of leases. No credit is valid for longer because this server or its machine was suspended.
    pub fn now() -> Monotonic {
        Monotonic::from_nanos(since_boot())
    }

    /// The decision on a request with these charges, if credits cover all of them, or if a denial is kept and the status of every
    /// descriptor is known. None if the store has to decide.
    ///
    /// `clock` is read under the locks. After an earlier reading a thread may be suspended: it would then spend credits that have expired,
    /// and date hits before those of other threads.
    pub fn decide<'r>(
        &self,
        charges: &[Option<LeasableCharge<'r>>],
        clock: impl FnOnce() -> Monotonic,
    ) -> Option<Decision<'r>> {
        if let [Some(charge)] = charges {
            return self.decide_one(charges, charge, clock);
        }
        let mut shards = Locked::new(&self.shards, charges);
        let now = clock();
        if !self.are_leased(charges, &mut shards, now) {
            return None;
        }
        let (mut is_admitted, mut is_known) = (true, true);
        for charge in charges.iter().flatten() {
            match self.evaluate(shards.of(charge.key()), charge, now) {
                Some(HolderDecision::Covered) => {}
                Some(HolderDecision::Denied { .. }) => is_admitted = false,
                Some(HolderDecision::Undecided) | None => is_known = false,
            }
        }
        if !is_known {
            return None;
        }
        let statuses = charges.iter().flatten().map(|charge| {
            let Shard { entries, look_at, .. } = shards.of(charge.key());
            let Entry { holder, algorithm, .. } =
                entries.get_mut(&charge.key()).expect("it was evaluated under the same lock");
            let decision = if is_admitted {
                holder.spend(charge.hits(), now);
                HolderDecision::Covered
            } else {
                holder.preview(charge.hits(), now)
            };
            holder.lower_next_look(look_at, now);
            status((holder, algorithm), charge.hits(), decision, now)
        });
        let decision = leased_decision(charges, statuses);
        self.counts.events.count(decision.code.into());
        Some(decision)
    }

    /// Decides a request with one counter, as most have.
    #[inline]
    fn decide_one<'r>(
        &self,
        charges: &[Option<LeasableCharge<'r>>],
        charge: &LeasableCharge<'r>,
        clock: impl FnOnce() -> Monotonic,
    ) -> Option<Decision<'r>> {
        let mut shard = self.shards[shard_of(charge.key())].lock();
        let now = clock();
        let Shard { entries, look_at, .. } = &mut *shard;
        let Entry { holder, algorithm, .. } = self.entry(entries, look_at, charge, now)?;
        let decision = holder.decide(charge.hits(), now);
        holder.lower_next_look(look_at, now);
        if decision == HolderDecision::Undecided {
            return None;
        }
        let status = status((holder, algorithm), charge.hits(), decision, now);
        drop(shard);
        let decision = leased_decision(charges, [status].into_iter());
        self.counts.events.count(decision.code.into());
        Some(decision)
    }

    /// Whether every counter has a holder and is leased. If a counter is not leased, the store decides, and credits of the others are not
    /// spent. Only the demand for the counter without a lease is counted then.
    fn are_leased(
        &self,
        charges: &[Option<LeasableCharge<'_>>],
        shards: &mut Locked<'_>,
        now: Monotonic,
    ) -> bool {
        let mut are_leased = true;
        for charge in charges.iter().flatten() {
            let Shard { entries, look_at, .. } = shards.of(charge.key());
            are_leased &= match self.entry(entries, look_at, charge, now) {
                Some(entry) if !entry.holder.is_leased() => {
                    entry.holder.evaluate(charge.hits(), now);
                    false
                }
                Some(_) => true,
                None => false,
            };
        }
        are_leased
    }

    /// Counts hits as demanded, and returns what to do with them; none without a holder.
    fn evaluate(
        &self,
        shard: &mut Shard,
        charge: &LeasableCharge<'_>,
        now: Monotonic,
    ) -> Option<HolderDecision> {
        let Entry { holder, .. } = shard.entries.get_mut(&charge.key())?;
        Some(holder.evaluate(charge.hits(), now))
    }

    /// The holder of a counter. None if it has none yet (enough requests make one), or if its rule has changed.
    #[inline]
    fn entry<'s>(
        &self,
        entries: &'s mut HashMap<Key, Entry, Hasher>,
        look_at: &mut Monotonic,
        charge: &LeasableCharge<'_>,
        now: Monotonic,
    ) -> Option<&'s mut Entry> {
        match entries.entry(charge.key()) {
            hash_map::Entry::Occupied(occupied) => {
                let entry = occupied.into_mut();
                if entry.algorithm == *charge.algorithm() && !entry.has_changed {
                    return Some(entry);
                }
                // Released under the new algorithm: under the former one, the store would convert the counter back.
                (entry.algorithm, entry.has_changed) = (charge.algorithm().clone(), true);
                *look_at = now;
            }
            hash_map::Entry::Vacant(vacant) => {
                let terms = Terms { algorithm: charge.algorithm(), settings: self.settings };
                if !terms.is_small() && self.recent.is_hot(charge.key(), now) {
                    self.insert(vacant, look_at, charge.algorithm(), now);
                }
            }
        }
        None
    }

    fn insert<'s>(
        &self,
        vacant: VacantEntry<'s, Key, Entry, Hasher>,
        look_at: &mut Monotonic,
        algorithm: &Algorithm,
        now: Monotonic,
    ) -> Option<&'s mut Entry> {
        let terms = Terms::of(algorithm, self.settings)?;
        if self.holders.fetch_add(1, Ordering::Relaxed) >= HOLDERS_MAX {
            self.holders.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        *look_at = now;
        let holder = Holder::new(terms.for_holder(), now);
        Some(vacant.insert(Entry { holder, algorithm: algorithm.clone(), has_changed: false }))
    }

    /// Keeps a denial that the store returned now, to a request sent at `sent`.
    pub fn keep_denial(&self, charge: &LeasableCharge<'_>, denied: StoreDenial, sent: Monotonic) {
        let key = charge.key();
        let mut shard = self.shards[shard_of(key)].lock();
        let now = Self::now();
        let Shard { entries, look_at, .. } = &mut *shard;
        let entry = match entries.entry(key) {
            hash_map::Entry::Occupied(occupied) => Some(occupied.into_mut()),
            hash_map::Entry::Vacant(vacant) => self.insert(vacant, look_at, charge.algorithm(), now),
        };
        if let Some(entry) = entry.filter(|entry| entry.algorithm == *charge.algorithm()) {
            entry.holder.keep_denial(denied, sent, now);
        }
    }

    /// Notes that the store has admitted hits of a counter, and that `remaining` are left.
    pub fn admitted(&self, key: Key, remaining: u64) {
        let mut shard = self.shards[shard_of(key)].lock();
        let now = Self::now();
        if let Some(Entry { holder, .. }) = shard.entries.get_mut(&key) {
            holder.admitted(remaining, now);
        }
    }

    /// Drops the kept denial of a counter to which hits were given back.
    pub fn drop_denial(&self, key: Key) {
        if let Some(entry) = self.shards[shard_of(key)].lock().entries.get_mut(&key) {
            entry.holder.drop_denial();
        }
    }

    /// Whether there are any holders.
    pub fn is_empty(&self) -> bool {
        self.holders.load(Ordering::Relaxed) == 0
    }

    /// The requests that are due. Drops holders that do the same as a new holder would.
    pub fn due(&self, now: Monotonic) -> Vec<DueRequest> {
        let (mut due, mut held) = (Vec::new(), 0);
        for shard in &self.shards {
            let mut shard = shard.lock();
            if shard.look_at <= now {
                self.look(&mut shard, &mut due, now);
            }
            held += shard.held;
        }
        self.counts.held.store(held, Ordering::Relaxed);
        due
    }

    fn look(&self, shard: &mut Shard, due: &mut Vec<DueRequest>, now: Monotonic) {
        let Shard { entries, look_at, held } = shard;
        (*look_at, *held) = (now.plus_nanos(self.settings.length_nanos() / LOOKS_PER_LENGTH), 0);
        entries.retain(|&key, entry| {
            let Entry { holder, algorithm, has_changed } = entry;
            self.counts.events.add(LeaseEvent::Wasted, holder.drop_expired(now));
            let request = match has_changed {
                true => holder.release(self.node, now),
                false => holder.poll(self.node, now),
            };
            let is_kept = !*has_changed && (request.is_some() || !holder.is_idle(now));
            *held += u64::from(holder.credits(now) > 0);
            *look_at = holder.next_look().min(*look_at);
            due.extend(request.map(|request| DueRequest { key, algorithm: algorithm.clone(), request }));
            if !is_kept {
                self.holders.fetch_sub(1, Ordering::Relaxed);
            }
            is_kept
        });
    }

    /// The requests that release all credits when the server stops.
    pub fn release_all(&self, now: Monotonic) -> Vec<DueRequest> {
        self.shards.iter().for_each(|shard| {
            let mut shard = shard.lock();
            shard.look_at = now;
            shard.entries.values_mut().for_each(|entry| entry.has_changed = true);
        });
        self.due(now)
    }

    /// Takes the response to a request, and the counter as of the response if it is known.
    pub fn accept(
        &self,
        due: &DueRequest,
        response: &LeaseResponse,
        counter: Option<ResponseState>,
        now: Monotonic,
    ) {
        self.saw_epoch(response.epoch);
        let Shard { entries, look_at, .. } = &mut *self.shards[shard_of(due.key)].lock();
        if let Some(Entry { holder, algorithm, .. }) = entries.get_mut(&due.key)
            && *algorithm == due.algorithm
            && holder.id() == due.request.holder
        {
            holder.accept_with(response, counter, now);
            *look_at = holder.next_look().min(*look_at);
        }
    }

    /// Notes the epoch of the store. In a new epoch, all credits are declared.
    pub fn saw_epoch(&self, epoch: u64) {
        if epoch == 0 || self.epoch.load(Ordering::Relaxed) == epoch {
            return;
        }
        if self.epoch.swap(epoch, Ordering::Relaxed) != 0 {
            for shard in &self.shards {
                let mut shard = shard.lock();
                shard.look_at = Monotonic::ORIGIN;
                shard.entries.values_mut().for_each(|entry| entry.holder.declare());
            }
        }
    }
}

/// The status of a counter, from the decision of its holder on `hits`.
#[inline]
fn status(
    (holder, algorithm): (&Holder, &Algorithm),
    hits: u64,
    decision: HolderDecision,
    now: Monotonic,
) -> LeasedStatus {
    let (code, remaining, reset) = match decision {
        HolderDecision::Denied { until, remaining } => {
            let as_kept = (remaining, Reset::After(Duration::from_nanos(until.nanos_since(now).max(1))));
            let (remaining, reset) = holder.denied(hits, algorithm, now).unwrap_or(as_kept);
            (Code::OverLimit, remaining, reset)
        }
        HolderDecision::Covered | HolderDecision::Undecided => {
            (Code::Ok, holder.remaining(now), Reset::After(holder.until_full(now)))
        }
    };
    LeasedStatus { code, remaining, reset }
}

#[cfg(test)]
mod tests;
