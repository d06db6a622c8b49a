//! The wait of a request for slots in the store. Its lines are those of this server: requests wait in the order of arrival here.
//!
//! A slot that this server releases calls the first request in its line. A slot that another server releases, or that expires, does not:
//! the store decides again on the first in each line after pauses, which also covers a slot released before the request entered its line.

use super::RemoteRequest;
use crate::{
    limit::{Code, Hits, Timestamp},
    limiter::{
        counters::Counters,
        deciding::Deciding,
        in_force::Limiter,
        plan::{Charge, PlannedCounter},
        queue::{SlotWait, StoreWait, Wanted, WantedSlots, slot_line},
    },
};
use std::time::Duration;

impl RemoteRequest<'_> {
    /// Lets the request wait for slots, unless it is already denied, or would change counters at each denial.
    pub fn wait_for_slots(&mut self, wait: StoreWait) {
        let changes = |charge: &Charge<'_>| charge.is_always() || matches!(charge.hits, Hits::GiveBack(_));
        if !self.is_denied && !self.plan.charges.iter().any(changes) {
            self.wait = Some(wait);
        }
    }

    /// The lines of its counters in the store, with the longest wait in each.
    fn lines(&self) -> impl Iterator<Item = (WantedSlots, Duration)> {
        let line = |counter: &PlannedCounter| {
            let first = self.plan.first(counter);
            let reached = self.plan.descriptors[first.descriptor as usize].reached;
            slot_line(counter, first, reached, self.owned.limiter.compat)
        };
        self.counters.iter().filter_map(line)
    }
}

/// The lines in which a request waits, if only limits of requests in flight deny it, by the time of this server.
pub(super) fn wanted<C: Counters>(
    deciding: &mut Deciding<'_, '_, C>,
    wait: StoreWait,
    local_now: Timestamp,
) -> Option<Wanted> {
    if deciding.verdict() == Code::Ok {
        return None;
    }
    // The store's clock may differ.
    let now = deciding.now;
    let waited = u64::try_from(local_now.since(wait.arrived).as_nanos()).unwrap_or(u64::MAX);
    let arrived = Timestamp::from_nanos(now.as_nanos().saturating_sub(waited));
    let wanted = deciding.wanted_slots(arrived, now.saturating_add(wait.ends.since(local_now)))?;
    let local = |time: Timestamp| local_now.saturating_add(time.since(now));
    Some(Wanted { again: local(wanted.again), until: local(wanted.until), ..wanted })
}

impl Limiter {
    /// Puts a request in those lines of its counters in which others wait, before the store decides; none if no others wait.
    pub fn line_up(&self, request: &RemoteRequest<'_>, now: Timestamp) -> Option<SlotWait> {
        let wait = request.wait?;
        let (slots, wait_max) = self.lines_before(request.lines())?;
        let until = wait.ends.min(wait.arrived.saturating_add(wait_max));
        self.enter_lines(&Wanted { slots, again: until, until }, None, &wait, now)
    }

    /// Puts a request in lines if the store has denied it only by limits of requests in flight; none if it has waited long enough, or there
    /// is no room for it. `former` is its wait until now.
    pub fn stay_for_slots(
        &self,
        request: &mut RemoteRequest<'_>,
        former: Option<&SlotWait>,
        now: Timestamp,
    ) -> Option<SlotWait> {
        let (wait, wanted) = (request.wait?, request.wanted.take()?);
        self.enter_lines(&wanted, former, &wait, now)
    }
}
