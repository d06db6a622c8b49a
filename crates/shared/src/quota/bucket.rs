//! A bucket: a counter, the clients that report it, and assignments of former clients that may be in force.

use super::{
    Push, Reporter, Settings, StreamId,
    allocation::Claimant,
    ceilings::{Ceiling, Ceilings, RuleId},
    claim::{Claim, Usage},
    debts::Debts,
    growth::reserve_one,
    member::{Member, Remnant},
    part::{Part, PartRequest},
    peers::Peers,
    rates::{Direct, LIMIT_PER_NEW, Rates},
    room::Room,
    server_part::ServerPart,
    source::Source,
    taken::Taken,
    terms::{Indivisible, SliceTerms, Terms},
};
use crate::{FairBound, PeerId, lease::NodeId};
use tidegate_core::{
    algorithm::{Algorithm, Leased},
    limit::{LimitId, Timestamp},
    limiter::{LeasableCharge, Pinned},
    prefetch::prefetch,
    rules::{Percent, REPORT_INTERVAL},
    store::Key,
};

/// Memory of a bucket without its clients: with its counter's part for clients, and its places in tables and lists.
pub(super) const BUCKET_BYTES: usize = size_of::<Bucket>() + 500;

/// A bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub(super) key: Key,
    /// The limit of the terms.
    pub(super) limit: LimitId,
    pub(super) kind: Kind,
    pub(super) rule: RuleId,
    /// The most that clients of the bucket have if nothing is recorded.
    unrecorded: Percent,
    /// The peer for which its memory counts: the peer of its first client.
    pub(super) payer: PeerId,
    /// Bytes of its lists that are counted.
    pub(super) list_bytes: usize,
    /// The part of this server, if the counter is in a shared store.
    pub(super) part: Option<Box<ServerPart>>,
    /// In no order.
    pub(super) members: Vec<Member>,
    pub(super) remnants: Vec<Remnant>,
    /// The most that clients of a peer may have together.
    pub(super) share_max: Percent,
    pub(super) debts: Debts,
    /// Hits of slices that peers spent.
    pub(super) taken: Taken,
    /// The earliest time at which a slice of a client ends, or an earlier time.
    pub(super) slices_end: Timestamp,
    /// Time of the last division.
    pub(super) divided: Timestamp,
    /// Whether a division is due.
    pub(super) is_dirty: bool,
    /// Means for assignments to single clients until the next division.
    pub(super) room: Option<Room>,
    /// The part of this bucket in the sum of all buckets.
    pub(super) summed: Part,
}

/// How the bucket is divided.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Rates(Rates),
    Slices(SliceTerms),
}

/// The server, at the moment of a change.
#[derive(Clone, Copy)]
pub(super) struct Moment<'a, 'l> {
    pub(super) rules: &'a Pinned<'l>,
    pub(super) settings: &'a Settings,
    /// Whether assignments of a former process may be in force without being in the counters.
    pub(super) is_learning: bool,
    pub(super) now: Timestamp,
}

/// What a client reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    /// Index of the client.
    pub(super) index: usize,
    pub(super) usage: Usage,
    /// Nanoseconds since its last report, measured here.
    pub(super) elapsed: u64,
}

impl Bucket {
    /// A bucket without clients. If it is in a shared store, the store has the parts of all processes.
    pub(super) fn new(
        charge: &LeasableCharge<'_>,
        reporter: Reporter,
        server: Option<NodeId>,
        moment: &Moment<'_, '_>,
    ) -> Result<Self, Indivisible> {
        let server = server.filter(|_| charge.is_shared());
        Ok(Self {
            key: charge.key(),
            limit: charge.limit().id,
            kind: Kind::of(charge, moment.now)?,
            payer: reporter.peer,
            list_bytes: 0,
            rule: reporter.rule,
            unrecorded: reporter.unrecorded,
            part: server
                .map(|server| Box::new(ServerPart::new(server, charge.algorithm().clone(), moment.now))),
            members: Vec::new(),
            remnants: Vec::new(),
            share_max: Percent::ALL,
            debts: Debts::default(),
            taken: Taken::default(),
            slices_end: Timestamp::EPOCH,
            divided: Timestamp::EPOCH,
            is_dirty: true,
            room: None,
            summed: Part::default(),
        })
    }

