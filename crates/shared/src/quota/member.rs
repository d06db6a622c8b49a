//! One client's part of one bucket: what it was sent last, and what it may have in force.
//!
//! Invariant: of all assignments that the client was sent, at most `counted` is in force.

use super::{Part, Settings, StreamId, claim::Claim, push::Reporter, send_times::SendTimes};
use crate::PeerId;
use tidegate_core::limit::Timestamp;

/// The most shares of former clients that are listed by peer. If there are more, the shares of all peers are added up.
const REMNANTS_MAX: usize = 1_024;

/// What a client may admit. Packed: there are many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(Rust, packed(4))]
pub(super) struct Share {
    /// Thousandths of a hit per second.
    pub(super) rate: u64,
    /// The most hits at once.
    pub(super) tokens: u32,
}

/// Memory of a client of a bucket, without its name: its share, its places in tables, what peers of a slice spent, and an assignment in a
/// queue. No less than the allocator takes: `tests/it/rlqs_bounds.rs` compares it with the memory of the process.
pub const SUBSCRIPTION_BYTES: usize = size_of::<Member>() + 250;

/// A client that reports a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) stream: StreamId,
    /// The number of the bucket among the client's.
    pub(super) place: u32,
    pub(super) peer: PeerId,
    /// Time of its last report.
    pub(super) reported: Timestamp,
    pub(super) claim: Claim,
    /// What it was sent last.
    pub(super) share: Share,
    pub(super) counted: Share,
    /// Times of its assignments, if `is_assigned`.
    pub(super) sent: SendTimes,
    /// Number of its assignments. When it wraps around, no assignment with the same number can still be on its way.
    pub(super) salt: u16,
    /// Reports without a request since the last one with any.
    pub(super) idle: u8,
    /// Whether an assignment may be in force.
    pub(super) is_assigned: bool,
    /// Whether it reported since the last assignment.
    pub(super) is_heard: bool,
    /// Whether it may have no assignment although one was sent, because it has made the bucket anew.
    pub(super) is_bare: bool,
    /// Whether its demand was measured.
    pub(super) is_measured: bool,
    /// Whether it admits requests by an assignment of another server.
    pub(super) has_former: bool,
}

/// A share of a client that has left, or of a former process: it is in force until its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remnant {
    /// Its peer; none if the peer is not bounded.
    pub(super) peer: PeerId,
    /// Whether a former process may have assigned it.
    pub(super) is_former: bool,
    pub(super) end: Timestamp,
    pub(super) rate: u64,
    pub(super) tokens: u64,
}

impl Share {
    pub(super) fn min(self, other: Self) -> Self {
        Self { rate: self.rate.min(other.rate), tokens: self.tokens.min(other.tokens) }
    }

    fn max(self, other: Self) -> Self {
        Self { rate: self.rate.max(other.rate), tokens: self.tokens.max(other.tokens) }
    }

    pub(super) fn part(self) -> Part {
        Part { rate: self.rate, burst: self.tokens.into() }
    }
}

impl Member {
    pub(super) fn new(reporter: Reporter, claim: Claim, now: Timestamp) -> Self {
        Self::begin_anew((reporter.stream, reporter.place), reporter.peer_to_bound(), claim, now)
    }

    /// A client without an assignment.
    pub(super) fn begin_anew(
        (stream, place): (StreamId, u32),
        peer: PeerId,
        claim: Claim,
        now: Timestamp,
    ) -> Self {
        Self {
            stream,
            place,
            peer,
            reported: now,
            claim,
            share: Share::default(),
            counted: Share::default(),
            sent: SendTimes::new(now),
            salt: 0,
            idle: 0,
            is_assigned: false,
            is_heard: true,
            is_bare: false,
            is_measured: false,
            has_former: false,
        }
    }

    /// The end of its last assignment.
    pub(super) fn end(&self, settings: &Settings) -> Timestamp {
        self.sent.last().saturating_add(settings.ttl + settings.round_trip)
    }

    /// Whether it may have more in force than it was sent last.
    pub(super) fn is_pending(&self) -> bool {
        self.counted != self.share
    }

    /// Whether it demands a share and has nothing in force.
    pub(super) fn is_starved(&self) -> bool {
        self.claim.wanted > 0 && self.counted.tokens == 0
    }

