//! Decisions with queues: a request with hits that do not fit now, but will before its caller's deadline, is charged now
//! and answered then.
//!
//! Invariants:
//!
//! - A queued request is charged like an admitted request: as a whole, on arrival. Later requests are behind it.
//! - It is queued only if every limit that does not admit it now will, and is released when the last of them does.
//! - When it is cancelled, its hits are given back wherever they still count, and the requests behind it advance. Only
//!   `charge: always` keeps the hits. Hits that it gave back itself stay given back.
//! - A request that waits for slots has charged nothing. It is decided once more by all of its limits when it may have them.
//! - A shadow rule never queues, and with a global shadow no rule does.

use super::{QueuePosition, QueuedHits, Queues, SlotWait};
use crate::{
    algorithm::{Admission, Algorithm, LeakyBucket, StateView},
    limit::{Code, Decision, Hits, Request, Timestamp},
    limiter::{
        counters::{Counters, LockedShards},
        deciding::Deciding,
        in_force::{Limiter, Pinned},
        plan::{Fit, Plan, PlannedCounter, counters},
        slots::{SlotCharges, TakenSlots},
        status::{Reading, after_give_back, report, reported_decision},
    },
    rules::DomainRules,
    store::Key,
    sync::MutexGuard,
};
use smallvec::SmallVec;
use std::{task::Waker, time::Duration};

/// The verdict on a request that may be queued.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "boxing a decision would allocate on its path")]
pub enum QueueDecision<'r> {
    /// To be answered now.
    Decided(Decision<'r>),
    /// Charged and queued: [`Limiter::poll`] returns when it is to be answered.
    Queued(QueuePosition),
    /// Not decided, and nothing charged: it waits for slots, and [`Limiter::poll_slots`] returns when it is to be decided once more.
    Waits(SlotWait),
}

/// A caller that waits for a decision.
pub(in crate::limiter) enum Caller {
    /// Waits for up to this time from now on.
    Waits(Duration),
    /// Has waited for slots.
    Again(SlotWait),
}

impl Pinned<'_> {
    /// Decides one request for a caller that waits up to `wait_max`, its remaining deadline. If its hits do not fit now
    /// but will within that time, less the margin, and a `max_wait` allows it, the request is charged and queued. If only slots
    /// are missing, it waits for them, and nothing is charged.
    pub fn decide_or_queue(
        &self,
        request: &Request<'_>,
        wait_max: Duration,
        now: Timestamp,
    ) -> QueueDecision<'_> {
        // Hits of a report were used already.
        let wait_max = if request.is_report() { Duration::ZERO } else { wait_max };
        let wait_max = wait_max.saturating_sub(self.limiter.queue_margin);
        match self.in_force.rules.waiting_domain(request.domain()) {
            Some(domain) => decide(self, domain, request, Caller::Waits(wait_max), now),
            None => QueueDecision::Decided(self.decide(request, now)),
        }
    }

    /// Decides once more a request that waits for slots: when it is called, and at the time of [`SlotWait::again`].
    pub fn decide_again(&self, request: &Request<'_>, wait: SlotWait, now: Timestamp) -> QueueDecision<'_> {
        match self.in_force.rules.waiting_domain(request.domain()) {
            Some(domain) => decide(self, domain, request, Caller::Again(wait), now),
            // The rules have changed.
            None => {
                self.limiter.leave(&wait);
                QueueDecision::Decided(self.decide(request, now))
            }
        }
    }

    /// The decision for a queued request on its release: admitted, with its counters as they are now. Its hits were
    /// charged on arrival.
    pub fn queued_decision(
        &self,
        request: &Request<'_>,
        position: &QueuePosition,
        now: Timestamp,
    ) -> Decision<'_> {
        let rules = &self.in_force.rules;
        let Some(domain) = rules.domain(request.domain()) else {
            // The rules have changed: nothing limits the request any more, and nothing is charged.
            return self.decide(request, now);
        };
        let mut plan = Plan::new(domain, &self.in_force.keys, request, now);
        let mut counters = counters(&plan);
        let shards = LockedShards::lock(&self.limiter.store, &mut counters, &plan, rules, now);
        for counter in &counters {
            for &charge in &plan.by_key[counter.charges()] {
                let charge = &mut plan.charges[charge as usize];
                if position.over.contains(&charge.descriptor) {
                    charge.fit = Fit::Over;
                }
                let reached = plan.descriptors[charge.descriptor as usize].reached;
                let reading = Reading::of(&charge.limit.algorithm, &shards.state(counter), now);
                report(charge, counter.hits, || reached.is_shadow(), reading, || shards.state(counter), now);
            }
        }
        drop(shards);
        // It was admitted on its arrival, before any ban that is in force now.
        if plan.has_bans {
            plan.remove_bans();
        }
        reported_decision(Code::Ok, &plan, 0, position.slot.clone())
    }
}

