//! This server's part of a bucket whose counter is in a shared store, and its requests to the store.
//!
//! Invariants:
//!
//! - `part` is no more than what the store counts for this server until `end`, whichever of its requests have been received: until the
//!   response to a request is known, `part` is what that request keeps;
//! - hits that it lost of its burst are in `spent`, unless they were certainly not spent;
//! - nothing that is in force at clients is beyond `part`, or ends after `end`;
//! - a part grows into what neither other parts nor requests to servers need. This is not known before the first response, and the part is
//!   empty until then.

use super::{
    allocation::{Claimant, Level},
    part::{KNOWN_BURST, OtherPart, Part, PartGrant, PartRequest},
    rates::{Direct, Rates},
    settings::{PART_LIFE, Settings},
};
use crate::lease::NodeId;
use std::time::Duration;
use tidegate_core::{algorithm::Algorithm, limit::Timestamp};

/// Time between two requests of a part that stays as it is. It is less than half of the time by which a part outlives assignments.
const INTERVAL: Duration = Duration::from_millis(1_500);

/// Time between two requests of a part that should change.
const INTERVAL_OF_CHANGE: Duration = Duration::from_millis(500);

/// Time after which a request without a response is sent again.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reciprocal of the part of the time by which clocks of servers and store may differ in speed.
const DRIFT: u32 = 1_024;

/// Reciprocal of the part of all bursts that is left for new servers.
const BURSTS_PER_NEW: u64 = 16;

/// Reciprocal of the part of the bursts that is divided by the rates of servers. The rest is divided by their numbers of clients.
const BURSTS_PER_RATE: u64 = 4;

/// Reciprocal of the part of the rate that is not divided while bursts should grow and cannot. It drains hits that were given up.
const RATE_PER_DRAIN: u64 = 32;

/// A server whose part ends within this time has vanished: other servers renew their parts earlier.
const VANISHED_BEFORE: Duration = Duration::from_secs(16);

/// The part of a server.
#[derive(Clone, Debug)]
pub(super) struct ServerPart {
    server: NodeId,
    /// Algorithm of the limit.
    pub(super) algorithm: Algorithm,
    pub(super) part: Part,
    /// Time from which on nothing may be in force.
    pub(super) end: Timestamp,
    /// The part that it should get, by the last response.
    aim: Part,
    /// Whether `aim` was decided before the demand of requests was known.
    is_provisional: bool,
    pub(super) others: Vec<OtherPart>,
    /// Hits by which the bursts of all servers can grow.
    free: u64,
    /// Demand of requests since the first response. The store counts from an earlier time.
    direct: Option<Direct>,
    /// Hits of bursts that may have been spent: see [`PartRequest`].
    spent: u64,
    acknowledged: Option<u64>,
    /// If the limit is divided by slices: hits that clients have, and hits that they demand for the time that a slice lasts.
    held: u64,
    demanded: u64,
    /// The burst and the spent hits of the last request.
    stated: (u64, u64),
    sequence: u64,
    /// Whether a former process with the same number may have a part, which this process takes. No response has shown it yet.
    is_resuming: bool,
    /// Whether the first response has shown the parts of others, and no request has followed.
    is_joining: bool,
    /// Time of the last request, and whether its response is missing.
    requested: Option<Timestamp>,
    is_awaited: bool,
}

impl ServerPart {
    pub(super) fn new(server: NodeId, algorithm: Algorithm, now: Timestamp) -> Self {
        Self {
            server,
            algorithm,
            part: Part::default(),
            end: now,
            aim: Part::default(),
            is_provisional: true,
            others: Vec::new(),
            free: 0,
            direct: None,
            spent: 0,
            acknowledged: None,
            held: 0,
            demanded: 0,
            stated: (0, 0),
            sequence: 0,
            is_resuming: false,
            is_joining: false,
            requested: None,
            is_awaited: false,
        }
    }

    /// Takes the part of a former process with the same number, which has ended. Requests nothing else until this part is known. It
    /// includes hits that the former process had spent and not reported.
    pub(super) fn resume(&mut self) {
        (self.is_resuming, self.acknowledged) = (true, Some(0));
    }

