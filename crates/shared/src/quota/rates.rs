//! A rate that is divided among clients.
//!
//! The counter has a part for all clients together ([`Assigned`](tidegate_core::algorithm::Assigned)): a rate, and a burst. What is left of
//! the limit decides requests to the server, so that both together keep the limit. Clients have shares of the part. Invariants:
//!
//! - the rates that may be in force at clients add up to no more than the rate of the part;
//! - the tokens of their buckets, and tokens that others had shortly before, add up to no more than its burst. Tokens that a client gave up
//!   may have been spent: they are free again only when as many hits as they would have drained.
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

/// Reciprocal of the part of the rate that is not assigned. It drains tokens that clients gave up, and hits of requests to the server.
const RATE_PER_RESERVE: u64 = 256;

/// Number of clients for which the burst has tokens for one new client.
const CLIENTS_PER_NEW: u64 = 16;

/// Reciprocal of the part of a second whose tokens at its rate a client may have, in addition to its equal part.
const BURST_PARTS_OF_SECOND: u64 = 8;

/// Reciprocal of the part of the limit that a client is assumed to need if its demand is not known. It gets more if there is more.
pub(super) const LIMIT_PER_NEW: u64 = 32;

/// The state of a rate that is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) terms: RateTerms,
    /// The rate of the part.
    pub(super) rate: u64,
    /// The burst of the part.
    pub(super) burst: u64,
    /// Hits that the counter holds beyond the part, for clients without a share. They become free for the part when other hits have
    /// drained.
    pub(super) ahead: u64,
    /// Thousandths of tokens that clients gave up and that may have been spent.
    pub(super) debt: u64,
    /// Time of the last settlement.
    settled: Timestamp,
    /// The rate in force at clients after the last division. It does not grow until the next division.
    pub(super) in_force: u64,
    pub(super) direct: Direct,
    /// The most that clients may have of the limit together.
    pub(super) ceiling: Ceiling,
    /// The most that may be divided, if the server has only a part of the limit.
    pub(super) bound: Option<u64>,
    /// If not all clients can have a share: the first of those that have one, and the time at which others get theirs.
    pub(super) turn: usize,
    pub(super) turn_ends: Timestamp,
}

/// Demand of requests to the server, or to all servers, and of leases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direct {
    /// Hits that the counter has counted, admitted or denied.
    counted: u64,
    since: Timestamp,
    /// Thousandths of a hit per second.
    rate: u64,
    /// Demand of the holders of leases, in the same unit.
    by_leases: u64,
    /// Whether the rate is known.
    is_measured: bool,
}

impl Direct {
    /// No demand yet, for a counter that has counted `counted` hits.
    pub(super) fn new(counted: u64, now: Timestamp) -> Self {
        Self { counted, since: now, rate: 0, by_leases: 0, is_measured: false }
    }

    /// Takes the number of hits so far.
    pub(super) fn measure(&mut self, counted: u64, now: Timestamp) {
        let elapsed = now.since(self.since).as_nanos() as u64;
        if elapsed < 1_000_000_000 {
            return;
        }
        let measured = millihits(counted.saturating_sub(self.counted), elapsed);
        // Rises fast and falls slowly, as the demand in reports does.
        let halves = (elapsed / 4_000_000_000).min(63) as u32;
        let fallen = (self.rate - self.rate.div_ceil(8)) >> halves;
        (self.counted, self.since, self.rate) = (counted, now, measured.max(fallen));
        self.is_measured = true;
    }

    /// Takes what the holders of leases expect to spend.
    fn measure_leases(&mut self, leases: &[Lease]) {
        self.measure_demand(leases.iter().fold(0, |sum: u64, lease| sum.saturating_add(lease.demand)));
    }

    /// Takes what the holders of leases expect to spend: the sum in one lease length.
    pub(super) fn measure_demand(&mut self, demand: u64) {
        self.by_leases = millihits(demand, lease::Settings::default().length_nanos());
    }

    /// Whether the demand of requests is known.
    pub(super) fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// Demand of requests to the server and of leases, in a limit with the rate `of`.
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

    /// The part of the limit that clients may have.
    pub(super) fn had_of_limit(&self) -> Ceiling {
        let hundredths = |part: u64, of: u64| (u128::from(part) * 100).div_ceil(u128::from(of).max(1)) as u64;
        Ceiling::least(hundredths(self.rate, self.of_limit()), hundredths(self.burst, self.terms.burst))
    }

