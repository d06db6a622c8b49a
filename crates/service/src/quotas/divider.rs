//! The streams with their buckets: which counter a bucket has, and what a client is sent about it.
//!
//! A bucket without a limit that can be divided gets a blanket assignment: all requests are admitted if nothing limits them, and denied
//! if they are blocked, or if what an override put in force cannot be divided.

use super::{Assignment, Bucket, BucketReport, Event, Outbox, QuotaFigures, QuotaPeer, StreamEnd};
use std::{cell::Cell, collections::HashMap, rc::Rc, sync::Arc, time::Duration};
use tidegate_core::{
    limit::{Descriptor, Entry, Hits, Request, Timestamp},
    limiter::{LeasableCharges, Pinned},
    rules::DomainRules,
    store::Key,
};
use tidegate_shared::{
    lease::NodeId,
    quota::{Action, PeerId, Push, Quota, Refusal, Reporter, Settings, StreamId, Usage},
    store::PartCall,
};

/// The most bytes of the names of a stream's buckets.
pub(super) const BYTES_OF_STREAM_MAX: usize = 1 << 20;

/// The most buckets of all streams of a peer, some 300 bytes each.
pub(super) const BUCKETS_OF_PEER_MAX: usize = 250_000;

/// Time between two looks at all streams.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The streams, and the shares of their clients.
pub(super) struct Divider {
    pub(super) quota: Quota,
    pub(super) streams: HashMap<u64, Client>,
    /// The stream of each member of a counter, and its index in [`Client::members`].
    pub(super) members: HashMap<StreamId, (u64, usize)>,
    next_member: u64,
    /// Numbers of buckets of each peer, which its streams share.
    of_peers: HashMap<PeerId, Rc<Cell<usize>>>,
    /// Number of the rules by which buckets have their counters.
    generation: u64,
    is_draining: bool,
    /// Time of the last look at all streams.
    looked: Timestamp,
    /// Number of buckets of all streams.
    all: Rc<Cell<usize>>,
    figures: QuotaFigures,
}

/// A stream.
pub(super) struct Client {
    pub(super) domain: Arc<str>,
    pub(super) peer: QuotaPeer,
    peer_id: PeerId,
    outbox: Arc<Outbox>,
    /// Members of counters: the first for the first bucket of a counter, the second for another one of the same.
    members: Vec<StreamId>,
    buckets: HashMap<Bucket, Subscription>,
    /// Bytes of their names.
    bytes: usize,
    /// Numbers of buckets, of its peer and of all streams.
    of_peer: Rc<Cell<usize>>,
    all: Rc<Cell<usize>>,
    pub(super) by_counter: HashMap<(usize, Key), Bucket>,
}

/// What a client has of a bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subscription {
    /// A share of a counter, as the member of this index.
    Counter { key: Key, member: usize },
    /// All or nothing. Reports without a request since the last one with any.
    Blanket { admits: bool, idle: u8 },
}

/// Which requests of a bucket are admitted.
enum Limited<'r> {
    All,
    None,
    ByCounter(LeasableCharges<'r>),
}

impl Divider {
    /// For a process that began at that time, and is this server of a shared store, if there is one.
    pub(super) fn new(began: Timestamp, server: Option<NodeId>) -> Self {
        let quota = Quota::new(Settings::default(), began);
        Self {
            quota: match server {
                Some(server) => quota.with_store(server),
                None => quota,
            },
            streams: HashMap::new(),
            members: HashMap::new(),
            next_member: 0,
            of_peers: HashMap::new(),
            generation: 0,
            is_draining: false,
            looked: began,
            all: Rc::default(),
            figures: QuotaFigures::default(),
        }
    }

    /// Whether anything may be due: there are streams, or assignments of former ones may be in force.
    pub(super) fn is_active(&self) -> bool {
        !self.streams.is_empty() || self.quota.buckets().next().is_some()
    }

