//! Quota: divides limits among clients that decide by assignments, as Envoy's rate_limit_quota filter does (RLQS). Pure: time, reports
//! and rules are arguments; no sockets, no clocks. It has no counters but those of the limiter.
//!
//! ```text
//! client (one stream)                       Quota                                the counter of the limiter
//!   report {allowed, denied}  ───────────▶  report: claims of the clients
//!                                           poll: max-min shares      ────────▶  the part of all clients, `Assigned`:
//!   Tokens | DenyAll | Abandon ◀──────────                                       a rate and a burst, or held hits
//! ```
//!
//! **What always holds.** Requests to the server, and requests that clients admit, keep the limit together. Clients acknowledge nothing, so
//! a share counts until it has certainly ended. It has ended if its time to live is over, or if another share has been received. The latter
//! is known from a report that arrives a round trip after the sending, or from an acknowledgement of the connection
//! ([`Quota::acknowledge`]). Other shares grow only into what has ended.
//!
//! - Rates ([`rates`]): shares add up to the rate that the counter has for clients, and their buckets to its burst. The counter counts the
//!   rate as time passes. It counts the burst as hits of the present, whether they are spent or not.
//! - Long windows, windows of few hits, and slow buckets ([`slices`]): clients get slices of the hits that are left, or of this server's
//!   part of them.
//! - What a former process may have assigned counts for one time to live ([`Former`]). It is in the counters after a stop in order;
//!   otherwise it is what the process recorded, or a stated part ([`ceilings`]). Its clients get what they certainly had of that, as what
//!   they admitted shows, and the rest is divided.
//! - A client whose stream has ended has its share until the end of its last assignment.
//! - If several servers share the counter in a store, each has a part of the limit, for its own clients ([`part`]). The store counts all
//!   parts. A server divides its part as it does a limit that changes ([`server_part`]). A part outlives what is assigned of it.
//! - If the rules have `max_share`, the clients of one peer have no more than that part ([`peers`]), whatever they report.
//!
//! There are two assumptions. What is sent on a stream is received in order and within the round trip of the settings, or neither it nor
//! what follows is received: close a stream that cannot be written to. The same holds for reports: hits of slices count when they are
//! reported, or when the stream has ended. And a client admits nothing without an assignment: set `no_assignment_behavior` and
//! `expired_assignment_behavior` to deny.
//!
//! The reasons are in docs/decisions/0011-quota-is-carved-out-of-the-counter.md.

mod allocation;
mod assignment;
mod bucket;
mod buckets;
mod ceilings;
mod claim;
mod counts;
mod debts;
mod division;
mod former;
mod growth;
mod means;
mod member;
mod part;
mod part_requests;
mod peers;
mod push;
mod rates;
mod record;
mod room;
mod send_times;
mod server_part;
mod settings;
#[cfg(test)]
mod simulation;
mod single;
mod slices;
mod source;
mod streams;
mod taken;
mod terms;
mod view;

pub use assignment::Assignment;
pub use ceilings::{Ceiling, RuleId};
pub use claim::Usage;
pub use counts::QuotaCounts;
pub use former::Former;
pub use member::SUBSCRIPTION_BYTES;
pub use part::{KNOWN_BURST, OtherPart, Part, PartCall, PartGrant, PartRequest};
pub use push::{Push, Reporter, StreamId};
pub use record::{Before, Record};
pub use settings::{PART_LIFE, Settings};
pub use terms::{Indivisible, RateTerms, SliceTerms, Terms};
pub use view::{BucketView, PartView, ShareView};

use crate::{FairBound, lease::NodeId};
use bucket::{BUCKET_BYTES, Bucket, Kind, Moment};
use buckets::Buckets;
use ceilings::Ceilings;
use member::Member;
use streams::{BucketNumber, Membership, Streams};
use tidegate_core::{
    algorithm::{Algorithm, Leased},
    limit::Timestamp,
    limiter::{LeasableCharge, Pinned},
    prefetch::prefetch_element,
    store::Key,
};

/// The reason why a report of a bucket is refused.
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
    /// The memory for buckets and their clients is used up, or one peer has half of it.
    #[error("the memory of quotas is used up")]
    NoMemory,
    /// There are as many counters as the limiter can have.
    #[error("there is no room for the counter of the bucket")]
    NoCounter,
}

