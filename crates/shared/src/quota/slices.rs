//! Hits that are divided by slices, for example what is left of a window of a day.
//!
//! A client gets a slice of hits, and another one when its reports show that little is left. Invariants:
//!
//! - hits that clients may spend of their slices count as hits of the present (`held`), so that all of them together fit into the limit;
//! - hits count at the report that has them: later than they were admitted, never earlier;
//! - hits that a former client may have spent count at the end of its assignment.
//!
//! If the counter is in a store, this server has a part of it, and divides the part's hits ([`Source::Part`]). Hits that its clients do not
//! have are free.
//!
//! Envoy fills a changed bucket to the ratio of the former one, so that an empty bucket would stay empty. Before a slice, the client is
//! therefore sent an assignment that denies all: the bucket after it is a new one, and full.

use super::{
    Push, Settings,
    assignment::Assignment,
    bucket::{Bucket, Moment, Report},
    member::{Member, Remnant},
    part::PartRequest,
    server_part::ServerPart,
    settings::NEVER,
    source::Source,
    terms::{SliceTerms, millihits_in},
};
use crate::PeerId;
use tidegate_core::{
    algorithm::{Algorithm, Assigned},
    limit::Timestamp,
};

/// A slice should last for this time by demand: three intervals between reports.
const LASTS: u64 = 15_000_000_000;

/// Reciprocal of the part of the free hits that clients share whose demand is not known. In the shortest window that is divided so, this is
/// what may be demanded in two intervals between reports.
const FREE_PER_GUESS: u64 = 64;

/// Reciprocal of the part that they share up to [`SMALL_GUESS`] hits, if that is more.
const FREE_PER_SMALL_GUESS: u64 = 8;
const SMALL_GUESS: u64 = 10;

impl Member {
    /// Hits that the client may still spend.
    fn unspent(&self) -> u64 {
        self.counted.tokens.into()
    }

    fn set_unspent(&mut self, hits: u64) {
        self.counted.tokens = u32::try_from(hits).unwrap_or(u32::MAX);
    }

    /// Hits that the client demands; none if that is not known.
    fn demanded(&self) -> Option<u64> {
        self.is_measured.then(|| millihits_in(self.claim.wanted, LASTS).div_ceil(1_000))
    }
}

impl Bucket {
    /// Takes a report of a client, and gives it another slice if it needs one.
    pub(super) fn report_slice(
        &mut self,
        terms: SliceTerms,
        report: Report,
        mut source: Source<'_>,
        moment: &Moment<'_, '_>,
        pushes: &mut Vec<Push>,
    ) {
        let (Moment { settings, now, is_learning, .. }, Report { index, usage, elapsed }) = (*moment, report);
        self.settle_slices(&mut source, settings, now);
        let (peer, before) = (self.members[index].peer, self.members[index].unspent());
        // Hits that it reports beyond its slices count only if its peer may have them.
        let of_peer = self.free_of_peer(peer, source.algorithm(), terms, now);
        let counted = usage.allowed.min(before.saturating_add(of_peer.min(terms.limit)));
        let of_former = if is_learning { 0 } else { self.spend_former(usage.allowed.saturating_sub(before)) };
        source.spend(counted, usage.allowed.min(before).saturating_add(of_former), now);
        self.taken.add(peer, source.algorithm(), counted, now);
        let member = &mut self.members[index];
        let left = before.saturating_sub(usage.allowed);
        member.set_unspent(left);
        member.drop_former_slices(settings, now);
        if usage.denied > 0 && member.had_last_since(member.reported, settings) {
            // Its bucket was empty.
            member.set_unspent(0);
        }
        source.hold(left, member.unspent());
        if elapsed >= settings.round_trip.as_nanos() as u64 / 2 {
            (member.reported, member.is_measured) = (now, true);
            member.claim.measure(usage, elapsed);
        }
        if source.can_assign(is_learning, settings, now) {
            self.assign_slice(terms, index, &mut source, moment, pushes);
        }
    }

    /// Takes reported hits out of the remnant of a former process. Returns how many of them were in it.
    fn spend_former(&mut self, hits: u64) -> u64 {
        let Some(former) = self.remnants.iter_mut().find(|remnant| remnant.is_former) else { return 0 };
        let spent = hits.min(former.tokens);
        former.tokens -= spent;
        spent
    }

