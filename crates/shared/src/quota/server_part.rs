//! This server's part of a bucket whose counter is in a store that several servers share, and what it requests there.
//!
//! Invariants:
//!
//! - `part` is no more than what the store counts for this server until `end`, whichever of its requests have been received: while the
//!   response to a request is not known, it is what that request keeps;
//! - clients have nothing in force that is beyond `part`, or that ends after `end`.

use super::{
    allocation::{Claimant, levels},
    part::{OtherPart, Part, PartGrant, PartRequest},
    rates::{Direct, Rates},
    settings::{PART_LIFE, Settings},
};
use crate::lease::NodeId;
use std::time::Duration;
use tidegate_core::{algorithm::Algorithm, limit::Timestamp};

/// Time between two requests, of a part that stays as it is: of the time by which a part outlives assignments, less than half.
const INTERVAL: Duration = Duration::from_millis(1_500);

/// The same while it is to change.
const INTERVAL_OF_CHANGE: Duration = Duration::from_millis(500);

/// Time after which a request without a response is sent again.
const PATIENCE: Duration = Duration::from_secs(1);

/// The part of the time for which clocks of servers and store may differ in speed.
const DRIFT: u32 = 1_024;

/// Of the bursts of all servers, one part of so many is for new ones.
const BURSTS_PER_NEW: u64 = 16;

/// One part of so many of the bursts is by the rates of servers, the rest by their numbers of clients.
const BURSTS_PER_RATE: u64 = 4;

/// The part of the rate that is not divided while bursts are to grow and cannot: by so much more, hits that were given up drain.
const RATE_PER_DRAIN: u64 = 32;

/// A server whose part ends sooner has vanished: others renew theirs.
const VANISHED_BEFORE: Duration = Duration::from_secs(16);