/// The most clients of a bucket that are prefetched before its division. If there are more, the processor prefetches the rest.
const MEMBERS_AHEAD: usize = 16;

/// After so many assignments no other bucket is divided until they are returned, so that they take little memory.
const PUSHES_MAX: usize = 20_000;

/// The clients of one server, and their assignments.
pub struct Quota {
    settings: Settings,
    /// This server, if counters may be in a store that several servers share.
    server: Option<NodeId>,
    /// Whether a former process had the same number.
    resumes: bool,
    /// Knowledge of what a former process may have assigned. All of it has ended at `learned`.
    former: Former,
    learned: Timestamp,
    ceilings: Ceilings,
    streams: Streams,
    buckets: Buckets,
    /// Time of the last look at all buckets.
    looked: Timestamp,
    /// Assignments to send.
    pushes: Vec<Push>,
    subscriptions: usize,
    memory: FairBound,
    /// Sum over all buckets, each as of its last division.
    in_force: Part,
    counts: QuotaCounts,
}

impl Quota {
    /// Quota of a process that began at `began`.
    pub fn new(settings: Settings, began: Timestamp) -> Self {
        debug_assert!(settings.ttl + settings.round_trip <= send_times::LIFE_MAX, "times of assignments fit");
        Self {
            settings,
            server: None,
            resumes: false,
            former: Former::Unknown,
            ceilings: Ceilings::None,
            learned: settings.learned(began),
            streams: Streams::default(),
            buckets: Buckets::default(),
            looked: began,
            pushes: Vec::new(),
            subscriptions: 0,
            memory: FairBound::new(settings.memory_max),
            in_force: Part::default(),
            counts: QuotaCounts::default(),
        }
    }

    /// Has some counters in a store that several servers share.
    pub fn with_store(self, server: NodeId) -> Self {
        Self { server: Some(server), ..self }
    }

    /// Resumes the parts in the store of a process with the same number, which has ended.
    pub fn resuming(self, resumes: bool) -> Self {
        Self { resumes, ..self }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The memory that buckets and clients take. The caller adds what it stores for a client.
    pub fn memory(&self) -> &FairBound {
        &self.memory
    }

    /// The memory, for amounts that the caller adds.
    pub fn memory_mut(&mut self) -> &mut FairBound {
        &mut self.memory
    }

    /// Takes a report of a stream about one bucket; its first report is a subscription. `charge` is the charge of a request with the
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
        let number = self.bucket_of(charge, reporter, rules, now)?;
        let Reporter { stream, place, .. } = reporter;
        let membership = match self.streams.get(stream, place) {
            Some(known) if known.bucket == number => known,
            former => {
                if former.is_some() {
                    self.unsubscribe(stream, place);
                }
                self.subscribe(reporter, number, now)?
            }
        };
        self.buckets.change(number, |bucket| bucket.bound(membership.index as usize, reporter));
        self.take_in(membership, usage, Some(charge), rules, now);
        Ok(())
    }

    /// Takes a report of a bucket that the stream has reported before under the same rules. Returns false if the charge is needed.
    pub fn report_again(
        &mut self,
        rules: &Pinned<'_>,
        (stream, place): (StreamId, u32),
        usage: Usage,
        now: Timestamp,
    ) -> bool {
        let Some(membership) = self.streams.get(stream, place) else { return false };
        let bucket = self.buckets.get(membership.bucket);
        if !bucket.is_some_and(|bucket| matches!(bucket.kind, Kind::Rates(_))) {
            return false;
        }
        self.counts.reports += 1;
        self.take_in(membership, usage, None, rules, now);
        true
    }