    pub(super) fn figures(&self) -> QuotaFigures {
        let (streams, buckets) = (self.streams.len() as u64, self.all.get() as u64);
        let (counts, in_force) = (self.quota.counts(), self.quota.in_force());
        QuotaFigures { streams, buckets, counts, in_force, ..self.figures }
    }

    pub(super) fn take_in(&mut self, event: Event, rules: &Pinned<'_>, is_shadow: bool, now: Timestamp) {
        match event {
            Event::Open { stream, domain, peer, peer_id, outbox } => {
                if self.is_draining {
                    outbox.end(StreamEnd::Drain);
                }
                let (buckets, by_counter) = (HashMap::new(), HashMap::new());
                let of_peer = Rc::clone(self.of_peers.entry(peer_id).or_default());
                let (members, bytes, all) = (Vec::new(), 0, Rc::clone(&self.all));
                let client = Client {
                    domain,
                    peer,
                    peer_id,
                    outbox,
                    members,
                    buckets,
                    bytes,
                    of_peer,
                    all,
                    by_counter,
                };
                self.streams.insert(stream, client);
            }
            Event::Report { stream, reports, beyond, taken } => {
                self.figures.refused += beyond;
                for report in reports {
                    self.figures.reports += 1;
                    self.figures.admitted = self.figures.admitted.saturating_add(report.usage.allowed);
                    self.figures.denied = self.figures.denied.saturating_add(report.usage.denied);
                    self.report(stream, report, rules, is_shadow, now);
                }
                // The stream has ended meanwhile.
                let _ = taken.send(());
            }
            Event::Received { stream, until } => {
                for member in self.streams.get(&stream).into_iter().flat_map(|client| &client.members) {
                    self.quota.acknowledge(*member, until, now);
                }
            }
            Event::Close { stream } => {
                let Some(mut client) = self.streams.remove(&stream) else { return };
                for member in std::mem::take(&mut client.members) {
                    self.members.remove(&member);
                    self.quota.close(member);
                }
                client.count(|buckets| buckets - client.buckets.len());
                let peer = client.peer_id;
                drop(client);
                if self.of_peers.get(&peer).is_some_and(|buckets| Rc::strong_count(buckets) == 1) {
                    self.of_peers.remove(&peer);
                }
            }
            Event::Granted { bucket, sequence, grant } => {
                self.figures.part_grants += 1;
                self.quota.accept(bucket, sequence, &grant, now);
            }
            Event::List(request) => self.piece(request, now),
            Event::Drain => {
                self.is_draining = true;
                self.streams.values().for_each(|client| client.outbox.end(StreamEnd::Drain));
            }
            Event::Stop => {}
        }
    }

    /// Puts assignments that are due into the outboxes.
    pub(super) fn divide(&mut self, rules: &Pinned<'_>, now: Timestamp) {
        for Push { stream: member, bucket: key, action, is_renewal } in self.quota.poll(rules, now) {
            let Some((stream, index)) = self.members.get(&member) else { continue };
            let Some(client) = self.streams.get_mut(stream) else { continue };
            let Some(bucket) = client.by_counter.get(&(*index, key)) else { continue };
            let bucket = bucket.clone();
            if action == Action::Abandon {
                client.forget(&bucket);
            }
            client.outbox.put(bucket, assignment(action), is_renewal, now);
        }
        // All streams: not for each report.
        if now.since(self.looked) >= LOOK_INTERVAL {
            self.looked = now;
            let stuck = self.streams.values().filter(|client| client.outbox.is_stuck(now));
            // A client that may have received a former assignment only.
            stuck.for_each(|client| client.outbox.end(StreamEnd::Stuck));
        }
    }

    /// Requests to the shared store that are due.
    pub(super) fn part_requests(&mut self, now: Timestamp) -> Vec<PartCall> {
        let requests = self.quota.requests(now).into_iter();
        let calls = requests.map(|(bucket, algorithm, request)| PartCall { bucket, algorithm, request });
        let calls: Vec<PartCall> = calls.collect();
        self.figures.part_requests += calls.len() as u64;
        calls
    }

