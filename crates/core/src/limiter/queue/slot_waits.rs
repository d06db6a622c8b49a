//! The wait of a request for slots that others hold: see [`SlotLines`](super::slot_lines::SlotLines) for its order.
//!
//! Invariants:
//!
//! - only a request that would be admitted if its limits of requests in flight had room waits; it has charged nothing, and all of its
//!   limits decide it once more when it may have room;
//! - lines change under the locks of their counters: no slot is released between the decision that a request waits and its entry into the
//!   line;
//! - while no request waits, a decision or a release reads only one number.

use super::slot_lines::WantedSlots;
use crate::{
    algorithm::Queue,
    limit::{Code, Hits, Reset, Timestamp},
    limiter::{
        compat::Compat,
        counters::Counters,
        deciding::Deciding,
        in_force::{Limiter, Pinned},
        plan::{Charge, Fit, PlannedCounter},
        queue::Queues,
        reached::Reached,
    },
    store::Key,
    sync::MutexGuard,
};
use smallvec::SmallVec;
use std::{sync::atomic::Ordering, task::Waker, time::Duration};

/// The wait of a request for slots. Its owner has it decided once more with [`Pinned::decide_again`](super::super::Pinned::decide_again),
/// or ends the wait with [`Limiter::leave`].
#[must_use = "a request stays in its lines until it is decided once more, or leaves them"]
#[derive(Debug)]
pub struct SlotWait {
    pub(super) number: u64,
    /// The time at which it was first decided.
    pub(super) arrived: Timestamp,
    /// The caller's deadline, less the margin.
    pub(super) ends: Timestamp,
    /// The time at which it is to be decided once more, if it is not called before.
    pub(super) again: Timestamp,
}

/// The lines in which a request would wait.
pub(in crate::limiter) struct Wanted {
    pub(in crate::limiter) slots: SmallVec<[WantedSlots; 1]>,
    /// See [`SlotWait::again`].
    pub(in crate::limiter) again: Timestamp,
    /// The end of its wait.
    pub(in crate::limiter) until: Timestamp,
}

impl SlotWait {
    /// The time at which the request is to be decided once more, if it is not called before.
    pub fn again(&self) -> Timestamp {
        self.again
    }
}

impl Limiter {
    /// Polls a request that waits for slots: true if it is to be decided once more. Otherwise `waker` is woken when it is.
    pub fn poll_slots(&self, wait: &SlotWait, waker: &Waker) -> bool {
        self.queues.lock().slots.poll(wait.number, waker)
    }

    /// Ends the wait of a request that is not answered.
    pub fn leave(&self, wait: &SlotWait) {
        self.change_queues(|queues, woken| self.leave_lines(queues, Some(wait.number), woken));
    }

    /// Ends the wait of a request that is decided.
    pub(super) fn leave_lines(&self, queues: &mut Queues, place: Option<u64>, woken: &mut Vec<Waker>) {
        if let Some(number) = place {
            queues.slots.leave(number, woken);
            self.set_waiting(queues);
        }
    }

    /// Publishes the number of requests that wait. Called under the lock of the queues.
    pub(super) fn set_waiting(&self, queues: &Queues) {
        self.waiting.store(queues.slots.len(), Ordering::Relaxed);
    }

    /// The queues, if requests wait for slots. A request enters the line of a counter under the lock of the counter's shard: the holder of
    /// that lock sees it.
    #[inline]
    pub(in crate::limiter) fn slot_queues(&self) -> Option<MutexGuard<'_, Queues>> {
        self.has_waiting().then(|| self.queues.lock())
    }

    /// The queues, if this request may be behind requests that wait for slots.
    #[inline]
    pub(in crate::limiter) fn slot_queues_of<C: Counters>(
        &self,
        deciding: &Deciding<'_, '_, C>,
    ) -> Option<MutexGuard<'_, Queues>> {
        (self.has_waiting() && deciding.has_lines()).then(|| self.queues.lock())
    }

    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Calls all requests that wait for slots, after a change that may concern any of them.
    pub(in crate::limiter) fn call_waiting(&self) {
        if self.has_waiting() {
            self.change_queues(|queues, woken| queues.slots.call_all(woken));
        }
    }
}

impl Queues {
    /// Calls the first request that waits for slots of a counter.
    pub(in crate::limiter) fn call_first(&mut self, key: Key, woken: &mut Vec<Waker>) {
        self.slots.call_first(key, woken);
    }
}

/// The line in which hits of a counter wait for slots, and their longest wait; none if they are denied at once.
pub(in crate::limiter) fn slot_line(
    counter: &PlannedCounter,
    first: &Charge<'_>,
    reached: Reached<'_>,
    compat: Compat,
) -> Option<(WantedSlots, Duration)> {
    let Queue { wait_max, hits_max } = first.limit.algorithm.slot_queue()?;
    let (key, limit, hits) = (counter.key, first.limit.id, counter.hits.taken);
    let waits = hits > 0 && reached.waits_for_slots(compat);
    waits.then_some((WantedSlots { key, limit, hits, hits_max: hits_max.into() }, wait_max))
}

impl<C: Counters> Deciding<'_, '_, C> {
    /// See [`slot_line`].
    fn line(&self, counter: &PlannedCounter) -> Option<(WantedSlots, Duration)> {
        let first = self.first(counter);
        slot_line(counter, first, self.descriptors[first.descriptor as usize].reached, self.compat)
    }

    fn has_line(&self, counter: &PlannedCounter) -> bool {
        self.line(counter).is_some()
    }

    /// Whether the request may wait for slots of a counter.
    fn has_lines(&self) -> bool {
        self.counters.iter().any(|counter| self.has_line(counter))
    }

