//! A rate that is divided among clients.
//!
//! The counter has a part for all clients together ([`Assigned`](tidegate_core::algorithm::Assigned)): a rate, and a burst. Requests to
//! the server are decided by what is left of the limit, so that both together keep it. Of that part, clients have shares. Invariants:
//!
//! - what clients may have in force adds up to no more than the rate of the part;
//! - the tokens of their buckets, and those that others had shortly before, add up to no more than its burst: tokens that a client
//!   gave up may have been spent, and are free again only when as many hits as they would have drained.
//!
//! Therefore all clients together admit no more than a token bucket of that rate and that burst, whatever they do.

use super::{
    Push, Settings,
    assignment::Fill,
    ceilings::Ceiling,
    debts::Debts,
    member::{Member, Remnant, Share},
    part::Part,
    terms::{RateTerms, millihits, millihits_in},
};
use crate::{PeerId, lease};
use tidegate_core::{
    algorithm::{Algorithm, Lease, Leased},
    limit::Timestamp,
};

/// The part of the rate that is not assigned: it drains the tokens that clients gave up, and hits of requests to the server.
const RATE_PER_RESERVE: u64 = 256;

/// There are tokens for one new client for so many.
const CLIENTS_PER_NEW: u64 = 16;

/// The burst of a client lasts for one part of so many of a second, at its rate.
const BURST_PARTS_OF_SECOND: u64 = 8;

/// A client whose demand is not known needs one part of so many of a limit. It gets more as far as there is.
pub(super) const LIMIT_PER_NEW: u64 = 32;

/// The state of a rate that is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) terms: RateTerms,
    /// The rate of the part.
    pub(super) rate: u64,
    /// The burst of the part.
    pub(super) burst: u64,
    /// Hits that the counter holds beyond the part, for clients that have nothing: they are free for the part when other hits have drained.
    pub(super) ahead: u64,
    /// Thousandths of tokens that clients gave up and may have spent.
    pub(super) debt: u64,
    /// Time of the last settlement.
    settled: Timestamp,
    /// The rate that clients had in force after the last division. Until the next one it becomes no more.
    pub(super) in_force: u64,
    pub(super) direct: Direct,
    /// What clients may have of it together.
    pub(super) ceiling: Ceiling,
    /// The most that may be divided, if the server has a part of the limit only.
    pub(super) bound: Option<u64>,
    /// The first of the clients that have a share if not all can have one, and the time of the next.
    pub(super) turn: usize,
    pub(super) turn_ends: Timestamp,
}

/// Hits of requests to the server, or all servers, and of leases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direct {
    /// Hits, admitted or denied, as the counter has them.
    counted: u64,
    since: Timestamp,
    /// Thousandths of a hit per second.
    rate: u64,
    /// Demand of the holders of leases, likewise.
    by_leases: u64,
    /// Whether the rate is known.
    is_measured: bool,
}

impl Direct {
    /// Of a counter that has counted so many hits.
    pub(super) fn new(counted: u64, now: Timestamp) -> Self {
        Self { counted, since: now, rate: 0, by_leases: 0, is_measured: false }
    }

    /// Takes in the number of hits so far.
    pub(super) fn measure(&mut self, counted: u64, now: Timestamp) {
        let elapsed = now.since(self.since).as_nanos() as u64;
        if elapsed < 1_000_000_000 {
            return;
        }
        let measured = millihits(counted.saturating_sub(self.counted), elapsed);
        // Fast to rise, and slow to fall, as reports are.
        let halves = (elapsed / 4_000_000_000).min(63) as u32;
        let fallen = (self.rate - self.rate.div_ceil(8)) >> halves;
        (self.counted, self.since, self.rate) = (counted, now, measured.max(fallen));
        self.is_measured = true;
    }

    /// Takes in what the holders of leases expect to spend.
    fn measure_leases(&mut self, leases: &[Lease]) {
        self.measure_demand(leases.iter().fold(0, |sum: u64, lease| sum.saturating_add(lease.demand)));
    }

    /// Takes in what holders of leases expect to spend, as their sum in one lease length.
    pub(super) fn measure_demand(&mut self, demand: u64) {
        self.by_leases = millihits(demand, lease::Settings::default().length_nanos());
    }

    /// Whether it is known what requests demand.
    pub(super) fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// What requests to the server and leases demand.
    pub(super) fn wanted(&self, of: u64) -> u64 {
        let by_requests = match self.rate {
            0 => 0,
            rate => rate.saturating_add(rate / 4).max(of / 64),
        };
        by_requests.saturating_add(self.by_leases)
    }
}