    /// Sets what clients may have of the limit.
    pub(super) fn set_ceiling(&mut self, ceiling: Ceiling) {
        if let Kind::Rates(rates) = &mut self.kind {
            rates.ceiling = ceiling;
        }
    }

    /// Notes what a former process may have assigned, and the requests that the counter has counted beside that.
    pub(super) fn follow_former(&mut self, former: Option<Remnant>, demanded: u64, now: Timestamp) {
        self.remnants.extend(former);
        if let Kind::Rates(rates) = &mut self.kind {
            rates.direct = Direct::new(demanded, now);
        }
    }

    /// Notes the part that a former process of this server had in the store. All of it may be in force at its clients.
    pub(super) fn follow_former_part(&mut self, Part { rate, burst: tokens }: Part, end: Timestamp) {
        if rate > 0 || tokens > 0 {
            self.remnants.push(Remnant { peer: PeerId::NONE, is_former: true, end, rate, tokens });
            self.part.iter_mut().for_each(|part| part.hold(0, tokens));
        }
    }

    /// The part of a former process that may still be in force.
    fn former_part(&self) -> Part {
        let former = self.remnants.iter().find(|remnant| remnant.is_former);
        former.map(Remnant::part).unwrap_or_default()
    }

    /// Whether a client was sent nothing yet.
    pub(super) fn has_new(&self) -> bool {
        self.members.iter().any(|member| !member.is_assigned)
    }

    /// Whether assignments of a former process may be in force.
    pub(super) fn has_former(&self) -> bool {
        self.remnants.iter().any(|remnant| remnant.is_former)
    }

    /// Applies changed rules. What clients have in force counts until it ends, and they begin anew.
    pub(super) fn take_over(
        &mut self,
        charge: &LeasableCharge<'_>,
        moment: &Moment<'_, '_>,
    ) -> Result<(), Indivisible> {
        let now = moment.now;
        let kind = Kind::of(charge, now)?;
        match (&mut self.kind, kind) {
            (Kind::Rates(rates), Kind::Rates(new)) => rates.terms = new.terms,
            (Kind::Slices(terms), Kind::Slices(new)) => *terms = new,
            (kind, new) => {
                *kind = new;
                (self.debts, self.taken) = Default::default();
                for member in &mut self.members {
                    let mut remnant = member.remnant(moment.settings);
                    // In a store, the rate counts as time passes.
                    if let (Kind::Slices(_), None) = (&kind, &self.part) {
                        remnant.tokens = Rates::hits_until(&remnant, now);
                        remnant.rate = 0;
                    }
                    remnant.add_to(&mut self.remnants);
                    let client = (member.stream, member.place);
                    *member = Member::begin_anew(client, member.peer, member.claim, now);
                }
            }
        }
        let held = self.in_force().burst;
        if let Some(part) = &mut self.part {
            part.take_over(charge.algorithm(), held);
        }
        self.limit = charge.limit().id;
        self.room = None;
        self.is_dirty = true;
        Ok(())
    }

    /// Counts the memory of its lists. They grow with what clients leave behind.
    pub(super) fn account(&mut self, memory: &mut FairBound) {
        let bytes = self.remnants.capacity() * size_of::<Remnant>() + self.debts.bytes() + self.taken.bytes();
        memory.replace_shared(std::mem::replace(&mut self.list_bytes, bytes), bytes);
    }

    /// Notes the bounds of a client.
    pub(super) fn bound(&mut self, index: usize, reporter: Reporter) {
        (self.share_max, self.rule, self.unrecorded) =
            (reporter.share_max, reporter.rule, reporter.unrecorded);
        self.members[index].peer = reporter.peer_to_bound();
    }

