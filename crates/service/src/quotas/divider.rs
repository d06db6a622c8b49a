//! The streams with their buckets: the counter of each bucket, and the assignments that clients are sent.
//!
//! A bucket without a limit that can be divided gets a blanket assignment. All requests are admitted if nothing limits them. They are
//! denied if they are blocked, or if an override put a limit in force that cannot be divided.

use super::{
    Assignment, BucketName, BucketReport, Event, QuotaFigures, QuotaStart, StreamEnd,
    client::{Client, STREAM_BYTES, subscription_bytes},
    names::Names,
    subscriptions::{Subscription, Subscriptions},
    turns::{Turns, Waiting},
};
use crate::Meters;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
};
use tidegate_core::{
    limit::{Descriptor, Entry, Hits, Request, Timestamp},
    limiter::{LeasableCharges, Pinned},
    rules::DomainRules,
};
use tidegate_shared::{
    lease::NodeId,
    quota::{Ceiling, PartCall, Push, Quota, Refusal, Reporter, RuleId, Settings, StreamId, Usage},
};

/// The streams, and the shares of their clients.
pub(super) struct Divider {
    pub(super) quota: Quota,
    pub(super) streams: HashMap<u64, Client, RandomState>,
    /// Reports that are not handled yet.
    turns: Turns,
    /// Number of the rules under which buckets have their counters.
    generation: u64,
    is_draining: bool,
    /// The streams with assignments to send, each with the time since when.
    sending: VecDeque<(Timestamp, u64)>,
    /// Names of the buckets of all streams.
    names: Rc<RefCell<Names>>,
    /// Number of these buckets.
    all: Rc<Cell<usize>>,
    figures: QuotaFigures,
    /// Counts requests that nothing limits.
    meters: Arc<Meters>,
}

/// The rules at one moment.
#[derive(Clone, Copy)]
pub(super) struct Moment<'a, 'l> {
    pub(super) rules: &'a Pinned<'l>,
    /// Whether all rules are in shadow mode.
    pub(super) is_shadow: bool,
    pub(super) now: Timestamp,
}

/// Which requests of a bucket are admitted.
#[expect(clippy::large_enum_variant, reason = "made and read within one call, and never stored")]
enum Limited<'r> {
    All,
    /// All, because no rule decides them.
    Unlimited,
    None,
    ByCounter(LeasableCharges<'r>, RuleId),
}

impl Divider {
    /// A divider for a process that began at `began`. With a shared store, `server` is its number there.
    pub(super) fn new(
        began: Timestamp,
        server: Option<NodeId>,
        meters: Arc<Meters>,
        start: QuotaStart,
    ) -> Self {
        let settings = Settings { memory_max: start.memory_max, ..Settings::default() };
        let quota = Quota::new(settings, began).after(start.former, start.ceilings);
        Self {
            quota: match server {
                Some(server) => quota.with_store(server).resuming(start.had_number),
                None => quota,
            },
            streams: HashMap::default(),
            turns: Turns::default(),
            generation: 0,
            is_draining: false,
            sending: VecDeque::new(),
            names: Rc::default(),
            all: Rc::default(),
            figures: QuotaFigures::default(),
            meters,
        }
    }

    /// Whether anything may be due: there are streams, or assignments of former streams may be in force.
    pub(super) fn is_active(&self) -> bool {
        !self.streams.is_empty() || self.quota.buckets().next().is_some()
    }

    /// The figures at `now`, including whether assignments of a former process may be in force without being in the counters.
    pub(super) fn figures_at(&self, now: Timestamp) -> QuotaFigures {
        QuotaFigures { is_learning: self.quota.is_learning(now) && self.is_active(), ..self.figures() }
    }

    pub(super) fn figures(&self) -> QuotaFigures {
        let (streams, buckets) = (self.streams.len() as u64, self.all.get() as u64);
        let (counts, in_force) = (self.quota.counts(), self.quota.in_force());
        let (memory, memory_max) = (self.quota.memory().used() as u64, self.quota.memory().max() as u64);
        QuotaFigures { streams, buckets, counts, in_force, memory, memory_max, ..self.figures }
    }

    /// Whether reports are waiting.
    pub(super) fn has_waiting(&self) -> bool {
        !self.turns.is_empty()
    }