/// Decides a request to a domain with queues.
pub(in crate::limiter) fn decide<'p>(
    pinned: &'p Pinned<'_>,
    domain: &'p DomainRules,
    request: &Request<'_>,
    caller: Caller,
    now: Timestamp,
) -> QueueDecision<'p> {
    let Limiter { store, global_shadow, .. } = pinned.limiter;
    let (place, arrived, ends) = match caller {
        Caller::Waits(wait_max) => (None, now, now.saturating_add(wait_max)),
        Caller::Again(SlotWait { number, arrived, ends, .. }) => (Some(number), arrived, ends),
    };
    let is_first = domain.features.tickets && place.is_none();
    let named =
        is_first.then(|| pinned.limiter.change_named((&pinned.in_force, domain), request, false, now));
    let mut plan = Plan::new(domain, &pinned.in_force.keys, request, now);
    if let Some(named) = &named {
        named.conclude(&mut plan);
    }
    let mut counters = counters(&plan);
    let mut shards = LockedShards::lock(store, &mut counters, &plan, &pinned.in_force.rules, now);
    let slots = SlotCharges::new(&pinned.limiter.slots);
    let mut deciding = Deciding::new(&mut plan, &counters, &mut shards, slots, pinned.limiter.compat, now);
    deciding.evaluate();
    let wait_max = ends.since(now);
    let (mut queues, would_wait) = queues_for(pinned.limiter, &mut deciding, place, wait_max);
    let wait_max = queues.as_ref().map_or(wait_max, |queues| {
        let limits = counters.iter().map(|counter| (counter.key, deciding.first(counter).limit.id));
        wait_max.min(queues.wait_max(limits, now))
    });
    let queued = would_wait && deciding.accept_queued(wait_max);
    let mut woken = Vec::new();
    if let (true, Some(of_all)) = (would_wait, &mut queues)
        && let Some(wait) = pinned.wait_for_slots(&mut deciding, of_all, (place, arrived, ends), &mut woken)
    {
        drop((queues, shards));
        woken.into_iter().for_each(Waker::wake);
        return QueueDecision::Waits(wait);
    }
    let (code, has_room) = deciding.conclude(store, *global_shadow);
    let given_back = deciding.given_back(code);
    deciding.settle(code == Code::Ok, has_room);
    deciding.combine();
    if would_wait {
        deciding.report_until_accepted(wait_max);
    }

    let mut position = None;
    if let Some(queues) = &mut queues {
        deciding.report_behind(queues, place);
        pinned.limiter.leave_lines(queues, place, &mut woken);
        given_back.into_iter().for_each(|(key, hits)| queues.advance_from(0, key, hits, &mut woken));
        if queued && code == Code::Ok {
            position = Some(queues.push(now, deciding.queued_hits(), deciding.over()));
        }
    }
    let slots = deciding.slots.taken();
    let mut number = store.next_number();
    if let Some(named) = named {
        number = named.number_of(number, !counters.is_empty());
    }
    drop((queues, shards));
    if plan.has_bans {
        plan.remove_bans();
    }
    woken.into_iter().for_each(Waker::wake);
    let slot = slots.map(TakenSlots::granted);
    match position {
        Some(position) => QueueDecision::Queued(QueuePosition { slot, ..position }),
        None => QueueDecision::Decided(reported_decision(code, &plan, number, slot)),
    }
}

/// Puts an evaluated request behind those that wait for slots of its counters. Returns the queues if the request needs them (it
/// waits, has waited, is behind others or gives hits back), and whether it is to wait if it can.
fn queues_for<'q, C: Counters>(
    limiter: &'q Limiter,
    deciding: &mut Deciding<'_, '_, C>,
    place: Option<u64>,
    wait_max: Duration,
) -> (Option<MutexGuard<'q, Queues>>, bool) {
    // Most requests fit at once. While none waits for slots, they do not contend for this lock.
    let mut queues = match place {
        Some(_) => Some(limiter.queues.lock()),
        None => limiter.slot_queues_of(deciding),
    };
    if let Some(queues) = &queues {
        deciding.stay_behind(queues, place);
    }
    let is_denied = deciding.verdict() == Code::OverLimit && !limiter.global_shadow;
    let would_wait = is_denied && !wait_max.is_zero();
    if queues.is_none() && (would_wait || deciding.gives_back()) {
        queues = Some(limiter.queues.lock());
    }
    (queues, would_wait)
}