    /// Adds a client; returns its index.
    pub(super) fn subscribe(&mut self, reporter: Reporter, now: Timestamp) -> usize {
        let claim = match &self.kind {
            Kind::Rates(rates) => Claim::guess(rates.guess(self.members.len())),
            Kind::Slices(_) => Claim::default(),
        };
        reserve_one(&mut self.members);
        self.members.push(Member::new(reporter, claim, now));
        self.is_dirty = true;
        self.members.len() - 1
    }

    /// Removes a client, whose assignment counts until its end. Returns the client that has its index now, with that client's number of the
    /// bucket.
    pub(super) fn leave(&mut self, index: usize, settings: &Settings) -> Option<(StreamId, u32)> {
        let member = self.members.swap_remove(index);
        member.remnant(settings).add_to(&mut self.remnants);
        self.is_dirty = true;
        self.members.get(index).map(|moved| (moved.stream, moved.place))
    }

    /// Takes a report of a client.
    pub(super) fn report(
        &mut self,
        index: usize,
        usage: Usage,
        charge: Option<&LeasableCharge<'_>>,
        moment: &Moment<'_, '_>,
        pushes: &mut Vec<Push>,
    ) {
        let now = moment.now;
        let has_former = self.has_former();
        let member = &mut self.members[index];
        (member.is_heard, member.is_bare) = (true, usage.is_first);
        // If an earlier process of this server assigned it, the part of this server has it already.
        member.has_former = self.part.is_some() && !has_former && !usage.is_first && usage.allowed > 0;
        let elapsed = now.since(member.reported).as_nanos() as u64;
        let report = Report { index, usage, elapsed };
        match self.kind {
            Kind::Rates(mut rates) => {
                self.report_rate(&mut rates, report, moment, pushes);
                self.kind = Kind::Rates(rates);
            }
            Kind::Slices(terms) => {
                if let Some(mut part) = self.part.take() {
                    self.report_slice(terms, report, Source::Part(&mut part), moment, pushes);
                    self.part = Some(part);
                } else {
                    let change = |algorithm: &Algorithm, leased: &mut Leased| {
                        self.report_slice(terms, report, Source::Counter(algorithm, leased), moment, pushes);
                    };
                    // If the limiter has no room for the counter, nothing is counted and nothing can be spent.
                    if let Some(charge) = charge {
                        moment.rules.with_counter(charge, now, change);
                    }
                }
            }
        }
        let member = &mut self.members[index];
        member.idle = if usage.is_idle() { member.idle.saturating_add(1) } else { 0 };
    }

    /// Notes that a client has received what it was sent before `sent`. Returns whether it has now received everything.
    pub(super) fn acknowledge(&mut self, index: usize, sent: Timestamp, now: Timestamp) -> bool {
        let (Kind::Rates(rates), member) = (&mut self.kind, &mut self.members[index]) else { return true };
        if member.is_pending() {
            let before = member.counted.rate;
            rates.give_up(&mut self.debts, member.peer, member.received(sent), now);
            let given_up = before - member.counted.rate;
            self.is_dirty |= self.room.as_mut().is_none_or(|room| room.give_up(given_up));
        }
        !member.is_pending()
    }

