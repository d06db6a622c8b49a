//! Hits that are divided by slices: of a window of a day, what is left of it.
//!
//! A client gets a slice of hits, and another one when its reports show that little is left. Invariants:
//!
//! - what clients may spend of their slices counts as hits of the present (`held`), so that all of it together fits into the limit;
//! - hits that a report has are counted at the report: later than they were admitted, never earlier;
//! - what a client that has left may have spent is counted at the end of its assignment.
//!
//! Envoy fills a changed bucket to the ratio of the former one, so that an empty bucket would stay empty. A slice is therefore sent
//! after an assignment that denies all: the bucket behind it is a new one, and full.

use super::{
    Push, Settings,
    action::Action,
    bucket::{Bucket, Moment, Report},
    member::{Member, Remnant},
    push::PeerId,
    terms::{SliceTerms, millihits_in},
};
use tidegate_core::{
    algorithm::{Algorithm, Assigned, Leased},
    limit::Timestamp,
};

/// The time for which a slice lasts by demand: two intervals between reports.
const LASTS: u64 = 10_000_000_000;

/// The part of the free hits that a client gets whose demand is not known, by the number of clients.
const FREE_PER_GUESS: u64 = 8;

impl Member {
    /// Hits that it may still spend.
    fn unspent(&self) -> u64 {
        self.counted.tokens.into()
    }

    fn set_unspent(&mut self, hits: u64) {
        self.counted.tokens = u32::try_from(hits).unwrap_or(u32::MAX);
    }
}

impl Bucket {
    /// Takes in a report of a client, and gives it another slice if it needs one.
    pub(super) fn report_slice(
        &mut self,
        terms: SliceTerms,
        report: Report,
        (algorithm, leased): (&Algorithm, &mut Leased),
        moment: &Moment<'_, '_>,
        pushes: &mut Vec<Push>,
    ) {
        let (Moment { settings, now, is_learning, .. }, Report { index, usage, elapsed }) = (*moment, report);
        self.settle_slices((algorithm, leased), settings, now);
        let clients = self.members.len() as u64;
        let (peer, before) = (self.members[index].peer, self.members[index].unspent());
        // What it states beyond its slices counts only as far as its peer may have it.
        let counted =
            usage.allowed.min(before.saturating_add(self.free_of_peer(peer, algorithm, terms, now)));
        leased.add(algorithm, counted, now);
        self.taken.add(peer, algorithm, counted, now);
        let member = &mut self.members[index];
        member.set_unspent(before.saturating_sub(usage.allowed));
        member.drop_former_slices(settings, now);
        hold(leased, before, member.unspent());
        if elapsed >= LASTS / 20 {
            (member.reported, member.is_measured) = (now, true);
            member.claim.measure(usage, elapsed);
        }
        if is_learning {
            return;
        }

        let free = algorithm.remaining(&leased.state, now).saturating_sub(leased.outstanding());
        let wanted = match member.is_measured {
            true => millihits_in(member.claim.wanted, LASTS).div_ceil(1_000),
            false => (free / FREE_PER_GUESS / clients).max(1),
        };
        let of_peer = self.free_of_peer(peer, algorithm, terms, now);
        let member = &mut self.members[index];
        let unspent = member.unspent();
        let is_needed = unspent <= wanted / 2 || unspent / 4 > wanted && free < terms.limit / 8;
        let slice =
            wanted.min((free / (clients + 1)).max(1)).min(free).min(of_peer).min(u32::MAX.into()) as u32;
        let (stream, bucket) = (member.stream, self.key);
        let mut send = |action, is_renewal| pushes.push(Push { stream, bucket, action, is_renewal });
        let ttl = settings.ttl;
        if is_needed && slice > 0 && wanted > 0 && u64::from(slice) > unspent / 4 {
            member.send_slice(slice, now);
            hold(leased, unspent, member.unspent());
            send(Action::DenyAll { ttl }, false);
            send(Action::slice(slice, member.salt, ttl), false);
        } else if !member.is_assigned || member.is_due(settings, now) {
            let is_renewal = member.is_assigned;
            (member.sent, member.is_assigned, member.is_heard) = (now, true, false);
            let action = match member.share.tokens {
                0 => Action::DenyAll { ttl },
                slice => Action::slice(slice, member.salt, ttl),
            };
            send(action, is_renewal);
        }
    }

    /// Counts the hits of slices that have ended as spent.
    pub(super) fn settle_slices(
        &mut self,
        (algorithm, leased): (&Algorithm, &mut Leased),
        settings: &Settings,
        now: Timestamp,
    ) {
        leased.expire(algorithm, now);
        let mut hits: u64 = 0;
        for Remnant { peer, tokens, .. } in self.remnants.extract_if(.., |remnant| remnant.end <= now) {
            self.taken.add(peer, algorithm, tokens, now);
            hits = hits.saturating_add(tokens);
        }
        for member in &mut self.members {
            let ended = member.expire_slice(settings, now);
            self.taken.add(member.peer, algorithm, ended, now);
            hits = hits.saturating_add(ended);
        }
        let end = now.saturating_add(settings.ttl + settings.round_trip);
        let assigned = leased.assigned.get_or_insert(Assigned::until(end, now));
        // What a former process assigned, and what clients had of a rate before the rules changed, ends with its last assignment.
        assigned.held = assigned.held.saturating_sub(hits);
        assigned.end = end;
        leased.add(algorithm, hits, now);
    }
}

impl Bucket {
    /// Hits that clients of a peer may be given, or may count, beyond those that they have.
    fn free_of_peer(&self, peer: PeerId, algorithm: &Algorithm, terms: SliceTerms, now: Timestamp) -> u64 {
        if peer == PeerId::NONE {
            return u64::MAX;
        }
        let held = self.members.iter().filter(|member| member.peer == peer).map(Member::unspent);
        let gone = self.remnants.iter().filter(|remnant| remnant.peer == peer).map(|remnant| remnant.tokens);
        let has = held.chain(gone).fold(self.taken.of(peer, algorithm, now), u64::saturating_add);
        self.share_max.of(terms.limit).max(1).saturating_sub(has)
    }
}

/// Changes the hits that are held by those of one client.
fn hold(leased: &mut Leased, before: u64, after: u64) {
    if let Some(assigned) = &mut leased.assigned {
        assigned.held = assigned.held.saturating_sub(before).saturating_add(after);
    }
}

impl Member {
    /// Notes that it is sent a slice in the place of what it has.
    fn send_slice(&mut self, slice: u32, now: Timestamp) {
        self.set_unspent(self.unspent().saturating_add(slice.into()));
        self.share.tokens = slice;
        self.begin(now);
    }

    /// Drops what it had of former slices, if it certainly has the last one.
    fn drop_former_slices(&mut self, settings: &Settings, now: Timestamp) {
        if self.has_last_by(now, settings) {
            self.set_unspent(self.unspent().min(self.share.tokens.into()));
        }
    }

    /// Ends its slice if it has ended by time; returns what it may have spent of it.
    fn expire_slice(&mut self, settings: &Settings, now: Timestamp) -> u64 {
        if !self.has_ended(settings, now) {
            return 0;
        }
        let hits = self.unspent();
        (self.counted, self.share, self.is_assigned) = Default::default();
        hits
    }
}