    /// Passes buckets on to other counters where the rules have changed. It comes before new reports are taken in, which follow these
    /// rules already.
    pub(super) fn follow_rules(&mut self, rules: &Pinned<'_>, is_shadow: bool, now: Timestamp) {
        if std::mem::replace(&mut self.generation, rules.generation()) == rules.generation() {
            return;
        }
        let streams: Vec<u64> = self.streams.keys().copied().collect();
        for stream in streams {
            let buckets: Vec<Bucket> = self
                .streams
                .get(&stream)
                .into_iter()
                .flat_map(|client| client.buckets.keys())
                .cloned()
                .collect();
            for bucket in buckets {
                let Some(client) = self.streams.get(&stream) else { continue };
                let Some(domain) =
                    rules.rules().domain(&client.domain).filter(|domain| domain.quotas().is_some())
                else {
                    client.outbox.put(bucket, Assignment::Abandon, false, now);
                    client.outbox.end(StreamEnd::NoQuotas { domain: Arc::clone(&client.domain) });
                    continue;
                };
                let key = match limited(rules, domain, is_shadow, &bucket) {
                    Limited::ByCounter(charges) => charges.iter().flatten().next().map(|charge| charge.key()),
                    Limited::All | Limited::None => None,
                };
                let is_same = match client.buckets.get(&bucket) {
                    Some(Subscription::Counter { key: former, .. }) => key == Some(*former),
                    Some(Subscription::Blanket { .. }) | None => false,
                };
                // Of the same counter, the next report takes in a changed limit.
                if !is_same {
                    self.report(
                        stream,
                        BucketReport { bucket, usage: Usage::default() },
                        rules,
                        is_shadow,
                        now,
                    );
                }
            }
        }
    }

    fn report(
        &mut self,
        stream: u64,
        BucketReport { bucket, usage }: BucketReport,
        rules: &Pinned<'_>,
        is_shadow: bool,
        now: Timestamp,
    ) {
        let Some(client) = self.streams.get_mut(&stream) else { return };
        let domain = rules.rules().domain(&client.domain);
        let Some((domain, quotas)) = domain.and_then(|domain| Some((domain, domain.quotas()?))) else {
            client.outbox.end(StreamEnd::NoQuotas { domain: Arc::clone(&client.domain) });
            return;
        };
        let buckets_max = self.quota.settings().buckets_of_stream_max;
        if !client.buckets.contains_key(&bucket) && !client.has_room(&bucket, buckets_max) {
            self.figures.refused += 1;
            return;
        }
        let charges = match limited(rules, domain, is_shadow, &bucket) {
            Limited::All => return self.blanket(stream, bucket, usage, true, now),
            Limited::None => return self.blanket(stream, bucket, usage, false, now),
            Limited::ByCounter(charges) => charges,
        };
        let Some(charge) = charges.iter().flatten().next() else { return };
        let index = match client.buckets.get(&bucket) {
            Some(Subscription::Counter { key, member }) if *key == charge.key() => *member,
            former => {
                if let Some(Subscription::Counter { key, member }) = former.copied() {
                    self.quota.unsubscribe(client.members[member], key);
                    client.forget(&bucket);
                }
                let is_free = |index: &usize| !client.by_counter.contains_key(&(*index, charge.key()));
                (0..).find(is_free).unwrap_or_default()
            }
        };
        while client.members.len() <= index {
            let member = StreamId(self.next_member);
            self.next_member += 1;
            self.members.insert(member, (stream, client.members.len()));
            client.members.push(member);
        }
        let reporter =
            Reporter { stream: client.members[index], peer: client.peer_id, share_max: quotas.max_share };
        match self.quota.report(rules, reporter, charge, usage, now) {
            Ok(()) => {
                let subscription = Subscription::Counter { key: charge.key(), member: index };
                client.by_counter.insert((index, charge.key()), bucket.clone());
                client.remember(bucket, subscription);
            }
            Err(Refusal::Indivisible(_)) => self.blanket(stream, bucket, usage, false, now),
            Err(Refusal::TooManyBuckets { .. } | Refusal::Full { .. }) => self.figures.refused += 1,
            Err(Refusal::NoCounter) => self.figures.refused_counters += 1,
        }
    }