    fn report_rate(
        &mut self,
        rates: &mut Rates,
        Report { index, usage, elapsed }: Report,
        moment: &Moment<'_, '_>,
        pushes: &mut Vec<Push>,
    ) {
        let Moment { settings, now, .. } = *moment;
        let has_former = self.has_former();
        let clients = self.members.len();
        let member = &mut self.members[index];
        let round_trip = settings.round_trip.as_nanos() as u64;
        let before = Timestamp::from_nanos(now.as_nanos().saturating_sub(round_trip));
        let (counted, wanted) = (member.counted.rate, member.claim.wanted);
        rates.give_up(&mut self.debts, member.peer, member.received(before), now);
        let given_up = counted - member.counted.rate;
        self.is_dirty |= self.room.as_mut().is_none_or(|room| room.give_up(given_up));
        // A report right after another has too few requests to measure. Example: after the first report of a new bucket, a client reports
        // all its buckets.
        if elapsed < round_trip / 2 {
            self.is_dirty |= usage.is_first;
            if has_former && !member.is_measured && !usage.is_first && !usage.is_idle() {
                // The client had an assignment of another process. Its first report here is about the interval since its report there.
                member.claim.measure(usage, REPORT_INTERVAL.as_nanos() as u64);
                member.is_measured = true;
                self.is_dirty = true;
            }
            return;
        }
        (member.reported, member.is_measured) = (now, true);
        member.claim.measure(usage, elapsed);
        self.is_dirty |= !self.assign_one(index, wanted, rates, settings, now, pushes);
        let member = &mut self.members[index];
        if has_former && !member.is_assigned {
            let had = rates.had(usage.allowed, elapsed, clients, settings);
            let mut had = had.min(rates.below_ceiling(self.assigned()));
            let peers = Peers::of(&self.members, &self.remnants, &self.debts, rates, self.share_max);
            let member = &mut self.members[index];
            if let Some(peers) = peers {
                had = had.min(peers.free(member));
            }
            let share = Rates::carve(&mut self.remnants, had);
            rates.assign_former(member, share, settings, now, pushes);
        }
    }

    /// Ends what has ended, divides anew, and appends the assignments to send. Returns the time of the next division.
    pub(super) fn divide(
        &mut self,
        moment: &Moment<'_, '_>,
        ceilings: &mut Ceilings,
        pushes: &mut Vec<Push>,
    ) -> Timestamp {
        let Moment { rules, settings, now, .. } = *moment;
        let is_met = match self.kind {
            Kind::Rates(mut rates) => {
                self.settle_rates(&mut rates, settings, now);
                let key = self.key;
                let counter = |change: &mut dyn FnMut(&Algorithm, &mut Leased)| {
                    rules.with_leases(key, now, |algorithm, leased| change(algorithm, leased));
                };
                let is_met = match self.follow_part(&mut rates, settings, now) {
                    None => {
                        rates.ceiling = ceilings.of(self.rule, self.unrecorded);
                        let is_met = self.divide_rates(&mut rates, counter, settings, now, pushes);
                        if ceilings.are_recorded() {
                            ceilings.note(self.rule, self.needed_of(&rates), rates.had_of_limit());
                        }
                        is_met
                    }
                    // The part of this server in the store is known.
                    Some(true) => self.divide_rates(&mut rates, |_| (), settings, now, pushes),
                    Some(false) => false,
                };
                self.kind = Kind::Rates(rates);
                is_met
            }
            Kind::Slices(terms) => {
                if let Some(mut part) = self.part.take() {
                    self.divide_hits(terms, &mut part, moment, pushes);
                    self.part = Some(part);
                } else {
                    rules.with_leases(self.key, now, |algorithm, leased| {
                        self.settle_slices(&mut Source::Counter(algorithm, leased), settings, now);
                    });
                }
                true
            }
        };
        (self.divided, self.is_dirty) = (now, false);
        // Others need a share that ends soon, or the part of the counter has to be renewed.
        let is_moving = !self.remnants.is_empty() || self.members.iter().any(Member::is_pending);
        let is_ahead = matches!(self.kind, Kind::Rates(Rates { ahead: 1.., .. }));
        let is_soon = is_ahead || is_moving && (!is_met || self.room.is_none());
        now.saturating_add(if is_soon { settings.round_trip } else { settings.division_interval() })
    }

    /// Prefetches what a report changes, beside the client.
    pub(super) fn prefetch(&self) {
        prefetch(&self.kind);
        prefetch(&self.room);
        prefetch(&self.members);
        prefetch(&self.divided);
        prefetch(&self.debts);
    }