    pub(super) fn take_in(&mut self, event: Event, now: Timestamp) {
        match event {
            Event::Open { stream, domain, peer, peer_id, outbox } => {
                if self.is_draining {
                    outbox.end(StreamEnd::Drain);
                }
                let (buckets, all) = (Subscriptions::new(Rc::clone(&self.names)), Rc::clone(&self.all));
                let client = Client { domain, peer, peer_id, outbox, buckets, all };
                // The number of open calls is bounded elsewhere.
                self.quota.memory_mut().take(peer_id, STREAM_BYTES);
                self.streams.insert(stream, client);
            }
            Event::Report { stream, reports, beyond, taken } => {
                self.figures.refused += beyond;
                if let Some(client) = self.streams.get(&stream) {
                    let waiting = Waiting { stream, reports: reports.into_iter(), added: 0, taken };
                    self.turns.add(client.peer_id, waiting);
                }
            }
            Event::Received { stream, until } => self.quota.acknowledge(StreamId(stream), until, now),
            Event::Close { stream } => {
                let Some(client) = self.streams.remove(&stream) else { return };
                self.quota.close(StreamId(stream));
                self.all.update(|buckets| buckets - client.buckets.len());
                self.quota.memory_mut().give_back(client.peer_id, STREAM_BYTES + client.bytes());
            }
            Event::Granted { bucket, sequence, grant } => {
                self.figures.part_grants += 1;
                self.quota.accept(bucket, sequence, &grant, now);
            }
            Event::Recorded(parts) => self.quota.note_recorded(&parts),
            Event::List(request) => self.piece(request, now),
            Event::Drain => {
                self.is_draining = true;
                self.streams.values().for_each(|client| client.outbox.end(StreamEnd::Drain));
            }
            Event::Stop => {}
        }
    }

    /// Handles the next reports of each peer that has any.
    pub(super) fn take_turns(&mut self, moment: Moment<'_, '_>) {
        let (peers, most) = (self.turns.peers(), self.turns.piece());
        for _ in 0..peers {
            let Some((peer, mut waiting, piece)) = self.turns.take(most) else { return };
            let stream = waiting.stream;
            let before = self.buckets_of(stream);
            if let Some(client) = self.streams.get(&stream) {
                let places = piece.iter().filter_map(|report| client.buckets.find(&report.bucket));
                let places: Vec<u32> = places.collect();
                self.quota.prefetch(StreamId(stream), places.into_iter());
            }
            for report in piece {
                self.figures.reports += 1;
                self.figures.admitted = self.figures.admitted.saturating_add(report.usage.allowed);
                self.figures.denied = self.figures.denied.saturating_add(report.usage.denied);
                self.report(stream, report, moment);
            }
            waiting.added += self.buckets_of(stream).saturating_sub(before) as u32;
            let pushes = self.quota.pushes();
            self.send(&pushes, moment.now);
            self.turns.took(peer, waiting);
        }
    }

    fn buckets_of(&self, stream: u64) -> usize {
        self.streams.get(&stream).map_or(0, |client| client.buckets.len())
    }

    /// Puts the assignments that are due into the outboxes.
    pub(super) fn divide(&mut self, rules: &Pinned<'_>, now: Timestamp) {
        loop {
            let pushes = self.quota.poll(rules, now);
            if pushes.is_empty() {
                break;
            }
            self.send(&pushes, now);
        }
        self.end_stuck(now);
    }

    fn send(&mut self, pushes: &[Push], now: Timestamp) {
        for pushes in pushes.chunk_by(|push, next| push.stream == next.stream) {
            let stream = pushes[0].stream.0;
            let Some(client) = self.streams.get_mut(&stream) else { continue };
            let assignments = pushes.iter().filter_map(|Push { place, assignment, is_renewal, .. }| {
                Some((client.buckets.name(*place)?, *assignment, *is_renewal))
            });
            if client.outbox.put(assignments, now) {
                self.sending.push_back((now, stream));
            }
            for push in pushes.iter().filter(|push| push.assignment == Assignment::Abandon) {
                // Unless the bucket was reported again.
                if !self.quota.is_subscribed(push.stream, push.place) {
                    client.forget(push.place, self.quota.memory_mut());
                }
            }
        }
    }

    /// Ends streams whose clients may have received only a former assignment.
    fn end_stuck(&mut self, now: Timestamp) {
        let round_trip = self.quota.settings().round_trip;
        while let Some((_, stream)) = self.sending.pop_front_if(|(since, _)| now.since(*since) >= round_trip)
        {
            let client = self.streams.get(&stream);
            if let Some(client) = client.filter(|client| client.outbox.is_stuck(now)) {
                client.outbox.end(StreamEnd::Stuck);
            }
        }
        // A division of all buckets queues each stream once for each of them.
        self.sending.shrink_to(2 * self.sending.len().max(self.streams.len()));
    }