    /// Whether an assignment that is sent now ends before the part does.
    pub(super) fn outlasts(&self, settings: &Settings, now: Timestamp) -> bool {
        now.saturating_add(settings.ttl + settings.round_trip) <= self.end
    }

    /// Ends the part if its time is over. The store counts the part's burst.
    pub(super) fn expire(&mut self, now: Timestamp) {
        if self.end <= now {
            self.spend(self.part.burst, self.part.burst);
            self.part.rate = 0;
        }
    }

    /// Counts hits as spent. `of_part` of them were in the part.
    pub(super) fn spend(&mut self, hits: u64, of_part: u64) {
        self.spent = self.spent.saturating_add(hits);
        self.part.burst = self.part.burst.saturating_sub(of_part);
    }

    /// Replaces the hits of a client.
    pub(super) fn hold(&mut self, before: u64, after: u64) {
        self.held = self.held.saturating_sub(before).saturating_add(after);
    }

    /// Applies a changed limit, of which clients have `held` tokens or hits.
    pub(super) fn take_over(&mut self, algorithm: &Algorithm, held: u64) {
        self.algorithm.clone_from(algorithm);
        self.held = held;
    }

    /// Hits of the part that clients do not have.
    pub(super) fn idle(&self) -> u64 {
        self.part.burst.saturating_sub(self.held)
    }

    /// Hits that neither clients nor other servers have.
    pub(super) fn left(&self) -> u64 {
        self.free.saturating_add(self.idle())
    }

    /// The most of the idle hits for a client with this demand: what others do not demand, or an equal part.
    pub(super) fn share(&self, demanded: u64, clients: u64) -> u64 {
        let of_others = self.demanded.saturating_sub(demanded);
        self.idle().saturating_sub(of_others).max(self.idle() / (clients + 1))
    }

    /// Whether the store certainly has nothing of this part that could still be used.
    pub(super) fn is_given_up(&self, now: Timestamp) -> bool {
        let is_empty = self.part == Part::default() && self.acknowledged == Some(self.spent);
        is_empty && !self.is_awaited || self.end.saturating_add(PART_LIFE) <= now
    }

    /// The part to divide among clients. It is smaller than `part` if others need the rest.
    pub(super) fn divisible(&self) -> Part {
        self.part.min(self.aim)
    }

    /// Time of the next request.
    pub(super) fn next(&self) -> Timestamp {
        let interval = if self.is_awaited {
            PATIENCE
        } else if self.is_resuming || self.is_joining {
            return Timestamp::EPOCH;
        } else if self.aim == self.part || self.aim.rate == 0 {
            // Hits that are divided by slices are spent and requested all the time.
            INTERVAL
        } else {
            INTERVAL_OF_CHANGE
        };
        self.requested.map_or(Timestamp::EPOCH, |requested| requested.saturating_add(interval))
    }

    /// The next request for a part of a rate, of which `in_force` may be at clients. Until the response, the part is no more than the
    /// request keeps. What the request gives up of the burst may have been spent.
    pub(super) fn request(
        &mut self,
        rates: &Rates,
        in_force: Part,
        former: Part,
        claim: Claimant,
        now: Timestamp,
    ) -> PartRequest {
        self.expire(now);
        if self.is_resuming {
            return self.request_former(rates.of_limit(), rates.terms.span_in_store(), now);
        }
        self.aim = self.aim_of(rates, claim, former);
        self.is_provisional = !self.direct.is_some_and(|direct| direct.is_measured());
        if self.direct.is_none() {
            self.aim = Part::default();
        }
        if former != Part::default() {
            // Assignments of a former process are in force beside what clients demand.
            let demanded = self.aim.rate.min(claim.demand.saturating_add(claim.demand / 8));
            self.aim.rate = former.rate.saturating_add(demanded).min(rates.of_limit());
            self.aim.burst =
                self.aim.burst.max(former.burst.saturating_add(self.aim.burst / 8)).min(rates.terms.burst);
        }
        let given_up = self.part.burst.saturating_sub(self.aim.burst.max(in_force.burst));
        self.spend(given_up, given_up);
        self.send(in_force, (rates.of_limit(), rates.terms.span_in_store()), claim, now)
    }