    /// The bucket of a counter. Adds it if it is new, and applies changed rules. A new bucket counts for the peer until it is removed.
    fn bucket_of(
        &mut self,
        charge: &LeasableCharge<'_>,
        reporter: Reporter,
        rules: &Pinned<'_>,
        now: Timestamp,
    ) -> Result<BucketNumber, Refusal> {
        let peer = reporter.peer;
        let is_learning = self.is_learning(now);
        let moment = Moment { rules, settings: &self.settings, is_learning, now };
        let number = match self.buckets.number(charge.key()) {
            Some(known) => known,
            None => {
                if !self.memory.has_room(peer, BUCKET_BYTES) {
                    return Err(Refusal::NoMemory);
                }
                let mut bucket = Box::new(Bucket::new(charge, reporter, self.server, &moment)?);
                // Divisions change the counter, so it has to exist.
                if bucket.part.is_none() {
                    let assigned = |algorithm: &Algorithm, leased: &mut Leased| {
                        leased.expire(algorithm, now);
                        leased.assigned
                    };
                    let assigned = rules.with_counter(charge, now, assigned).ok_or(Refusal::NoCounter)?;
                    let demanded = assigned.map_or(0, |assigned| assigned.demanded);
                    let former = (now < self.learned)
                        .then(|| self.former.remnant(&bucket.kind, reporter, assigned, self.learned));
                    bucket.follow_former(former.flatten(), demanded, now);
                    bucket.set_ceiling(self.ceilings.of(reporter.rule, reporter.unrecorded));
                } else if self.resumes && now < self.learned {
                    bucket.part.iter_mut().for_each(|part| part.resume());
                }
                self.memory.take(peer, BUCKET_BYTES);
                self.buckets.add(bucket, now)
            }
        };
        let is_of_other_rules = |bucket: &Bucket| bucket.limit != charge.limit().id;
        if let Some(bucket) = self.buckets.get(number).filter(|bucket| is_of_other_rules(bucket)) {
            if bucket.part.is_none() {
                rules.with_counter(charge, now, |_, _| ()).ok_or(Refusal::NoCounter)?;
            }
            self.buckets.change(number, |bucket| bucket.take_over(charge, &moment)).transpose()?;
        }
        Ok(number)
    }

    /// Adds a client to a bucket.
    fn subscribe(
        &mut self,
        reporter: Reporter,
        number: BucketNumber,
        now: Timestamp,
    ) -> Result<Membership, Refusal> {
        let Settings { buckets_of_stream_max, .. } = self.settings;
        if reporter.place as usize >= buckets_of_stream_max {
            return Err(Refusal::TooManyBuckets { max: buckets_of_stream_max });
        }
        let index = self.buckets.change(number, |bucket| bucket.subscribe(reporter, now));
        let membership = Membership::new(number, index.ok_or(Refusal::NoCounter)?);
        self.subscriptions += 1;
        self.streams.add(reporter.stream, reporter.place, membership);
        Ok(membership)
    }

    /// Takes a report of a client of a bucket.
    fn take_in(
        &mut self,
        Membership { bucket: number, index, .. }: Membership,
        usage: Usage,
        charge: Option<&LeasableCharge<'_>>,
        rules: &Pinned<'_>,
        now: Timestamp,
    ) {
        let is_learning = self.is_learning(now);
        let moment = Moment { rules, settings: &self.settings, is_learning, now };
        let member = self.buckets.change(number, |bucket| {
            bucket.report(index as usize, usage, charge, &moment, &mut self.pushes);
            bucket.account(&mut self.memory);
            let Member { stream, place, idle, .. } = bucket.members[index as usize];
            (stream, place, idle)
        });
        let Some((stream, place, idle)) = member else { return };
        if idle >= self.settings.idle_reports {
            self.pushes.push(Push { stream, place, assignment: Assignment::Abandon, is_renewal: false });
            self.unsubscribe(stream, place);
        }
    }

    /// Prefetches what reports of a client about these buckets change.
    pub fn prefetch(&self, stream: StreamId, places: impl Iterator<Item = u32> + Clone) {
        self.buckets.prefetch(places.filter_map(|place| self.streams.get(stream, place)));
    }

    /// Notes that a client has certainly received everything that [`Quota::poll`] returned until `sent`, and acts on it: its transport
    /// acknowledged it. Without acknowledgements, reports show the same later.
    pub fn acknowledge(&mut self, stream: StreamId, sent: Timestamp, now: Timestamp) {
        self.buckets.prefetch(self.streams.changed(stream));
        self.streams.acknowledge(stream, |Membership { bucket, index, .. }| {
            let changed = self.buckets.change(bucket, |bucket| bucket.acknowledge(index as usize, sent, now));
            changed.unwrap_or(true)
        });
    }