    /// The ceilings to record before clients get more.
    pub(super) fn take_record(&mut self, now: Timestamp) -> Option<Vec<(RuleId, Ceiling)>> {
        self.quota.take_record(now)
    }

    /// Requests to the shared store that are due.
    pub(super) fn part_requests(&mut self, now: Timestamp) -> Vec<PartCall> {
        let calls = self.quota.requests(now);
        self.figures.part_requests += calls.len() as u64;
        calls
    }

    /// The last requests of a process that stops. Nothing is sent to clients after them.
    pub(super) fn last_part_requests(&mut self, now: Timestamp) -> Vec<PartCall> {
        self.quota.release(now)
    }

    /// Moves buckets to other counters if the rules have changed. Called before new reports are handled, which already follow these rules.
    pub(super) fn follow_rules(&mut self, moment: Moment<'_, '_>) {
        let generation = moment.rules.generation();
        if std::mem::replace(&mut self.generation, generation) == generation {
            return;
        }
        let streams: Vec<u64> = self.streams.keys().copied().collect();
        for stream in streams {
            let places = self.streams.get(&stream).map(|client| client.buckets.places());
            for place in places.into_iter().flatten() {
                self.follow_rules_of(stream, place, moment);
            }
        }
    }

    fn follow_rules_of(&mut self, stream: u64, place: u32, moment: Moment<'_, '_>) {
        let Some(client) = self.streams.get_mut(&stream) else { return };
        let Some(bucket) = client.buckets.name(place) else { return };
        let subscription = client.buckets.get(place);
        let domain = moment.rules.rules().domain(&client.domain);
        let Some(domain) = domain.filter(|domain| domain.quotas().is_some()) else {
            client.outbox.put([(bucket, Assignment::Abandon, false)], moment.now);
            client.outbox.end(StreamEnd::NoQuotas { domain: Arc::clone(&client.domain) });
            return;
        };
        let key = match limited(moment, domain, &bucket) {
            Limited::ByCounter(charges, _) => charges.iter().flatten().next().map(|charge| charge.key()),
            Limited::All | Limited::Unlimited | Limited::None => None,
        };
        if let Some(Subscription::Counter { .. }) = subscription
            && key.is_some()
            && key == self.quota.counter(StreamId(stream), place)
        {
            // The next report applies the changed limit.
            client.buckets.set(place, Subscription::Counter { is_current: false });
        } else {
            self.report(stream, BucketReport { bucket, usage: Usage::default() }, moment);
        }
    }

    fn report(&mut self, stream: u64, BucketReport { bucket, usage }: BucketReport, moment: Moment<'_, '_>) {
        let Moment { rules, now, .. } = moment;
        let Some(client) = self.streams.get_mut(&stream) else { return };
        let mut known = client.buckets.find(&bucket);
        if let Some(place) = known
            && let Some(Subscription::Counter { is_current: true }) = client.buckets.get(place)
            && self.quota.report_again(rules, (StreamId(stream), place), usage, now)
        {
            return;
        }
        let domain = rules.rules().domain(&client.domain);
        let Some((domain, quotas)) = domain.and_then(|domain| Some((domain, domain.quotas()?))) else {
            client.outbox.end(StreamEnd::NoQuotas { domain: Arc::clone(&client.domain) });
            return;
        };
        let buckets_max = self.quota.settings().buckets_of_stream_max;
        if known.is_none() && !client.has_room(&bucket, buckets_max) {
            self.figures.refused += 1;
            return;
        }
        if known.is_none() && !self.quota.memory().has_room(client.peer_id, subscription_bytes(&bucket)) {
            self.figures.refused_memory += 1;
            return;
        }
        let (charges, rule) = match limited(moment, domain, &bucket) {
            Limited::All => return self.blanket(stream, bucket, usage, true, now),
            Limited::Unlimited => {
                // The first report of a bucket may have no requests yet.
                let requests = usage.allowed.saturating_add(usage.denied).max(usage.is_first.into());
                if requests > 0 {
                    let entries: Vec<Entry<'_>> = bucket.entries().collect();
                    self.meters.unlimited.count(domain.name(), &entries, requests);
                }
                return self.blanket(stream, bucket, usage, true, now);
            }
            Limited::None => return self.blanket(stream, bucket, usage, false, now),
            Limited::ByCounter(charges, rule) => (charges, rule),
        };
        let Some(charge) = charges.iter().flatten().next() else { return };
        if let Some(place) = known
            && self.quota.counter(StreamId(stream), place).is_some_and(|key| key != charge.key())
        {
            self.quota.unsubscribe(StreamId(stream), place);
            client.forget(place, self.quota.memory_mut());
            known = None;
        }
        let place = known.unwrap_or_else(|| client.buckets.next());
        let (peer, share_max) = (client.peer_id, quotas.max_share);
        let (stream_id, unrecorded) = (StreamId(stream), quotas.unrecorded);
        let reporter = Reporter { stream: stream_id, place, peer, share_max, rule, unrecorded };
        match self.quota.report(rules, reporter, charge, usage, now) {
            Ok(()) => {
                let subscription = Subscription::Counter { is_current: true };
                client.remember(bucket, subscription, self.quota.memory_mut());
            }
            Err(Refusal::Indivisible(_)) => self.blanket(stream, bucket, usage, false, now),
            Err(Refusal::TooManyBuckets { .. }) => self.figures.refused += 1,
            Err(Refusal::NoMemory) => self.figures.refused_memory += 1,
            Err(Refusal::NoCounter) => self.figures.refused_counters += 1,
        }
    }