    /// Marks hits as over where an earlier request waits for slots.
    pub(in crate::limiter) fn stay_behind(&mut self, queues: &Queues, number: Option<u64>) {
        for counter in self.counters {
            if self.has_line(counter) && queues.slots.is_behind(counter.key, number) {
                self.set_fit(counter, Fit::Behind);
                self.set_over();
            }
        }
    }

    /// The lines in which the request waits, until `ends` at most, if nothing else denies it; none if something does, or if it has
    /// waited long enough.
    pub(in crate::limiter) fn wanted_slots(&mut self, arrived: Timestamp, ends: Timestamp) -> Option<Wanted> {
        let (mut slots, mut until, mut room) = (SmallVec::new(), ends, Duration::ZERO);
        let mut over: SmallVec<[(&PlannedCounter, Fit); 1]> = SmallVec::new();
        for counter in self.counters {
            let fit = self.fit_of(counter);
            let Some((line, wait_max)) = self.line(counter).filter(|_| fit != Fit::Admitted) else {
                continue;
            };
            let algorithm = &self.first(counter).limit.algorithm;
            let bound = algorithm.until_admits(&self.shards.state(counter), line.hits, self.now);
            let Reset::After(bound) = bound else { return None };
            room = room.max(bound);
            until = until.min(arrived.saturating_add(wait_max));
            slots.push(line);
            over.push((counter, fit));
        }
        if slots.is_empty() || until <= self.now {
            return None;
        }
        over.iter().for_each(|(counter, _)| self.set_fit(counter, Fit::Admitted));
        self.set_over();
        let is_denied = self.verdict() == Code::OverLimit;
        over.iter().for_each(|(counter, fit)| self.set_fit(counter, *fit));
        self.set_over();
        // Behind others, it is called when it becomes the first of them.
        let again = if room.is_zero() { until } else { until.min(self.now.saturating_add(room)) };
        (!is_denied).then_some(Wanted { slots, again, until })
    }

    /// Sets `remaining` and `reset` of hits that are denied because earlier requests wait: no hit would be admitted now, and the reset
    /// includes the slots of those requests.
    pub(in crate::limiter) fn report_behind(&mut self, queues: &Queues, number: Option<u64>) {
        for counter in self.counters {
            if self.fit_of(counter) != Fit::Behind {
                continue;
            }
            let Some(limit) = self.first(counter).limit.algorithm.concurrency() else { continue };
            let before = queues.slots.hits_before(counter.key, number).unwrap_or(0);
            let hits = before.saturating_add(counter.hits.taken).min(u64::from(limit.limit));
            let state = self.shards.state(counter);
            let wait = match limit.expected_wait(&state, hits, self.now) {
                // There is room only for the first of these requests.
                Reset::After(Duration::ZERO) => Reset::After(limit.expected_hold(&state)),
                wait => wait,
            };
            for &charge in &self.by_key[counter.charges()] {
                let charge = &mut self.charges[charge as usize];
                if charge.fit == Fit::Behind {
                    (charge.remaining, charge.reset) = (0, Some(wait));
                }
            }
        }
    }

    /// The fit of the hits taken from the counter, which all have one limit.
    fn fit_of(&self, counter: &PlannedCounter) -> Fit {
        let charges = self.by_key[counter.charges()].iter().map(|&charge| &self.charges[charge as usize]);
        let mut taking = charges.filter(|charge| matches!(charge.hits, Hits::Take(_)));
        taking.next().map_or(Fit::Admitted, |charge| charge.fit)
    }

    fn set_fit(&mut self, counter: &PlannedCounter, fit: Fit) {
        for &charge in &self.by_key[counter.charges()] {
            let charge = &mut self.charges[charge as usize];
            if matches!(charge.hits, Hits::Take(_)) {
                charge.fit = fit;
            }
        }
    }

    /// Sets which descriptors are over, from the fits of their charges. Descriptors that renew what is not held stay over.
    pub(super) fn set_over(&mut self) {
        for (descriptor, index) in self.descriptors.iter_mut().zip(0..) {
            let mut charges = self.charges.iter().filter(|charge| charge.descriptor == index);
            let is_over = charges.any(|charge| charge.fit != Fit::Admitted);
            descriptor.is_over = is_over || descriptor.reached == Reached::NotHeld;
        }
    }
}

impl Queues {
    /// Whether the request would wait for slots if its caller waited.
    pub(in crate::limiter) fn would_wait<C: Counters>(&self, deciding: &mut Deciding<'_, '_, C>) -> bool {
        let wanted = deciding.wanted_slots(deciding.now, self.slots_end(Timestamp::from_nanos(u64::MAX)));
        wanted.is_some_and(|wanted| self.slots.has_room(None, &wanted.slots))
    }
}

impl Pinned<'_> {
    /// Puts the request in its lines, if nothing else denies it and there is room.
    pub(super) fn wait_for_slots<C: Counters>(
        &self,
        deciding: &mut Deciding<'_, '_, C>,
        queues: &mut Queues,
        (place, arrived, ends): (Option<u64>, Timestamp, Timestamp),
        woken: &mut Vec<Waker>,
    ) -> Option<SlotWait> {
        let Wanted { slots, again, .. } = deciding.wanted_slots(arrived, queues.slots_end(ends))?;
        if !queues.slots.has_room(place, &slots) {
            return None;
        }
        let number = queues.slots.enter(place, &slots, woken);
        self.limiter.set_waiting(queues);
        // Replacing the rules calls all waiting requests, but misses a request that enters later under the former rules.
        if self.limiter.in_force.load().generation != self.in_force.generation {
            queues.slots.call(number, woken);
        }
        Some(SlotWait { number, arrived, ends, again })
    }
}
