//! One bucket: a counter, the clients that report it, and what may be in force of those that have left.

use super::{
    InForce, Push, Reporter, Settings, StreamId,
    claim::{Claim, Usage},
    debts::Debts,
    member::{Member, Remnant},
    peers::Peers,
    rates::Rates,
    taken::Taken,
    terms::{Indivisible, SliceTerms, Terms},
};
use tidegate_core::{
    algorithm::{Algorithm, Leased},
    limit::{LimitId, Timestamp},
    limiter::{LeasableCharge, Pinned},
    rules::Percent,
    store::Key,
};

/// A bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub(super) key: Key,
    /// The limit of the terms.
    pub(super) limit: LimitId,
    pub(super) kind: Kind,
    /// In no order.
    pub(super) members: Vec<Member>,
    pub(super) remnants: Vec<Remnant>,
    /// The most that clients of a peer may have together.
    pub(super) share_max: Percent,
    pub(super) debts: Debts,
    /// Hits of slices that peers spent.
    pub(super) taken: Taken,
    /// Time of the last division.
    pub(super) divided: Timestamp,
    /// Whether a division is due.
    pub(super) is_dirty: bool,
    /// The part that is in the sum of all buckets.
    pub(super) summed: InForce,
}

/// How it is divided.
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
    /// Whether assignments of a former process may be in force.
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
    /// A bucket of which a former process may have assigned shares until `former_end`.
    pub(super) fn new(
        charge: &LeasableCharge<'_>,
        former_end: Timestamp,
        moment: &Moment<'_, '_>,
    ) -> Result<Self, Indivisible> {
        let mut bucket = Self {
            key: charge.key(),
            limit: charge.limit().id,
            kind: Kind::of(charge.algorithm(), moment.now)?,
            members: Vec::new(),
            remnants: Vec::new(),
            share_max: Percent::ALL,
            debts: Debts::default(),
            taken: Taken::default(),
            divided: Timestamp::EPOCH,
            is_dirty: true,
            summed: InForce::default(),
        };
        if let (Kind::Rates(rates), true) = (&bucket.kind, moment.is_learning) {
            bucket.remnants.push(rates.of_former(former_end));
        }
        Ok(bucket)
    }

    /// Takes over changed rules. What clients have in force stays, and they begin anew.
    pub(super) fn take_over(
        &mut self,
        charge: &LeasableCharge<'_>,
        moment: &Moment<'_, '_>,
    ) -> Result<(), Indivisible> {
        let now = moment.now;
        let kind = Kind::of(charge.algorithm(), now)?;
        match (&mut self.kind, kind) {
            (Kind::Rates(rates), Kind::Rates(new)) => rates.terms = new.terms,
            (Kind::Slices(terms), Kind::Slices(new)) => *terms = new,
            (kind, new) => {
                *kind = new;
                (self.debts, self.taken) = Default::default();
                for member in &mut self.members {
                    let mut remnant = member.remnant(moment.settings);
                    if let Kind::Slices(_) = kind {
                        remnant.tokens = Rates::hits_until(&remnant, now);
                        remnant.rate = 0;
                    }
                    remnant.add_to(&mut self.remnants);
                    *member = Member::new(member.reporter(self.share_max), member.claim, now);
                }
            }
        }
        self.limit = charge.limit().id;
        self.is_dirty = true;
        Ok(())
    }

    /// Adds a client; returns its index.
    pub(super) fn subscribe(&mut self, reporter: Reporter, now: Timestamp) -> usize {
        let claim = match &self.kind {
            Kind::Rates(rates) => Claim::guess(rates.guess(self.members.len())),
            Kind::Slices(_) => Claim::default(),
        };
        self.members.push(Member::new(reporter, claim, now));
        self.is_dirty = true;
        self.members.len() - 1
    }

    /// Removes a client; returns the one that has its index now. What it has in force stays until its end.
    pub(super) fn leave(&mut self, index: usize, settings: &Settings) -> Option<StreamId> {
        let member = self.members.swap_remove(index);
        member.remnant(settings).add_to(&mut self.remnants);
        self.is_dirty = true;
        self.members.get(index).map(|moved| moved.stream)
    }

    /// Takes in a report of a client.
    pub(super) fn report(
        &mut self,
        index: usize,
        reporter: Reporter,
        usage: Usage,
        charge: &LeasableCharge<'_>,
        moment: &Moment<'_, '_>,
        pushes: &mut Vec<Push>,
    ) {
        let now = moment.now;
        self.share_max = reporter.share_max;
        let member = &mut self.members[index];
        member.peer = reporter.peer_to_bound();
        (member.is_heard, member.is_bare) = (true, usage.is_first);
        let elapsed = now.since(member.reported).as_nanos() as u64;
        let report = Report { index, usage, elapsed };
        match self.kind {
            Kind::Rates(mut rates) => {
                self.report_rate(&mut rates, report, moment, pushes);
                self.kind = Kind::Rates(rates);
            }
            Kind::Slices(terms) => {
                let change = |algorithm: &Algorithm, leased: &mut Leased| {
                    self.report_slice(terms, report, (algorithm, leased), moment, pushes);
                };
                // Without room for the counter nothing is counted, and nothing can be spent.
                moment.rules.with_counter(charge, now, change);
            }
        }
        let member = &mut self.members[index];
        member.idle = if usage.is_idle() { member.idle.saturating_add(1) } else { 0 };
    }

    fn report_rate(
        &mut self,
        rates: &mut Rates,
        Report { index, usage, elapsed }: Report,
        moment: &Moment<'_, '_>,
        pushes: &mut Vec<Push>,
    ) {
        let Moment { settings, now, is_learning, .. } = *moment;
        let clients = self.members.len();
        let member = &mut self.members[index];
        let round_trip = settings.round_trip.as_nanos() as u64;
        let before = Timestamp::from_nanos(now.as_nanos().saturating_sub(round_trip));
        rates.give_up(&mut self.debts, member.peer, member.received(before), now);
        self.is_dirty = true;
        // A report right after another, as the first one of all buckets after that of a new one, has too few requests.
        if elapsed < round_trip / 2 {
            return;
        }
        (member.reported, member.is_measured) = (now, true);
        member.claim.measure(usage, elapsed);
        if is_learning && !member.is_assigned {
            let mut had = rates.had(usage.allowed, elapsed, clients, settings);
            let peers = Peers::of(&self.members, &self.remnants, &self.debts, rates, self.share_max);
            let member = &mut self.members[index];
            if let Some(peers) = peers {
                had = had.min(peers.free(member));
            }
            let share = Rates::carve(&mut self.remnants, had);
            rates.assign_former(member, share, self.key, settings, now, pushes);
        }
    }

    /// Ends what has ended, divides anew, and appends what is to be sent. Returns the time of the next division.
    pub(super) fn divide(&mut self, moment: &Moment<'_, '_>, pushes: &mut Vec<Push>) -> Timestamp {
        let Moment { rules, settings, is_learning, now } = *moment;
        match self.kind {
            Kind::Rates(mut rates) => {
                self.settle_rates(&mut rates, settings, now);
                let key = self.key;
                let counter = |change: &mut dyn FnMut(&Algorithm, &mut Leased)| {
                    rules.with_leases(key, now, |algorithm, leased| change(algorithm, leased));
                };
                self.divide_rates(&mut rates, counter, is_learning, settings, now, pushes);
                self.kind = Kind::Rates(rates);
            }
            Kind::Slices(_) => {
                rules.with_leases(self.key, now, |algorithm, leased| {
                    self.settle_slices((algorithm, leased), settings, now);
                });
            }
        }
        (self.divided, self.is_dirty) = (now, false);
        // Something ends soon, or the part of the counter has to be renewed.
        let is_moving = !self.remnants.is_empty() || self.members.iter().any(Member::is_pending);
        now.saturating_add(if is_moving { settings.round_trip } else { settings.ttl / 3 })
    }

    /// Whether no client has a part of it.
    pub(super) fn is_unused(&self) -> bool {
        self.members.is_empty() && self.remnants.is_empty()
    }
}

impl Kind {
    fn of(algorithm: &Algorithm, now: Timestamp) -> Result<Self, Indivisible> {
        Ok(match Terms::of(algorithm)? {
            Terms::Rates(terms) => Self::Rates(Rates::new(terms, now)),
            Terms::Slices(terms) => Self::Slices(terms),
        })
    }
}
