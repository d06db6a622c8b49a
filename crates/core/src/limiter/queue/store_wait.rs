//! How long a request waits for slots in a shared store, and when the store decides on it again.

use super::{SlotWait, slot_lines::WantedSlots, slot_waits::Wanted};
use crate::{
    limit::{Request, Timestamp},
    limiter::in_force::Limiter,
    store::Key,
};
use smallvec::SmallVec;
use std::time::Duration;

/// First pause before a store decides again; each next pause is twice as long, up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LAST_PAUSE: Duration = Duration::from_millis(50);

/// How long a request may wait for slots in a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreWait {
    pub(in crate::limiter) arrived: Timestamp,
    /// The caller's deadline, less the margin.
    pub(in crate::limiter) ends: Timestamp,
    /// The pause before the store decides again on the first request in a line.
    pause: Duration,
}

impl StoreWait {
    /// The wait after another decision of the store.
    pub fn after_pause(self) -> Self {
        Self { pause: (self.pause * 2).min(LAST_PAUSE), ..self }
    }
}

impl Limiter {
    /// The wait of a request that arrives now, whose caller waits up to `wait_max`; none for a request that does not wait.
    pub fn wait_in_store(
        &self,
        request: &Request<'_>,
        wait_max: Duration,
        now: Timestamp,
    ) -> Option<StoreWait> {
        let wait_max = wait_max.saturating_sub(self.queue_margin);
        // Hits of a report were used already.
        let waits = !(self.global_shadow || request.is_report() || wait_max.is_zero());
        waits.then(|| StoreWait { arrived: now, ends: now.saturating_add(wait_max), pause: FIRST_PAUSE })
    }

    /// The lines in which others wait, and the shortest of the waits given for them; none if others wait in no line.
    pub(in crate::limiter) fn lines_before(
        &self,
        lines: impl Iterator<Item = (WantedSlots, Duration)>,
    ) -> Option<(SmallVec<[WantedSlots; 1]>, Duration)> {
        let queues = self.slot_queues()?;
        let (slots, waits): (SmallVec<_>, SmallVec<[Duration; 1]>) =
            lines.filter(|(slots, _)| queues.slots.is_behind(slots.key, None)).unzip();
        waits.into_iter().min().map(|wait_max| (slots, wait_max))
    }

    /// Puts a request in these lines; none if it has waited long enough, or there is no room for it. `former` is its wait until now.
    pub(in crate::limiter) fn enter_lines(
        &self,
        wanted: &Wanted,
        former: Option<&SlotWait>,
        wait: &StoreWait,
        now: Timestamp,
    ) -> Option<SlotWait> {
        let place = former.map(|former| former.number);
        self.change_queues(|queues, woken| {
            let until = queues.slots_end(wanted.until);
            if until <= now || !queues.slots.has_room(place, &wanted.slots) {
                return None;
            }
            let number = queues.slots.enter(place, &wanted.slots, woken);
            self.set_waiting(queues);
            let is_behind = wanted.slots.iter().any(|slots| queues.slots.is_behind(slots.key, Some(number)));
            // Behind others, it is called when it becomes the first.
            let again =
                if is_behind { until } else { until.min(wanted.again).min(now.saturating_add(wait.pause)) };
            Some(SlotWait { number, arrived: wait.arrived, ends: wait.ends, again })
        })
    }

    /// Calls the first request in the line of each of these counters, after slots of theirs were released in the store.
    pub fn call_for_slots(&self, keys: &[Key]) {
        if self.has_waiting() {
            self.change_queues(|queues, woken| keys.iter().for_each(|&key| queues.call_first(key, woken)));
        }
    }
}