    /// The next request for hits that are divided by slices, of which `in_force` may be at clients. Clients only have a rate from before
    /// the rules changed. Hits that no client has were not spent: they are given back if others may need them.
    pub(super) fn request_hits(
        &mut self,
        limit: u64,
        wanted: impl Fn(u64, u64) -> u64,
        in_force: Part,
        clients: u64,
        now: Timestamp,
    ) -> PartRequest {
        self.expire(now);
        if self.is_resuming {
            return self.request_former(0, 0, now);
        }
        self.held = in_force.burst;
        // Before the first response, the hits that are left are not known.
        let free = if self.acknowledged.is_some() { self.left() } else { limit };
        let others = self.others.iter().fold((0, 0), |(clients, demand): (u64, u64), other| {
            (clients.saturating_add(other.clients), demand.saturating_add(other.demand))
        });
        let all = clients.saturating_add(others.0);
        self.demanded = wanted(free, all.max(1));
        // What others do not demand, or a part by the numbers of clients. The part shrinks with the hits that are left, so that others find
        // some.
        let equal = u128::from(free) * u128::from(clients) / u128::from(all.saturating_add(1));
        let share = (equal as u64).max(free.saturating_sub(others.1)).max(1);
        let idle = self.demanded.min(share);
        self.aim = Part { rate: 0, burst: in_force.burst.saturating_add(idle) };
        self.send(in_force, (0, 0), Claimant { demand: self.demanded, clients }, now)
    }

    /// The last request of a process that stops. Clients keep `in_force`, `spent` counts, and the rest is free.
    pub(super) fn release(
        &mut self,
        in_force: Part,
        spent: u64,
        limit: (u64, u64),
        now: Timestamp,
    ) -> Option<PartRequest> {
        self.expire(now);
        if self.is_resuming || self.part == Part::default() {
            return None;
        }
        self.spend(spent, spent);
        self.aim = in_force;
        Some(self.send(in_force, limit, Claimant { demand: 0, clients: 0 }, now))
    }

    /// The request that keeps the part of a former process as it is, up to this rate.
    fn request_former(&mut self, rate: u64, span: u64, now: Timestamp) -> PartRequest {
        let request = self.send(Part::default(), (rate, span), Claimant { demand: 0, clients: 0 }, now);
        PartRequest { kept: Part { rate, burst: KNOWN_BURST }, ..request }
    }

    fn send(
        &mut self,
        in_force: Part,
        (rate_max, span): (u64, u64),
        claim: Claimant,
        now: Timestamp,
    ) -> PartRequest {
        self.part = self.part.min(self.aim.max(in_force));
        // Also higher than the numbers of an earlier bucket of this process with the same counter.
        self.sequence = (self.sequence + 1).max(now.as_nanos() / 1_000);
        (self.requested, self.is_awaited, self.is_joining) = (Some(now), true, false);
        self.stated = (self.part.burst, self.spent);
        let (server, sequence, kept, wanted) = (self.server, self.sequence, self.part, self.aim);
        let (spent, acknowledged) = (self.spent, self.acknowledged);
        let Claimant { demand, clients } = claim;
        PartRequest { server, sequence, kept, spent, acknowledged, wanted, rate_max, span, demand, clients }
    }

