//! Quota: divides limits among clients that decide by assignments, as Envoy's rate_limit_quota filter does (RLQS). Pure: time, reports
//! and rules are arguments; no sockets, no clocks. The counters of the limiter are the only ones.
//!
//! ```text
//! client (one stream)                       Quota                                the counter of the limiter
//!   report {allowed, denied}  ───────────▶  report: claims of the clients
//!                                           poll: max-min shares      ────────▶  the part of all clients, `Assigned`:
//!   Tokens | DenyAll | Abandon ◀──────────                                       a rate and a burst, or held hits
//! ```
//!
//! **What always holds.** Requests to the server and those that clients admit keep the limit together. Clients acknowledge nothing, so
//! a share counts until it has certainly ended: another one has been received (a report arrives a round trip after it was sent, or
//! the connection acknowledges it: [`Quota::acknowledge`]), or its time to live is over. Others grow only into what has ended.
//!
//! - Rates ([`rates`]): shares add up to the rate that the counter has for clients, buckets to its burst. The counter counts that
//!   rate as time passes, and the burst as hits of the present, whether they are spent or not.
//! - Windows of ten minutes and longer, and slow buckets ([`slices`]): clients get slices of the hits that are left, or of those that this
//!   server has of them.
//! - A process does not know what a former one assigned. For one time to live nothing grows, and clients get what they certainly had,
//!   by what they admitted.
//! - A client whose stream has ended has its share until the end of its last assignment.
//! - Where several servers share the counter in a store, each has a part of the limit, of its clients only ([`part`]): the store counts all
//!   parts, and a server divides its own as it does a limit that changes ([`server_part`]). A part outlives what is assigned of it.
//! - Where the rules have `max_share`, the clients of one peer have no more than that part ([`peers`]), whatever they report.
//!
//! Two things are taken for granted. What is sent on a stream is received in order and within the round trip of the settings, or
//! neither it nor what is sent after it is received: close a stream that cannot be written to. Reports likewise: hits of slices count
//! when they are reported, or when the stream has ended. And a client admits nothing without an
//! assignment: set `no_assignment_behavior` and `expired_assignment_behavior` to deny.
//!
//! The reasons are in docs/decisions/0011-quota-is-carved-out-of-the-counter.md.

mod action;
mod allocation;
mod bucket;
mod claim;
mod counts;
mod debts;
mod division;
mod member;
mod part;
mod peers;
mod push;
mod rates;
mod server_part;
mod settings;
#[cfg(test)]
mod simulation;
mod slices;
mod source;
mod taken;
mod terms;
mod view;

pub use action::Action;
pub use claim::Usage;
pub use counts::{InForce, QuotaCounts};
pub use part::{DividedCounter, OtherPart, Part, PartGrant, PartRequest};
pub use push::{PeerId, Push, Reporter, StreamId};
pub use settings::{PART_LIFE, Settings};
pub use terms::{Indivisible, RateTerms, SliceTerms, Terms};
pub use view::{BucketView, ShareView};

use crate::lease::NodeId;
use bucket::{Bucket, Moment};
use foldhash::fast::RandomState;
use hashbrown::{HashMap, hash_map::Entry};
use tidegate_core::{
    algorithm::Algorithm,
    limit::Timestamp,
    limiter::{LeasableCharge, Pinned},
    store::Key,
};

/// Reason why a report of a bucket is not taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The limit cannot be divided.
    #[error(transparent)]
    Indivisible(#[from] Indivisible),
    /// The stream reports too many buckets.
    #[error("a stream reports at most {max} buckets")]
    TooManyBuckets {
        /// The bound.
        max: usize,
    },
    /// There are too many subscriptions.
    #[error("there are at most {max} subscriptions of buckets")]
    Full {
        /// The bound.
        max: usize,
    },
    /// There are as many counters as the store can have.
    #[error("there is no room for the counter of the bucket")]
    NoCounter,
}

/// A time that is not reached.
const NEVER: Timestamp = Timestamp::from_nanos(u64::MAX);

/// Number of a bucket in the list of buckets.
type Slot = u32;

/// The clients of one server, and what they are assigned.
pub struct Quota {
    settings: Settings,
    /// This server, if counters may be in a store that several servers share.
    server: Option<NodeId>,
    /// The end of what a former process may have assigned.
    learned: Timestamp,
    streams: HashMap<StreamId, HashMap<Slot, u32, RandomState>, RandomState>,
    slots: HashMap<Key, Slot, RandomState>,
    buckets: Vec<Option<Box<Bucket>>>,
    /// Of each bucket, the time by which it is to be looked at.
    checks: Vec<Timestamp>,
    /// The same, by which its part in the store is to be requested.
    requests: Vec<Timestamp>,
    free: Vec<Slot>,
    /// Buckets that are to be divided.
    dirty: Vec<Slot>,
    /// Time of the last look at all buckets.
    looked: Timestamp,
    /// What is to be sent.
    pushes: Vec<Push>,
    subscriptions: usize,
    /// Of all buckets, as of the last division of each.
    in_force: InForce,
    counts: QuotaCounts,
}