    /// Answers a report of a bucket whose requests are all admitted, or all denied.
    fn blanket(&mut self, stream: u64, bucket: Bucket, usage: Usage, admits: bool, now: Timestamp) {
        let Some(client) = self.streams.get_mut(&stream) else { return };
        let Settings { ttl, idle_reports, .. } = *self.quota.settings();
        if let Some(Subscription::Counter { key, member }) = client.buckets.get(&bucket).copied() {
            self.quota.unsubscribe(client.members[member], key);
            client.forget(&bucket);
        }
        let (is_same, idle) = match client.buckets.get(&bucket) {
            Some(Subscription::Blanket { admits: admitted, idle }) => (*admitted == admits, *idle),
            Some(Subscription::Counter { .. }) | None => (false, 0),
        };
        let idle = if usage.is_idle() && is_same { idle.saturating_add(1) } else { 0 };
        client.remember(bucket.clone(), Subscription::Blanket { admits, idle });
        let counts = &mut self.figures.blanket;
        let (assignment, count) = match admits {
            _ if idle >= idle_reports => {
                client.forget(&bucket);
                (Assignment::Abandon, &mut counts.abandoned)
            }
            true => (Assignment::AllowAll { ttl }, &mut counts.allowed),
            false => (Assignment::DenyAll { ttl }, &mut counts.denied),
        };
        *count += 1;
        client.outbox.put(bucket, assignment, is_same && assignment != Assignment::Abandon, now);
    }
}

impl Client {
    /// Whether it may have another bucket.
    fn has_room(&self, bucket: &Bucket, buckets_max: usize) -> bool {
        self.buckets.len() < buckets_max
            && self.bytes + bucket.bytes() <= BYTES_OF_STREAM_MAX
            && self.of_peer.get() < BUCKETS_OF_PEER_MAX
    }

    fn remember(&mut self, bucket: Bucket, subscription: Subscription) {
        let bytes = bucket.bytes();
        if self.buckets.insert(bucket, subscription).is_none() {
            self.bytes += bytes;
            self.count(|buckets| buckets + 1);
        }
    }

    fn count(&self, change: impl Fn(usize) -> usize) {
        self.of_peer.update(&change);
        self.all.update(change);
    }

    fn forget(&mut self, bucket: &Bucket) {
        let Some(subscription) = self.buckets.remove(bucket) else { return };
        self.bytes -= bucket.bytes();
        self.count(|buckets| buckets - 1);
        if let Subscription::Counter { key, member } = subscription {
            self.by_counter.remove(&(member, key));
        }
    }
}

/// How requests of a bucket are limited.
fn limited<'r>(rules: &'r Pinned<'_>, domain: &DomainRules, is_shadow: bool, bucket: &Bucket) -> Limited<'r> {
    let entries: Vec<Entry<'_>> = bucket.entries().collect();
    let entries = domain.in_order_of_rules(&entries);
    match domain.find(&entries).map(|found| found.rule) {
        None => Limited::All,
        Some(rule) if rule.unlimited || rule.limits.is_empty() || rule.shadow || is_shadow => Limited::All,
        Some(_) => {
            let mut request = Request::new(domain.name());
            request.push(Descriptor { entries: entries.into(), limit: None, hits: Hits::ONE });
            let charges =
                if domain.is_shared() { rules.leasable(&request) } else { rules.grantable(&request) };
            charges.map_or(Limited::None, Limited::ByCounter)
        }
    }
}

fn assignment(action: Action) -> Assignment {
    match action {
        Action::Tokens { max_tokens, tokens_per_fill, fill_interval, ttl } => {
            Assignment::Tokens { max_tokens, tokens_per_fill, fill_interval, ttl }
        }
        Action::DenyAll { ttl } => Assignment::DenyAll { ttl },
        Action::Abandon => Assignment::Abandon,
    }
}