    /// What clients can get beside `part` without exceeding the recorded ceiling.
    pub(super) fn below_ceiling(&self, Part { rate, burst: tokens }: Part) -> Share {
        let tokens = self.ceiling.burst.of(self.terms.burst).saturating_sub(tokens);
        Share {
            rate: self.ceiling.rate.of(self.of_limit()).saturating_sub(rate),
            tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
        }
    }

    /// Counts tokens that a client of a peer gave up. They begin to drain now.
    pub(super) fn give_up(&mut self, debts: &mut Debts, peer: PeerId, tokens: u64, now: Timestamp) {
        self.drain(debts, now);
        let millitokens = tokens.saturating_mul(1_000);
        self.debt = self.debt.saturating_add(millitokens);
        if peer != PeerId::NONE {
            debts.add(peer, millitokens);
        }
    }

    /// Drains tokens that were given up, by the rate that was not assigned since the last division.
    pub(super) fn drain(&mut self, debts: &mut Debts, now: Timestamp) {
        let before = self.debt;
        let (spare, elapsed) = (self.rate.saturating_sub(self.in_force), now.since(self.settled).as_nanos());
        let drained = u128::from(spare) * elapsed / 1_000_000_000;
        self.debt = self.debt.saturating_sub(u64::try_from(drained).unwrap_or(u64::MAX));
        debts.drain(before, self.debt);
        self.settled = now.max(self.settled);
    }

    /// The tokens that each client has at any rate. Some are left for new clients. A client whose demand is near its share loses, by
    /// chance, one in twice as many requests as it has tokens.
    pub(super) fn tokens_of_each(&self, clients: usize) -> u32 {
        let clients = clients as u64;
        let each = (self.burst - self.burst / 4) / (clients + clients / CLIENTS_PER_NEW + 1);
        u32::try_from(each).unwrap_or(u32::MAX).max(1)
    }

    /// The burst of a client with this rate: the least burst and the hits of an eighth of a second. All clients together have no more than
    /// an eighth of the whole burst for the latter.
    pub(super) fn tokens_of(&self, rate: u64, clients: usize) -> u32 {
        let part = u128::from(self.burst / 8) * u128::from(rate) / u128::from(self.divisible().max(1));
        let of_rate = u128::from(rate / BURST_PARTS_OF_SECOND / 1_000).min(part);
        self.tokens_of_each(clients).saturating_add(u32::try_from(of_rate).unwrap_or(u32::MAX))
    }

    /// Assumed demand of a client whose demand is not known: an equal share.
    pub(super) fn guess(&self, clients: usize) -> u64 {
        self.ceiling.rate.of(self.of_limit()) / (clients as u64 + 1)
    }

    /// Rate and tokens that a client certainly had of a former process, as what it admitted shows.
    pub(super) fn had(&self, allowed: u64, elapsed: u64, clients: usize, settings: &Settings) -> Share {
        let tokens = self.tokens_of_each(clients);
        // It may have spent twice its burst, a part of which follows from its rate.
        let of_rate = 2 * 1_000_000_000 / BURST_PARTS_OF_SECOND;
        let longest = elapsed.saturating_add(settings.round_trip.as_nanos() as u64).saturating_add(of_rate);
        let rate = millihits(allowed.saturating_sub(2 * u64::from(tokens)), longest);
        Share { rate, tokens: if rate > 0 { tokens.div_ceil(8) } else { 0 } }
    }
}

impl Rates {
    /// Takes a part of the counter for clients: as near to the desired rate as the counter permits, and no less than may be in force. If
    /// requests to the server take each hit as soon as it is free, clients without a share would get nothing. Half of the burst is then
    /// held for them, although it is not free yet.
    pub(super) fn adjust(
        &mut self,
        (algorithm, leased): (&Algorithm, &mut Leased),
        (desired, is_starved): (u64, bool),
        Part { rate: rate_in_force, burst: tokens }: Part,
        settings: &Settings,
        now: Timestamp,
    ) {
        leased.expire(algorithm, now);
        // No client had the hits held ahead.
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

    /// Takes this server's part of the limit, the part of it to divide, and what may be in force at clients. The store counts tokens that
    /// were given up and do not fit into the part. Expects `Bucket::settle_rates` at the same time.
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

    /// Sends a client the share that it certainly had of a former process.
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

    /// Moves the share of one client out of the remnant of the former process.
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

    /// Hits of a share that may be spent until its end.
    pub(super) fn hits_until(remnant: &Remnant, now: Timestamp) -> u64 {
        let left = remnant.end.since(now).as_nanos() as u64;
        remnant.tokens.saturating_add(millihits_in(remnant.rate, left).div_ceil(1_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rate that was not assigned earlier does not drain tokens that are given up later.
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
