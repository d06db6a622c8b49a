//! Bans: a limit with a ban has a counter of its denials beside its own.
//!
//! This counter is planned as a charge right after its limit's, and locked with all others of the request. It counts each request that its
//! limit denies once, whatever its hits, and denies requests while a ban is in force. After the decision its charge is folded into its
//! limit's: a status reports the limit, not its ban. Invariants:
//!
//! - not counted: denials by another limit, by the ban itself, of a peek, or for lack of room;
//! - what a denied request consumes does not change: a denial is no hit of the limit.

use super::{
    counters::Counters,
    deciding::Deciding,
    hit_sum::HitSum,
    plan::{Fit, Plan, PlannedCounter},
};
use crate::limit::{Hits, Reset};

impl<C: Counters> Deciding<'_, '_, C> {
    /// Whether the counter is a ban's.
    #[inline]
    pub(super) fn is_of_ban(&self, counter: &PlannedCounter) -> bool {
        self.has_bans && self.first(counter).is_ban
    }

    /// Number of denials to count for a ban: one, if a charge of its limit does not fit.
    pub(super) fn denials(&self, counter: &PlannedCounter) -> HitSum {
        let is_denial = |&index: &u32| {
            let (limit, ban) = (&self.charges[index as usize - 1], &self.charges[index as usize]);
            let takes = matches!(limit.hits, Hits::Take(_)) && !limit.is_report();
            takes && limit.fit == Fit::Over && ban.fit == Fit::Admitted
        };
        let denials = self.by_key[counter.charges()].iter().any(is_denial);
        HitSum { taken: denials.into(), given: 0 }
    }

    /// Reserves room for the counter of a ban.
    #[cold]
    pub(super) fn make_room_for_ban(&mut self, counter: &PlannedCounter) -> bool {
        self.shards.make_room(std::slice::from_ref(counter), &[true], self.now)
    }

    /// Sets the charges of limits whose bans are in force, after the decision.
    #[cold]
    pub(super) fn fold_bans(&mut self) {
        for index in 1..self.charges.len() {
            let ban = &self.charges[index];
            let gives_back = matches!(ban.hits, Hits::GiveBack(_));
            let (true, false, 0, Some(Reset::After(wait))) =
                (ban.is_ban, gives_back, ban.remaining, ban.reset)
            else {
                continue;
            };
            // No hit remains, so the ban is in force: since before this request, or because of it.
            let fit = if ban.fit == Fit::Over { Fit::Banned } else { Fit::BanBegins };
            let is_shadow = self.descriptors[ban.descriptor as usize].reached.is_shadow();
            let after = self.until_admits(index - 1, wait);
            let limit = &mut self.charges[index - 1];
            limit.fit = fit;
            if !is_shadow {
                limit.remaining = 0;
                limit.reset = Some(match after {
                    Reset::After(after) => Reset::After(wait.saturating_add(after)),
                    Reset::Never => Reset::Never,
                });
            }
        }
    }
}

impl Plan<'_> {
    /// Removes the charges of bans, after they were folded.
    #[cold]
    pub(super) fn remove_bans(&mut self) {
        for charge in self.charges.iter().filter(|charge| charge.is_ban) {
            self.descriptors[charge.descriptor as usize].charges -= 1;
        }
        self.charges.retain(|charge| !charge.is_ban);
    }
}