    /// Notes that it is sent a share.
    pub(super) fn send(&mut self, share: Share, settings: &Settings, now: Timestamp) {
        if self.is_assigned && share == self.share {
            self.sent.renew(now);
        } else {
            let former_end = if self.is_assigned { self.end(settings) } else { now };
            self.sent.change(former_end, now);
            self.salt = self.salt.wrapping_add(1);
        }
        self.counted = self.counted.max(share);
        (self.share, self.is_assigned, self.is_heard) = (share, true, false);
    }

    /// Notes that it has received what it was sent before that time. Returns the tokens that it cannot have any more.
    pub(super) fn received(&mut self, before: Timestamp) -> u64 {
        if !self.is_pending() || self.sent.changed() > before {
            return 0;
        }
        self.settle_for_share()
    }

    /// Notes that it is sent another assignment than before.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.sent.change(now, now);
        (self.is_assigned, self.is_heard) = (true, false);
        self.salt = self.salt.wrapping_add(1);
    }

    /// Whether a report that arrives now shows that the client has received the last assignment.
    pub(super) fn has_last_by(&self, now: Timestamp, settings: &Settings) -> bool {
        self.is_assigned && now.since(self.sent.changed()) >= settings.round_trip
    }

    /// Whether the last assignment decided all requests of a report that arrives now. `former_report` is when the report before it arrived.
    pub(super) fn had_last_since(&self, former_report: Timestamp, settings: &Settings) -> bool {
        self.is_assigned && former_report.since(self.sent.changed()) >= 2 * settings.round_trip
    }

    /// Whether what it was sent last has ended.
    pub(super) fn has_ended(&self, settings: &Settings, now: Timestamp) -> bool {
        self.is_assigned && self.end(settings) <= now
    }

    /// Ends what has ended by time. Returns the tokens that it cannot have any more.
    pub(super) fn expire(&mut self, settings: &Settings, now: Timestamp) -> u64 {
        if self.has_ended(settings, now) {
            (self.share, self.is_assigned) = (Share::default(), false);
            return self.settle_for_share();
        }
        if self.is_pending() && self.sent.outlasted() <= now {
            return self.settle_for_share();
        }
        0
    }

    fn settle_for_share(&mut self) -> u64 {
        let tokens = self.counted.tokens.saturating_sub(self.share.tokens);
        self.counted = self.share;
        tokens.into()
    }

    /// The share that stays in force after it leaves.
    pub(super) fn remnant(&self, settings: &Settings) -> Remnant {
        let end = if self.is_assigned { self.end(settings) } else { self.sent.outlasted() };
        let Share { rate, tokens } = self.counted;
        Remnant {
            peer: self.peer,
            is_former: false,
            end: end.max(if self.is_pending() { self.sent.outlasted() } else { end }),
            rate,
            tokens: tokens.into(),
        }
    }

    /// Whether the client goes on by an assignment of another server. That server has a part for the client, which is sent nothing before.
    pub(super) fn is_served_elsewhere(&self, settings: &Settings, now: Timestamp) -> bool {
        self.has_former && !self.is_assigned && now.since(self.sent.last()) < settings.ttl / 2
    }

    /// Whether its last assignment is to be sent once more, so that it does not end. If it ended, the client would take the same assignment
    /// for a new one, with a full bucket.
    pub(super) fn is_due(&self, settings: &Settings, now: Timestamp) -> bool {
        let age = now.since(self.sent.last());
        let is_renewable = age >= settings.ttl / 4 && age + settings.round_trip < settings.ttl;
        self.is_assigned && self.is_heard && (self.is_bare || is_renewable)
    }
}

impl Remnant {
    pub(super) fn part(&self) -> Part {
        Part { rate: self.rate, burst: self.tokens }
    }

    /// Adds a remnant to others. Remnants of a peer that end within the same second are merged, and those of all peers if there are very
    /// many, so that their number is bounded.
    pub(super) fn add_to(mut self, remnants: &mut Vec<Self>) {
        if remnants.len() >= REMNANTS_MAX {
            self.peer = PeerId::NONE;
        }
        if self.rate == 0 && self.tokens == 0 {
            return;
        }
        let second = |end: Timestamp| end.as_nanos() / 1_000_000_000;
        let is_same = |other: &&mut Self| {
            !other.is_former && (second(other.end), other.peer) == (second(self.end), self.peer)
        };
        match remnants.iter_mut().find(is_same) {
            Some(other) => {
                other.end = other.end.max(self.end);
                Part { rate: other.rate, burst: other.tokens } = other.part().plus(self.part());
            }
            None => remnants.push(self),
        }
    }
}