impl Quota {
    /// For a process that began at `began`.
    pub fn new(settings: Settings, began: Timestamp) -> Self {
        Self {
            settings,
            server: None,
            learned: began.saturating_add(settings.ttl + settings.round_trip),
            streams: HashMap::default(),
            slots: HashMap::default(),
            buckets: Vec::new(),
            checks: Vec::new(),
            requests: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            looked: began,
            pushes: Vec::new(),
            subscriptions: 0,
            in_force: InForce::default(),
            counts: QuotaCounts::default(),
        }
    }

    /// With counters in a store that several servers share.
    pub fn with_store(self, server: NodeId) -> Self {
        Self { server: Some(server), ..self }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes in what a stream reports of one bucket; its first report is a subscription. The charge is that of a request with the
    /// entries of the bucket: see [`Pinned::grantable`].
    pub fn report(
        &mut self,
        rules: &Pinned<'_>,
        reporter: Reporter,
        charge: &LeasableCharge<'_>,
        usage: Usage,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        self.counts.reports += 1;
        let is_learning = now < self.learned;
        let moment = Moment { rules, settings: &self.settings, is_learning, now };
        let slot = match self.slots.entry(charge.key()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let bucket = Box::new(Bucket::new(charge, self.learned, self.server, &moment)?);
                let is_in_store = bucket.part.is_some();
                // Divisions change the counter: it has to exist.
                if !is_in_store {
                    rules.with_counter(charge, now, |_, _| ()).ok_or(Refusal::NoCounter)?;
                }
                let slot = self.free.pop().unwrap_or_else(|| {
                    self.buckets.push(None);
                    self.checks.push(now);
                    self.requests.push(NEVER);
                    self.buckets.len() as Slot - 1
                });
                self.buckets[slot as usize] = Some(bucket);
                self.requests[slot as usize] = if is_in_store { now } else { NEVER };
                self.dirty.push(slot);
                *new.insert(slot)
            }
        };
        let Some(bucket) = &mut self.buckets[slot as usize] else { return Ok(()) };
        if bucket.limit != charge.limit().id {
            if bucket.part.is_none() {
                rules.with_counter(charge, now, |_, _| ()).ok_or(Refusal::NoCounter)?;
            }
            bucket.take_over(charge, &moment)?;
        }
        let (was_dirty, stream) = (bucket.is_dirty, reporter.stream);
        let members = self.streams.entry(stream).or_default();
        let full = members.len() >= self.settings.buckets_of_stream_max;
        let index = match members.entry(slot) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(_) if full => {
                return Err(Refusal::TooManyBuckets { max: self.settings.buckets_of_stream_max });
            }
            Entry::Vacant(_) if self.subscriptions >= self.settings.subscriptions_max => {
                return Err(Refusal::Full { max: self.settings.subscriptions_max });
            }
            Entry::Vacant(new) => {
                self.subscriptions += 1;
                *new.insert(bucket.subscribe(reporter, now) as u32)
            }
        };
        bucket.report(index as usize, reporter, usage, charge, &moment, &mut self.pushes);
        let is_idle = bucket.members[index as usize].idle >= self.settings.idle_reports;
        if bucket.is_dirty && !was_dirty {
            self.dirty.push(slot);
        }
        if is_idle {
            let (bucket, action) = (charge.key(), Action::Abandon);
            self.pushes.push(Push { stream, bucket, action, is_renewal: false });
            self.leave(stream, slot);
        }
        Ok(())
    }

    /// Notes that a client has certainly received, and acts on, everything that was returned by [`Quota::poll`] until `sent`: its
    /// transport acknowledged it. Without acknowledgements reports show the same, later.
    pub fn acknowledge(&mut self, stream: StreamId, sent: Timestamp, now: Timestamp) {
        let Some(members) = self.streams.get(&stream) else { return };
        for (&slot, &index) in members {
            let Some(bucket) = &mut self.buckets[slot as usize] else { continue };
            let bucket::Kind::Rates(rates) = &mut bucket.kind else { continue };
            let member = &mut bucket.members[index as usize];
            if member.is_pending() {
                rates.give_up(&mut bucket.debts, member.peer, member.received(sent), now);
                if !bucket.is_dirty {
                    bucket.is_dirty = true;
                    self.dirty.push(slot);
                }
            }
        }
    }

    /// Ends the subscription of a bucket. What the client has of it counts until its end.
    pub fn unsubscribe(&mut self, stream: StreamId, bucket: Key) {
        if let Some(&slot) = self.slots.get(&bucket) {
            self.leave(stream, slot);
        }
    }

    /// Ends the subscriptions of a stream that is closed. The client has what it was assigned until its end.
    pub fn close(&mut self, stream: StreamId) {
        let slots: Vec<Slot> =
            self.streams.get(&stream).into_iter().flat_map(HashMap::keys).copied().collect();
        for slot in slots {
            self.leave(stream, slot);
        }
        self.streams.remove(&stream);
    }

    /// Divides what is due, and returns what is to be sent. To be called after reports, and once a second at least.
    pub fn poll(&mut self, rules: &Pinned<'_>, now: Timestamp) -> Vec<Push> {
        if now.since(self.looked) >= self.settings.round_trip {
            self.looked = now;
            for slot in 0..self.checks.len() {
                if let (true, Some(bucket)) = (self.checks[slot] <= now, &mut self.buckets[slot])
                    && !bucket.is_dirty
                {
                    bucket.is_dirty = true;
                    self.dirty.push(slot as Slot);
                }
            }
        }
        let moment = Moment { rules, settings: &self.settings, is_learning: now < self.learned, now };
        let mut later = Vec::new();
        let mut unused = Vec::new();
        for slot in std::mem::take(&mut self.dirty) {
            let Some(bucket) = &mut self.buckets[slot as usize] else { continue };
            if now < bucket.divided.saturating_add(self.settings.spacing(bucket.members.len())) {
                later.push(slot);
                continue;
            }
            self.checks[slot as usize] = bucket.divide(&moment, &mut self.pushes);
            self.counts.divisions += 1;
            let (rate, tokens) = bucket.in_force();
            let part = InForce { rate, tokens };
            self.in_force.replace(std::mem::replace(&mut bucket.summed, part), part);
            if bucket.is_unused(now) {
                unused.push(slot);
            }
        }
        self.dirty = later;
        for slot in unused {
            self.remove(slot, rules, now);
        }
        let pushes = std::mem::take(&mut self.pushes);
        self.counts.count(&pushes);
        pushes
    }

    /// Requests to the store that are due, each with the key of its counter and the algorithm.
    pub fn requests(&mut self, now: Timestamp) -> Vec<(Key, Algorithm, PartRequest)> {
        let mut requests = Vec::new();
        for (slot, due) in self.requests.iter_mut().enumerate().filter(|(_, due)| **due <= now) {
            let Some(bucket) = &mut self.buckets[slot] else { continue };
            let request = bucket.request_part(&self.settings, now);
            let Some(part) = &bucket.part else { continue };
            *due = part.next();
            requests.extend(request.map(|request| (bucket.key, part.algorithm.clone(), request)));
        }
        requests
    }

    /// Takes in the response to a request.
    pub fn accept(&mut self, bucket: Key, sequence: u64, grant: &PartGrant, now: Timestamp) {
        let Some(&slot) = self.slots.get(&bucket) else { return };
        let Some(bucket) = &mut self.buckets[slot as usize] else { return };
        let Some(part) = &mut bucket.part else { return };
        let is_last = part.accept(sequence, grant, now);
        self.requests[slot as usize] = part.next();
        if is_last && !std::mem::replace(&mut bucket.is_dirty, true) {
            self.dirty.push(slot);
        }
    }

    /// Removes a client from a bucket.
    fn leave(&mut self, stream: StreamId, slot: Slot) {
        let Some(members) = self.streams.get_mut(&stream) else { return };
        let (Some(index), Some(bucket)) = (members.remove(&slot), &mut self.buckets[slot as usize]) else {
            return;
        };
        self.subscriptions -= 1;
        let was_dirty = bucket.is_dirty;
        if let Some(moved) = bucket.leave(index as usize, &self.settings)
            && let Some(members) = self.streams.get_mut(&moved)
        {
            members.insert(slot, index);
        }
        if !was_dirty {
            self.dirty.push(slot);
        }
    }

    /// Removes a bucket that no client has. What was held for clients counts as spent now.
    fn remove(&mut self, slot: Slot, rules: &Pinned<'_>, now: Timestamp) {
        let Some(bucket) = self.buckets[slot as usize].take() else { return };
        self.in_force.replace(bucket.summed, InForce::default());
        rules.with_leases(bucket.key, now, |algorithm, leased| {
            leased.expire(algorithm, now);
            leased.assign(algorithm, 0, 0, now, now);
            leased.expire(algorithm, now);
        });
        self.slots.remove(&bucket.key);
        self.requests[slot as usize] = NEVER;
        self.free.push(slot);
    }
}