impl Rates {
    pub(super) fn new(terms: RateTerms, now: Timestamp) -> Self {
        let (direct, bound) = (Direct::new(0, now), None);
        Self {
            terms,
            rate: 0,
            burst: 0,
            ahead: 0,
            debt: 0,
            settled: now,
            in_force: 0,
            direct,
            ceiling: Ceiling::ALL,
            bound,
            turn: 0,
            turn_ends: now,
        }
    }

    /// The rate of the limit that can be divided.
    pub(super) fn of_limit(&self) -> u64 {
        self.terms.rate - self.terms.rate / RATE_PER_RESERVE
    }

    /// The rate that can be divided here.
    pub(super) fn divisible(&self) -> u64 {
        self.bound.unwrap_or(u64::MAX).min(self.ceiling.rate.of(self.of_limit()))
    }

    /// What clients may have of the limit.
    pub(super) fn had_of_limit(&self) -> Ceiling {
        let hundredths = |part: u64, of: u64| (u128::from(part) * 100).div_ceil(u128::from(of).max(1)) as u64;
        Ceiling::least(hundredths(self.rate, self.of_limit()), hundredths(self.burst, self.terms.burst))
    }

    /// What clients can be assigned beside this, so that they have no more than is recorded.
    pub(super) fn below_ceiling(&self, Part { rate, burst: tokens }: Part) -> Share {
        let tokens = self.ceiling.burst.of(self.terms.burst).saturating_sub(tokens);
        Share {
            rate: self.ceiling.rate.of(self.of_limit()).saturating_sub(rate),
            tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
        }
    }

    /// Counts tokens that a client of a peer gave up. They have not drained before.
    pub(super) fn give_up(&mut self, debts: &mut Debts, peer: PeerId, tokens: u64, now: Timestamp) {
        self.drain(debts, now);
        let millitokens = tokens.saturating_mul(1_000);
        self.debt = self.debt.saturating_add(millitokens);
        if peer != PeerId::NONE {
            debts.add(peer, millitokens);
        }
    }

    /// Drains tokens that were given up, by the part of the rate that was not assigned since the last division.
    pub(super) fn drain(&mut self, debts: &mut Debts, now: Timestamp) {
        let before = self.debt;
        let (spare, elapsed) = (self.rate.saturating_sub(self.in_force), now.since(self.settled).as_nanos());
        let drained = u128::from(spare) * elapsed / 1_000_000_000;
        self.debt = self.debt.saturating_sub(u64::try_from(drained).unwrap_or(u64::MAX));
        debts.drain(before, self.debt);
        self.settled = now.max(self.settled);
    }

    /// The part of the burst that each client has whatever its rate, with parts for some new ones. A client whose demand is near its
    /// share loses, by chance, one in twice as many requests as it has tokens.
    pub(super) fn tokens_of_each(&self, clients: usize) -> u32 {
        let clients = clients as u64;
        let each = (self.burst - self.burst / 4) / (clients + clients / CLIENTS_PER_NEW + 1);
        u32::try_from(each).unwrap_or(u32::MAX).max(1)
    }

    /// The burst of a client with this rate: hits of an eighth of a second more than the least, as long as all together have no more
    /// than an eighth of the whole for it.
    pub(super) fn tokens_of(&self, rate: u64, clients: usize) -> u32 {
        let part = u128::from(self.burst / 8) * u128::from(rate) / u128::from(self.divisible().max(1));
        let of_rate = u128::from(rate / BURST_PARTS_OF_SECOND / 1_000).min(part);
        self.tokens_of_each(clients).saturating_add(u32::try_from(of_rate).unwrap_or(u32::MAX))
    }

    /// Demand of a client that is not known: an equal share.
    pub(super) fn guess(&self, clients: usize) -> u64 {
        self.ceiling.rate.of(self.of_limit()) / (clients as u64 + 1)
    }

    /// Rate and tokens that a client of a former process certainly had, by what it admitted.
    pub(super) fn had(&self, allowed: u64, elapsed: u64, clients: usize, settings: &Settings) -> Share {
        let tokens = self.tokens_of_each(clients);
        // Twice what it had of a burst at most, a part of which is by its rate.
        let of_rate = 2 * 1_000_000_000 / BURST_PARTS_OF_SECOND;
        let longest = elapsed.saturating_add(settings.round_trip.as_nanos() as u64).saturating_add(of_rate);
        let rate = millihits(allowed.saturating_sub(2 * u64::from(tokens)), longest);
        Share { rate, tokens: if rate > 0 { tokens.div_ceil(8) } else { 0 } }
    }
}