    /// Whether a client reports a bucket with this number.
    pub fn is_subscribed(&self, stream: StreamId, place: u32) -> bool {
        self.streams.get(stream, place).is_some()
    }

    /// The counter of a bucket that a client reports.
    pub fn counter(&self, stream: StreamId, place: u32) -> Option<Key> {
        let number = self.streams.get(stream, place)?.bucket;
        self.buckets.get(number).map(|bucket| bucket.key)
    }

    /// Ends the subscription of a bucket. The client's share of it counts until its end.
    pub fn unsubscribe(&mut self, stream: StreamId, place: u32) {
        let Some(Membership { bucket, index, .. }) = self.streams.remove(stream, place) else { return };
        let moved = self.buckets.change(bucket, |bucket| {
            self.subscriptions -= 1;
            let moved = bucket.leave(index as usize, &self.settings);
            bucket.account(&mut self.memory);
            moved
        });
        if let Some((stream, place)) = moved.flatten() {
            self.streams.moved(stream, place, index);
        }
    }

    /// Ends the subscriptions of a closed stream. The client keeps its assignments until their end.
    pub fn close(&mut self, stream: StreamId) {
        for place in self.streams.places(stream) {
            self.unsubscribe(stream, place);
        }
        self.streams.close(stream);
    }

    /// Divides the buckets that are due, and returns assignments to send. Call it after reports, at least once a second, and again if it
    /// returned anything, as there may be more.
    pub fn poll(&mut self, rules: &Pinned<'_>, now: Timestamp) -> Vec<Push> {
        if now.since(self.looked) >= self.settings.round_trip {
            self.looked = now;
            self.buckets.look(now);
        }
        let is_learning = self.is_learning(now);
        let moment = Moment { rules, settings: &self.settings, is_learning, now };
        let mut unused = Vec::new();
        let due = self.buckets.take_dirty(|bucket| bucket.is_divisible(&self.settings, now));
        let buckets = due.iter().filter_map(|number| self.buckets.get(*number));
        rules.fetch_counters(buckets.clone().map(|bucket| bucket.key));
        buckets.clone().for_each(|bucket| bucket.prefetch());
        buckets.for_each(|bucket| {
            (0..bucket.members.len().min(MEMBERS_AHEAD)).for_each(|it| prefetch_element(&bucket.members, it));
        });
        for (at, &number) in due.iter().enumerate() {
            if self.pushes.len() >= PUSHES_MAX {
                self.buckets.divide_later(&due[at..]);
                break;
            }
            let divided = self.buckets.change(number, |bucket| {
                let check = bucket.divide(&moment, &mut self.ceilings, &mut self.pushes);
                let part = bucket.in_force();
                self.in_force = self.in_force.minus(std::mem::replace(&mut bucket.summed, part)).plus(part);
                bucket.account(&mut self.memory);
                if bucket.is_unused(now) {
                    unused.push(number);
                }
                check
            });
            if let Some(check) = divided {
                self.buckets.check_at(number, check);
                self.counts.divisions += 1;
            }
        }
        for number in unused {
            self.remove(number, rules, now);
        }
        self.pushes()
    }

    /// Assignments to send now, including those that follow from reports.
    pub fn pushes(&mut self) -> Vec<Push> {
        let pushes = std::mem::take(&mut self.pushes);
        for push in pushes.iter().filter(|push| !push.is_renewal) {
            self.streams.note_change(push.stream, push.place);
        }
        self.counts.count(&pushes);
        pushes
    }

    /// Removes a bucket without clients. Hits held for clients count as spent now.
    fn remove(&mut self, number: BucketNumber, rules: &Pinned<'_>, now: Timestamp) {
        let Some(bucket) = self.buckets.remove(number) else { return };
        self.in_force = self.in_force.minus(bucket.summed);
        self.memory.replace_shared(bucket.list_bytes, 0);
        self.memory.give_back(bucket.payer, BUCKET_BYTES);
        rules.with_leases(bucket.key, now, |algorithm, leased| {
            leased.expire(algorithm, now);
            leased.assign(algorithm, 0, 0, now, now);
            leased.expire(algorithm, now);
        });
    }
}