/// Decides a request to a domain with queues, for a caller that does not wait.
pub(in crate::limiter) fn decide_unqueued<'p>(
    pinned: &'p Pinned<'_>,
    domain: &'p DomainRules,
    request: &Request<'_>,
    now: Timestamp,
) -> Decision<'p> {
    match decide(pinned, domain, request, Caller::Waits(Duration::ZERO), now) {
        QueueDecision::Decided(decision) => decision,
        QueueDecision::Queued(_) | QueueDecision::Waits(_) => {
            unreachable!("a request that does not wait is not queued")
        }
    }
}

impl<C: Counters> Deciding<'_, '_, C> {
    /// The bucket of a counter that may queue hits.
    fn queueing(&self, counter: &PlannedCounter) -> Option<&LeakyBucket> {
        let first = self.first(counter);
        let is_shadow = self.descriptors[first.descriptor as usize].reached.is_shadow();
        if is_shadow { None } else { first.limit.algorithm.queueing() }
    }

    /// The state that the hits of the request have to fit.
    fn state_after_give_back(&self, counter: &PlannedCounter) -> StateView<'_> {
        let algorithm = &self.first(counter).limit.algorithm;
        after_give_back(algorithm, self.shards.state(counter), counter.hits, self.now)
    }

    /// Marks hits that do not fit now as admitted where a bucket would queue them for up to `wait_max`. Returns whether
    /// there are any.
    fn accept_queued(&mut self, wait_max: Duration) -> bool {
        let mut accepted: SmallVec<[u32; 2]> = SmallVec::new();
        for counter in self.counters {
            let Some(bucket) = self.queueing(counter) else { continue };
            let state = self.state_after_give_back(counter);
            let admission = bucket.admission(&state, counter.hits.taken, wait_max, self.now);
            if matches!(admission, Admission::Queued(_)) {
                let takes = |charge: &u32| matches!(self.charges[*charge as usize].hits, Hits::Take(_));
                accepted.extend(self.by_key[counter.charges()].iter().copied().filter(takes));
            }
        }
        for &charge in &accepted {
            self.charges[charge as usize].fit = Fit::Admitted;
        }
        self.set_over();
        !accepted.is_empty()
    }

    /// Sets the reset of hits that a full queue denied: the wait until the same request is admitted or queued.
    fn report_until_accepted(&mut self, wait_max: Duration) {
        for counter in self.counters {
            let Some(bucket) = self.queueing(counter) else { continue };
            let state = self.state_after_give_back(counter);
            let until_accepted = bucket.until_accepted(&state, counter.hits.taken, wait_max, self.now);
            for &charge in &self.by_key[counter.charges()] {
                let charge = &mut self.charges[charge as usize];
                if charge.fit == Fit::Over && matches!(charge.hits, Hits::Take(_)) {
                    charge.reset = Some(until_accepted);
                }
            }
        }
    }

    /// Whether the request gives back hits.
    fn gives_back(&self) -> bool {
        self.counters.iter().any(|counter| counter.hits.given > 0)
    }

    /// Hits that [`Self::settle`] will give back, by counter. They count as given back before all queued requests.
    fn given_back(&self, code: Code) -> SmallVec<[(Key, u64); 1]> {
        let gives_back = self.counters.iter().filter(|counter| counter.hits.given > 0);
        gives_back
            .map(|counter| {
                let used = self.first(counter).limit.algorithm.used(&self.shards.state(counter), self.now);
                (counter.key, self.counted(counter, code == Code::Ok).given.min(used))
            })
            .collect()
    }

    /// Indices of descriptors that are over their limit without denying the request.
    fn over(&self) -> SmallVec<[u32; 2]> {
        let over = self.descriptors.iter().zip(0..).filter(|(descriptor, _)| descriptor.is_over);
        over.map(|(_, index)| index).collect()
    }

    /// The hits of an admitted request after they were charged, by counter. Without a counter, for lack of room, nothing
    /// was charged.
    fn queued_hits(&self) -> SmallVec<[QueuedHits; 1]> {
        let charged =
            |counter: &&PlannedCounter| self.shards.has(counter) && self.counted(counter, true).taken > 0;
        self.counters
            .iter()
            .filter(charged)
            .map(|counter| {
                let first = self.first(counter);
                // Hits with `charge: always` are never given back, and slots and estimates by their ticket.
                let keeps = first.is_always() || first.hold().is_some();
                let hits = if keeps { 0 } else { self.counted(counter, true).taken };
                let position = match &first.limit.algorithm {
                    Algorithm::LeakyBucket(bucket) => {
                        Some((*bucket, bucket.last_position(&self.shards.state(counter))))
                    }
                    _ => None,
                };
                let waits = self.queueing(counter).is_some();
                QueuedHits { key: counter.key, limit: first.limit.id, hits, position, waits }
            })
            .collect()
    }
}