/// The part of a server.
#[derive(Clone, Debug)]
pub(super) struct ServerPart {
    server: NodeId,
    /// Algorithm of the limit.
    pub(super) algorithm: Algorithm,
    pub(super) part: Part,
    /// Time from which on nothing may be in force.
    end: Timestamp,
    /// What it is to be, by the last response.
    aim: Part,
    others: Vec<OtherPart>,
    /// Hits by which bursts of all can grow.
    free: u64,
    /// Since the first response: the store has counted before.
    direct: Option<Direct>,
    sequence: u64,
    /// Time of the last request, and whether its response is not known.
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
            others: Vec::new(),
            free: 0,
            direct: None,
            sequence: 0,
            requested: None,
            is_awaited: false,
        }
    }

    /// Whether an assignment that is sent now has ended when the part ends.
    pub(super) fn outlasts(&self, settings: &Settings, now: Timestamp) -> bool {
        now.saturating_add(settings.ttl + settings.round_trip) <= self.end
    }

    /// Ends the part if it has ended by time. What it had counts in the store.
    pub(super) fn expire(&mut self, now: Timestamp) {
        if self.end <= now {
            self.part = Part::default();
        }
    }

    /// What is divided among clients: the part, or less of it if others need the rest.
    pub(super) fn divisible(&self) -> Part {
        Part { rate: self.part.rate.min(self.aim.rate), burst: self.part.burst.min(self.aim.burst) }
    }

    /// Time of the next request.
    pub(super) fn next(&self) -> Timestamp {
        let interval = if self.is_awaited {
            PATIENCE
        } else if self.aim == self.part {
            INTERVAL
        } else {
            INTERVAL_OF_CHANGE
        };
        self.requested.map_or(Timestamp::EPOCH, |requested| requested.saturating_add(interval))
    }

    /// The next request, for a part in which clients may have this in force. Until its response the part is no more than it keeps.
    pub(super) fn request(
        &mut self,
        rates: &Rates,
        in_force: Part,
        (demand, clients): (u64, u64),
        now: Timestamp,
    ) -> PartRequest {
        self.expire(now);
        self.aim = self.aim_of(rates, (demand, clients));
        let part = self.part;
        self.part = Part {
            rate: part.rate.min(self.aim.rate.max(in_force.rate)),
            burst: part.burst.min(self.aim.burst.max(in_force.burst)),
        };
        // Of another bucket with the same counter, too, that this process had before.
        self.sequence = (self.sequence + 1).max(now.as_nanos() / 1_000);
        (self.requested, self.is_awaited) = (Some(now), true);
        let (server, sequence, kept, wanted) = (self.server, self.sequence, self.part, self.aim);
        PartRequest { server, sequence, kept, wanted, rate_max: rates.of_limit(), demand, clients }
    }

    /// Takes in the response to a request; false if it is late, and another one was sent since.
    pub(super) fn accept(&mut self, sequence: u64, grant: &PartGrant, now: Timestamp) -> bool {
        let Some(requested) = self.requested.filter(|_| self.is_awaited && sequence == self.sequence) else {
            return false;
        };
        self.is_awaited = false;
        self.part = grant.part;
        self.end = requested.saturating_add(PART_LIFE - PART_LIFE / DRIFT);
        self.expire(now);
        self.others.clone_from(&grant.others);
        self.free = grant.free;
        let direct = self.direct.get_or_insert_with(|| Direct::new(grant.exact, now));
        direct.measure(grant.exact, now);
        direct.measure_demand(grant.leased);
        true
    }

    /// What the part is to be: max-min over the demands of all servers, by their numbers of clients, requests to servers being one more
    /// claimant.
    fn aim_of(&self, rates: &Rates, (demand, clients): (u64, u64)) -> Part {
        let has_vanished = |other: &&OtherPart| Duration::from_micros(other.ends_in) < VANISHED_BEFORE;
        let vanished = self.others.iter().filter(has_vanished);
        let (rate, burst) = vanished.fold((0, 0), |(rate, burst): (u64, u64), other| {
            (rate.saturating_add(other.part.rate), burst.saturating_add(other.part.burst))
        });
        let rate = rates.of_limit().saturating_sub(rate);
        let rate = if self.is_short_of_bursts(rates) { rate - rate / RATE_PER_DRAIN } else { rate };
        let burst = rates.terms.burst.saturating_sub(burst);
        let others = || self.others.iter().filter(|other| !has_vanished(other));
        let this = Claimant { demand, clients };
        let mut claimants: Vec<Claimant> =
            others().map(|other| Claimant { demand: other.demand, clients: other.clients }).collect();
        claimants.push(this);
        let direct = self.direct.map_or(0, |direct| direct.wanted(rates.of_limit()));
        let level = levels(&mut claimants, direct, rate);
        let all = claimants.iter().fold(0, |sum: u64, claimant| sum.saturating_add(claimant.clients));
        let burst = burst - burst / BURSTS_PER_NEW;
        let of = |part: u64, of: u64, burst: u64| {
            (u128::from(burst) * u128::from(part.min(of)) / u128::from(of.max(1))) as u64
        };
        let by_rate = burst / BURSTS_PER_RATE;
        let share = level.of(this);
        self.steady(Part { rate: share, burst: of(clients, all, burst - by_rate) + of(share, rate, by_rate) })
    }

    /// Whether much less of the burst is assigned than could be, because hits that were given up have not drained.
    fn is_short_of_bursts(&self, rates: &Rates) -> bool {
        let bursts = self.others.iter().map(|other| other.part.burst);
        let missing = rates.terms.burst.saturating_sub(bursts.fold(self.part.burst, u64::saturating_add));
        missing > rates.terms.burst / 8 && self.free < missing / 2
    }

    /// The aim, or the one before if they differ by little.
    fn steady(&self, aim: Part) -> Part {
        let is_near = |aim: u64, before: u64, parts: u64| aim > 0 && aim.abs_diff(before) <= before / parts;
        Part {
            rate: if is_near(aim.rate, self.aim.rate, 128) { self.aim.rate } else { aim.rate },
            burst: if is_near(aim.burst, self.aim.burst, 8) { self.aim.burst } else { aim.burst },
        }
    }
}