    /// Whether the bucket can be divided now. Divisions of many clients take time, and are kept apart.
    pub(super) fn is_divisible(&self, settings: &Settings, now: Timestamp) -> bool {
        now >= self.divided.saturating_add(settings.spacing(self.members.len()))
    }

    /// Takes the part of this server in the store. None if the counter is not in a store. Returns whether assignments can be sent.
    fn follow_part(&mut self, rates: &mut Rates, settings: &Settings, now: Timestamp) -> Option<bool> {
        let in_force = self.in_force();
        let part = self.part.as_mut()?;
        part.expire(now);
        rates.follow((part.part, part.divisible()), &mut self.debts, in_force);
        Some(part.outlasts(settings, now))
    }

    /// The next request to the store. None if the counter is not in a store.
    pub(super) fn request_part(&mut self, settings: &Settings, now: Timestamp) -> Option<PartRequest> {
        let mut part = self.part.take()?;
        let request = match self.kind {
            Kind::Rates(rates) => self.request_rate(rates, &mut part, settings, now),
            Kind::Slices(terms) => self.request_hits(terms, &mut part, settings, now),
        };
        self.part = Some(part);
        Some(request)
    }

    /// The last request to the store, of a process that stops.
    pub(super) fn release_part(&mut self, settings: &Settings, now: Timestamp) -> Option<PartRequest> {
        let mut part = self.part.take()?;
        let (spent, limit) = match self.kind {
            Kind::Rates(mut rates) => {
                self.settle_rates(&mut rates, settings, now);
                (rates.debt.div_ceil(1_000), (rates.of_limit(), rates.terms.span_in_store()))
            }
            Kind::Slices(_) => {
                self.settle_slices(&mut Source::Part(&mut part), settings, now);
                (0, (0, 0))
            }
        };
        let request = part.release(self.in_force(), spent, limit, now);
        self.part = Some(part);
        request
    }

    fn request_rate(
        &mut self,
        mut rates: Rates,
        part: &mut ServerPart,
        settings: &Settings,
        now: Timestamp,
    ) -> PartRequest {
        self.settle_rates(&mut rates, settings, now);
        let in_force = self.in_force();
        let former = self.former_part();
        let peers = Peers::of(&self.members, &self.remnants, &self.debts, &rates, self.share_max);
        let wanted =
            |member: &Member| peers.as_ref().map_or(member.claim.wanted, |peers| peers.wanted(member));
        let most = |member: &Member| match member.is_measured || former == Part::default() {
            true => u64::MAX,
            false => rates.of_limit() / LIMIT_PER_NEW,
        };
        let demand =
            self.members.iter().map(|member| wanted(member).min(most(member))).fold(0, u64::saturating_add);
        let claim = Claimant { demand, clients: self.members.len() as u64 };
        let request = part.request(&rates, in_force, former, claim, now);
        rates.follow((part.part, part.divisible()), &mut self.debts, in_force);
        self.kind = Kind::Rates(rates);
        request
    }

    /// Whether no client has a part of the bucket, and unspent hits have been given back.
    pub(super) fn is_unused(&self, now: Timestamp) -> bool {
        let is_given_up = match (&self.kind, &self.part) {
            (Kind::Slices(_), Some(part)) => part.is_given_up(now),
            _ => true,
        };
        self.members.is_empty() && self.remnants.is_empty() && is_given_up
    }
}

impl Kind {
    fn of(charge: &LeasableCharge<'_>, now: Timestamp) -> Result<Self, Indivisible> {
        let terms = if charge.is_shared() { Terms::of_shared } else { Terms::of };
        Ok(match terms(charge.algorithm())? {
            Terms::Rates(terms) => Self::Rates(Rates::new(terms, now)),
            Terms::Slices(terms) => Self::Slices(terms),
        })
    }
}