    /// Responds to a report of a bucket whose requests are all admitted, or all denied.
    fn blanket(&mut self, stream: u64, bucket: BucketName, usage: Usage, admits: bool, now: Timestamp) {
        let Some(client) = self.streams.get_mut(&stream) else { return };
        let idle_reports = self.quota.settings().idle_reports;
        let known = client.buckets.find(&bucket);
        if let Some(place) = known {
            self.quota.unsubscribe(StreamId(stream), place);
        }
        let former = known.and_then(|place| client.buckets.get(place));
        let (is_same, idle) = match former {
            Some(Subscription::Blanket { admits: admitted, idle }) => (admitted == admits, idle),
            Some(Subscription::Counter { .. }) | None => (false, 0),
        };
        let idle = if usage.is_idle() && is_same { idle.saturating_add(1) } else { 0 };
        client.remember(bucket.clone(), Subscription::Blanket { admits, idle }, self.quota.memory_mut());
        let place = client.buckets.find(&bucket);
        let counts = &mut self.figures.blanket;
        let (assignment, count) = match admits {
            _ if idle >= idle_reports => {
                place.into_iter().for_each(|place| client.forget(place, self.quota.memory_mut()));
                (Assignment::Abandon, &mut counts.abandoned)
            }
            true => (Assignment::AllowAll, &mut counts.allowed),
            false => (Assignment::DenyAll, &mut counts.denied),
        };
        *count += 1;
        let is_renewal = is_same && assignment != Assignment::Abandon;
        if client.outbox.put([(bucket, assignment, is_renewal)], now) {
            self.sending.push_back((now, stream));
        }
    }
}

/// The limit of a bucket's requests.
fn limited<'r>(
    Moment { rules, is_shadow, .. }: Moment<'r, '_>,
    domain: &DomainRules,
    bucket: &BucketName,
) -> Limited<'r> {
    let entries: Vec<Entry<'_>> = bucket.entries().collect();
    let entries = domain.in_order_of_rules(&entries);
    let rule = domain.find(&entries).map(|found| found.rule);
    match rule.filter(|rule| !rule.unlimited && !rule.limits.is_empty()) {
        None if domain.leaves_undecided(&entries) => Limited::Unlimited,
        None => Limited::All,
        Some(rule) if rule.shadow || is_shadow => Limited::All,
        Some(rule) => {
            let id = rule_id(domain.name(), &rule.info.path);
            let mut request = Request::new(domain.name());
            request.push(Descriptor { entries: entries.into(), limit: None, hits: Hits::ONE });
            let charges =
                if domain.is_shared() { rules.leasable(&request) } else { rules.grantable(&request) };
            charges.map_or(Limited::None, |charges| Limited::ByCounter(charges, id))
        }
    }
}

/// The number of a rule: the same in every process.
fn rule_id(domain: &str, path: &str) -> RuleId {
    // FNV-1a, as no hasher of the standard library guarantees the same values in another version.
    let bytes = domain.bytes().chain([0]).chain(path.bytes());
    RuleId(bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}