    /// Gives a client another slice if it needs one, and renews its assignment.
    fn assign_slice(
        &mut self,
        terms: SliceTerms,
        index: usize,
        source: &mut Source<'_>,
        moment: &Moment<'_, '_>,
        pushes: &mut Vec<Push>,
    ) {
        let Moment { settings, now, .. } = *moment;
        let clients = self.members.len() as u64;
        let free = source.free(now);
        let guessed = match source {
            Source::Counter(..) => guess(free) / clients,
            // The part was requested by the number of clients.
            Source::Part(_) => free / clients,
        };
        let wanted = self.members[index].demanded().unwrap_or(guessed.max(1));
        let of_peer = self.free_of_peer(self.members[index].peer, source.algorithm(), terms, now);
        let member = &mut self.members[index];
        let unspent = member.unspent();
        let is_scarce = source.left(now) < terms.limit / 8;
        let is_short = unspent <= wanted - wanted / 3;
        let is_excessive = unspent / 4 > wanted && is_scarce;
        let share = source.share(wanted, clients, now).max(1).min(free);
        let slice = wanted.min(share).min(of_peer).min(u32::MAX.into()) as u32;
        let (stream, place) = (member.stream, member.place);
        let mut send = |assignment, is_renewal| pushes.push(Push { stream, place, assignment, is_renewal });
        let is_needed = is_excessive || is_short && u64::from(slice) > unspent / 4;
        if is_needed && slice > 0 {
            member.send_slice(slice, now);
            source.hold(unspent, member.unspent());
            send(Assignment::DenyAll, false);
            send(Assignment::slice(slice, member.salt), false);
        } else if !member.is_assigned || member.is_due(settings, now) {
            let is_renewal = member.is_assigned;
            member.sent.renew(now);
            (member.is_assigned, member.is_heard) = (true, false);
            let assignment = match member.share.tokens {
                0 => Assignment::DenyAll,
                slice => Assignment::slice(slice, member.salt),
            };
            send(assignment, is_renewal);
        }
        if member.is_assigned {
            self.slices_end = self.slices_end.min(member.end(settings));
        }
    }

    /// Gives slices to clients without one, from hits that this server has received since their reports.
    pub(super) fn divide_hits(
        &mut self,
        terms: SliceTerms,
        part: &mut ServerPart,
        moment: &Moment<'_, '_>,
        pushes: &mut Vec<Push>,
    ) {
        let mut source = Source::Part(part);
        self.settle_slices(&mut source, moment.settings, moment.now);
        if !source.can_assign(moment.is_learning, moment.settings, moment.now) {
            return;
        }
        for index in 0..self.members.len() {
            if self.members[index].share.tokens == 0 {
                self.assign_slice(terms, index, &mut source, moment, pushes);
            }
        }
    }

    /// This server's next request for hits of a counter in a store.
    pub(super) fn request_hits(
        &mut self,
        terms: SliceTerms,
        part: &mut ServerPart,
        settings: &Settings,
        now: Timestamp,
    ) -> PartRequest {
        self.settle_slices(&mut Source::Part(part), settings, now);
        let wanted = |free: u64, clients: u64| {
            let guessed = (guess(free) / clients).max(1);
            let wanted = self.members.iter().map(|member| member.demanded().unwrap_or(guessed));
            wanted.fold(0, u64::saturating_add)
        };
        // Clients that demand more than one request, or whose demand is not known.
        let is_active = |member: &&Member| member.demanded().is_none_or(|hits| hits > 1);
        let active = self.members.iter().filter(is_active).count().max(self.members.len().min(1));
        part.request_hits(terms.limit, wanted, self.in_force(), active as u64, now)
    }

    /// Counts the hits of slices that have ended as spent.
    pub(super) fn settle_slices(&mut self, source: &mut Source<'_>, settings: &Settings, now: Timestamp) {
        if let Source::Counter(algorithm, leased) = source {
            leased.expire(algorithm, now);
        }
        let mut hits: u64 = 0;
        for Remnant { peer, tokens, .. } in self.remnants.extract_if(.., |remnant| remnant.end <= now) {
            self.taken.add(peer, source.algorithm(), tokens, now);
            hits = hits.saturating_add(tokens);
        }
        // Most reports need no look at all clients.
        if self.slices_end <= now {
            for member in &mut self.members {
                let ended = member.expire_slice(settings, now);
                self.taken.add(member.peer, source.algorithm(), ended, now);
                hits = hits.saturating_add(ended);
            }
            let ends = self.members.iter().filter(|member| member.is_assigned);
            self.slices_end = ends.map(|member| member.end(settings)).min().unwrap_or(NEVER);
        }
        if let Source::Counter(_, leased) = source {
            let end = now.saturating_add(settings.ttl + settings.round_trip);
            // Assignments of a former process, and rates from before the rules changed, end with the last of them.
            leased.assigned.get_or_insert(Assigned::until(end, now)).end = end;
        }
        source.spend(hits, hits, now);
        if let Source::Part(part) = source {
            part.expire(now);
        }
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

/// Hits for all clients whose demand is not known, out of `free`.
fn guess(free: u64) -> u64 {
    (free / FREE_PER_GUESS).max((free / FREE_PER_SMALL_GUESS).min(SMALL_GUESS))
}

impl Member {
    /// Notes that the client is sent a slice instead of its former assignment.
    fn send_slice(&mut self, slice: u32, now: Timestamp) {
        self.set_unspent(self.unspent().saturating_add(slice.into()));
        self.share.tokens = slice;
        self.begin(now);
    }

    /// Drops hits of former slices if the client has certainly received the last one.
    fn drop_former_slices(&mut self, settings: &Settings, now: Timestamp) {
        if self.has_last_by(now, settings) {
            self.set_unspent(self.unspent().min(self.share.tokens.into()));
        }
    }

    /// Ends the slice if its time is over. Returns the hits that may have been spent of it.
    fn expire_slice(&mut self, settings: &Settings, now: Timestamp) -> u64 {
        if !self.has_ended(settings, now) {
            return 0;
        }
        let hits = self.unspent();
        (self.counted, self.share, self.is_assigned) = Default::default();
        hits
    }
}
