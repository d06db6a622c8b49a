//! The share of one client between two divisions of its bucket: its report is taken without a look at the other clients.

use super::{Push, Settings, bucket::Bucket, means::assign, rates::Rates, room::RATE_PER_DRIFT};
use tidegate_core::limit::Timestamp;

impl Bucket {
    /// Sends a client its share by the last division, if its demand has changed. Returns whether that is enough, so that no other division
    /// is needed.
    pub(super) fn assign_one(
        &mut self,
        index: usize,
        wanted_before: u64,
        rates: &mut Rates,
        settings: &Settings,
        now: Timestamp,
        pushes: &mut Vec<Push>,
    ) -> bool {
        let member = &mut self.members[index];
        let Some(room) = self.room.as_mut().filter(|room| now <= room.until) else { return false };
        let ended = member.expire(settings, now);
        rates.give_up(&mut self.debts, member.peer, ended, now);
        room.note_demand(wanted_before, member.claim.wanted);
        let (before, target) = (member.counted.rate, room.level.share(member.claim.wanted));
        let mut means = room.means;
        means.growth = target.saturating_sub(before);
        means.is_short |= means.free < room.level.unclaimed / 4;
        let is_met = assign(member, target, (&*rates, &mut means), None, settings, now, pushes);
        let grown = member.counted.rate - before;
        rates.in_force = rates.in_force.saturating_add(grown);
        room.means.free = room.means.free.saturating_sub(grown);
        room.means.free_tokens = means.free_tokens;
        room.is_met &= is_met;
        is_met && room.drift.unsigned_abs() <= rates.rate / RATE_PER_DRIFT
    }
}