impl Rates {
    /// Takes a part of the counter for clients: as near to the desired rate as the counter permits, and no less than may be in force. Where
    /// requests to the server take each hit as soon as it is free, clients that have nothing would get nothing: half of the burst is held for
    /// them, although it is not free yet.
    pub(super) fn adjust(
        &mut self,
        (algorithm, leased): (&Algorithm, &mut Leased),
        (desired, is_starved): (u64, bool),
        Part { rate: rate_in_force, burst: tokens }: Part,
        settings: &Settings,
        now: Timestamp,
    ) {
        leased.expire(algorithm, now);
        // No client had these.
        if let Some(assigned) = &mut leased.assigned {
            assigned.held = assigned.held.saturating_sub(self.ahead);
        }
        let held = leased.assigned.map_or(0, |assigned| assigned.held);
        self.direct.measure(leased.assigned.map_or(0, |assigned| assigned.demanded), now);
        self.direct.measure_leases(&leased.leases);
        let free = algorithm.remaining(&leased.state, now).saturating_sub(leased.outstanding());
        let most = held + free;
        // Tokens that were given up count until they have drained.
        let least = tokens.saturating_add(self.debt.div_ceil(1_000)).min(self.burst);
        self.burst = self.ceiling.burst.of(self.terms.burst).min(most).max(least);
        self.rate = desired.min(self.terms.rate_within(most.saturating_sub(self.burst))).max(rate_in_force);
        let end = now.saturating_add(settings.part_life());
        let accrued = if self.terms.accrues { self.rate } else { 0 };
        let part = self.terms.held(self.rate, self.burst);
        leased.assign(algorithm, part, accrued, end, now);
        let burst = (self.ceiling.burst.of(self.terms.burst) / 2).max(self.burst).max(1);
        let needed = if is_starved { self.terms.held(desired, burst) } else { 0 };
        self.ahead = needed.saturating_sub(part);
        leased.assigned.iter_mut().for_each(|assigned| assigned.held += self.ahead);
    }

    /// Takes what this server has of the limit, and what of it is to be divided; clients may have so much in force. Tokens that were given up
    /// and are beyond it are counted by the store. Expects that it was settled at this time.
    pub(super) fn follow(
        &mut self,
        (part, divisible): (Part, Part),
        debts: &mut Debts,
        Part { rate, burst: tokens }: Part,
    ) {
        let before = self.debt;
        self.debt = self.debt.min(part.burst.saturating_sub(tokens).saturating_mul(1_000));
        debts.drain(before, self.debt);
        let least = tokens.saturating_add(self.debt.div_ceil(1_000));
        (self.rate, self.burst) = (part.rate, divisible.burst.max(least).min(part.burst));
        (self.bound, self.in_force) = (Some(divisible.rate), rate);
    }

    /// Sends a client of a former process what it certainly had.
    pub(super) fn assign_former(
        &self,
        member: &mut Member,
        share: Share,
        settings: &Settings,
        now: Timestamp,
        pushes: &mut Vec<Push>,
    ) {
        let Some(fill) = Fill::at_most(share.rate).filter(|_| share.tokens > 0) else { return };
        member.send(Share { rate: fill.rate(), ..share }, settings, now);
        let assignment = fill.assignment(share.tokens, member.salt);
        pushes.push(Push { stream: member.stream, place: member.place, assignment, is_renewal: false });
    }

    /// Takes from the shares of clients of a former process what one of them has.
    pub(super) fn carve(remnants: &mut [Remnant], share: Share) -> Share {
        let Some(former) = remnants.iter_mut().find(|remnant| remnant.is_former) else {
            return Share::default();
        };
        let share = Share {
            rate: share.rate.min(former.rate),
            tokens: share.tokens.min(u32::try_from(former.tokens).unwrap_or(u32::MAX)),
        };
        former.rate -= share.rate;
        former.tokens -= u64::from(share.tokens);
        share
    }

    /// Hits that may be spent of a share until its end.
    pub(super) fn hits_until(remnant: &Remnant, now: Timestamp) -> u64 {
        let left = remnant.end.since(now).as_nanos() as u64;
        remnant.tokens.saturating_add(millihits_in(remnant.rate, left).div_ceil(1_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rate that was not assigned before drains nothing that is given up later.
    #[test]
    fn tokens_that_are_given_up_drain_from_then_on() {
        let at = |secs: u64| Timestamp::from_nanos(secs * 1_000_000_000);
        let terms = RateTerms { rate: 100_000, burst: 500, span: 0, accrues: true };
        let mut rates = Rates { rate: 100_000, in_force: 40_000, burst: 500, ..Rates::new(terms, at(0)) };
        let mut debts = Debts::default();
        rates.give_up(&mut debts, PeerId::NONE, 100, at(10));
        assert_eq!(rates.debt, 100_000);
        rates.drain(&mut debts, at(11));
        assert_eq!(rates.debt, 40_000);
    }
}