    /// Takes the response to a request. None if the response is late, because another request was sent since. Returns the part of a former
    /// process if this response shows it.
    pub(super) fn accept(&mut self, sequence: u64, grant: &PartGrant, now: Timestamp) -> Option<Part> {
        let requested = self.requested.filter(|_| self.is_awaited && sequence == self.sequence)?;
        self.is_awaited = false;
        let (kept, spent) = self.stated;
        // The grant includes hits that were lost after the request was sent.
        let lost = kept.saturating_sub(self.part.burst);
        self.part = Part { burst: grant.part.burst.saturating_sub(lost), ..grant.part };
        self.acknowledged = Some(spent);
        self.end = requested.saturating_add(PART_LIFE - PART_LIFE / DRIFT);
        self.expire(now);
        self.others.clone_from(&grant.others);
        self.free = grant.free;
        self.is_joining = self.direct.is_none() && self.aim == Part::default();
        let direct = self.direct.get_or_insert_with(|| Direct::new(grant.exact, now));
        direct.measure(grant.exact, now);
        direct.measure_demand(grant.leased);
        Some(if std::mem::take(&mut self.is_resuming) { self.part } else { Part::default() })
    }

    /// The part that it should get: max-min fairness over the demands of all servers, by their numbers of clients. Requests to servers are
    /// one more claimant.
    fn aim_of(&self, rates: &Rates, this: Claimant, former: Part) -> Part {
        let has_vanished = |other: &&OtherPart| Duration::from_micros(other.ends_in) < VANISHED_BEFORE;
        let vanished = self.others.iter().filter(has_vanished);
        let vanished: Part = vanished.map(|other| other.part).sum();
        let left = Part { rate: rates.of_limit(), burst: rates.terms.burst }.minus(vanished);
        let rate = left.rate;
        let rate = if self.is_short_of_bursts(rates) { rate - rate / RATE_PER_DRAIN } else { rate };
        let others = || self.others.iter().filter(|other| !has_vanished(other));
        let mut claimants: Vec<Claimant> =
            others().map(|other| Claimant { demand: other.demand, clients: other.clients }).collect();
        claimants.push(this);
        // Until it is measured, requests count as much as a client. After a start with a former part, only the measured demand counts: what
        // requests had beside that part is left to them.
        let wanted = |direct: Direct| match direct.is_measured() || former != Part::default() {
            true => direct.wanted(rates.of_limit()),
            false => rates.of_limit(),
        };
        let direct = self.direct.map_or(0, wanted);
        let level = Level::of_servers(&mut claimants, direct, rate);
        let all = claimants.iter().fold(0, |sum: u64, claimant| sum.saturating_add(claimant.clients));
        let burst = left.burst - left.burst / BURSTS_PER_NEW;
        let of = |part: u64, of: u64, burst: u64| {
            (u128::from(burst) * u128::from(part.min(of)) / u128::from(of.max(1))) as u64
        };
        let by_rate = burst / BURSTS_PER_RATE;
        let share = level.share_of(this);
        let aim =
            Part { rate: share, burst: of(this.clients, all, burst - by_rate) + of(share, rate, by_rate) };
        // Parts of other servers beyond their shares are not taken from requests meanwhile.
        let of_others: Part = others().map(|other| other.part).sum();
        let of_requests = Part { rate: level.direct(direct), burst: 0 };
        let free = Part { rate, ..left }.minus(of_others).minus(of_requests);
        self.steady(aim.min(self.part.max(free)))
    }

    /// Whether bursts are much smaller than they could be, because hits that were given up have not drained.
    fn is_short_of_bursts(&self, rates: &Rates) -> bool {
        let parts = self.others.iter().map(|other| other.part).chain([self.part]);
        let missing = rates.terms.burst.saturating_sub(parts.sum::<Part>().burst);
        missing > rates.terms.burst / 8 && self.free < missing / 2
    }

    /// Returns the aim, or the aim before if they differ by little. A provisional aim is lower than it could be, and would stay so.
    fn steady(&self, aim: Part) -> Part {
        if self.is_provisional {
            return aim;
        }
        let is_near = |aim: u64, before: u64, parts: u64| aim > 0 && aim.abs_diff(before) <= before / parts;
        Part {
            rate: if is_near(aim.rate, self.aim.rate, 128) { self.aim.rate } else { aim.rate },
            burst: if is_near(aim.burst, self.aim.burst, 8) { self.aim.burst } else { aim.burst },
        }
    }
}
