//! Deciding where answers may be counter: a request that does not fit now, but whose turn comes while its caller still waits,
//! is charged now and answered at its turn.
//!
//! What always holds:
//!
//! - A request that is counter is charged as one that is admitted: as a whole, at the moment at which it comes. Whoever
//!   comes later stands behind it.
//! - It is counter only if every limit that does not admit it now has a turn for it. It is answered at the latest of them.
//! - When it is given up, its hits are taken off wherever they still count, and those behind it move up. Only a rule that
//!   says `charge: always` keeps them. What it gave back stays given back.
//! - A shadow never holds, and under a global shadow nothing does.

use super::{QueuedHits, Ticket};
use crate::limiter::{
    Limiter, Pinned,
    charge::{Charge, Outcome, Plan},
    counters::{LockedShards, PlannedCounter, counters},
    decide::Deciding,
    status::{Reading, read, statuses},
};
use crate::{
    algorithm::{Admission, Algorithm, LeakyBucket, State},
    limit::{Code, Decision, Hits, Request, Timestamp},
    rules::{DomainRules, RuleLimit},
    store::Key,
};
use smallvec::SmallVec;
use std::{borrow::Cow, task::Waker, time::Duration};

/// What becomes of a request that may be counter.
#[derive(Debug)]
pub enum Verdict<'r> {
    /// It is answered now.
    Decided(Decision<'r>),
    /// It waits: [`Limiter::due`] says for what.
    Queued(Ticket),
}

/// Decides a request to a domain that may hold answers, for a caller that waits no longer than `patience`.
pub(in crate::limiter) fn decide<'p>(
    pinned: &'p Pinned<'_>,
    domain: &'p DomainRules,
    request: &Request<'_>,
    patience: Duration,
    now: Timestamp,
) -> Verdict<'p> {
    let Limiter { store, queues, global_shadow, .. } = pinned.limiter;
    let mut plan = Plan::new(domain, &pinned.in_force.keys, request);
    let mut counters = counters(&plan);
    let mut shards = LockedShards::lock(store, &mut counters);
    let mut deciding = Deciding::new(&mut plan, &counters, &mut shards, &pinned.in_force.rules, now);
    deciding.evaluate();
    let would_wait = deciding.verdict() == Code::OverLimit && !*global_shadow && !patience.is_zero();
    // Who fits at once, as most do, meets nobody here. This lock is always taken after those of shards.
    let mut queued = (would_wait || deciding.gives_back()).then(|| queues.lock());
    let patience = queued.as_ref().map_or(patience, |queues| patience.min(queues.wait_max(now)));
    let waits = would_wait && deciding.accept_queued(patience);
    let (code, has_room) = deciding.conclude(store, *global_shadow);
    let given_back = deciding.given_back(code);
    deciding.settle(code == Code::Ok, has_room);
    if would_wait {
        deciding.read_until_accepted(patience);
    }

    let (mut ticket, mut woken) = (None, Vec::new());
    if let Some(queues) = &mut queued {
        for (key, hits) in given_back {
            queues.advance_all(key, hits, &mut woken);
        }
        if waits && code == Code::Ok {
            ticket = Some(queues.push(now, deciding.hits_of_counters(), deciding.over()));
        }
    }
    drop((queued, shards));
    woken.into_iter().for_each(Waker::wake);
    match ticket {
        Some(ticket) => Verdict::Queued(ticket),
        None => Verdict::Decided(Decision { code, statuses: statuses(&plan) }),
    }
}

/// Decides a request to a domain that may hold answers, for a caller that does not wait.
pub(in crate::limiter) fn decide_unqueued<'p>(
    pinned: &'p Pinned<'_>,
    domain: &'p DomainRules,
    request: &Request<'_>,
    now: Timestamp,
) -> Decision<'p> {
    match decide(pinned, domain, request, Duration::ZERO, now) {
        Verdict::Decided(decision) => decision,
        Verdict::Queued(_) => unreachable!("who does not wait is not counter"),
    }
}

/// What a request that was counter is told when its turn has come. Its hits are counted already.
pub(in crate::limiter) fn decision<'p>(
    pinned: &'p Pinned<'_>,
    request: &Request<'_>,
    ticket: &Ticket,
    now: Timestamp,
) -> Decision<'p> {
    let Some(domain) = pinned.in_force.rules.domain(request.domain()) else {
        // The rules have changed meanwhile; nothing limits it any more, and nothing is charged.
        return pinned.decide(request, now);
    };
    let mut plan = Plan::new(domain, &pinned.in_force.keys, request);
    let mut counters = counters(&plan);
    let shards = LockedShards::lock(&pinned.limiter.store, &mut counters);
    for counter in &counters {
        for &charge in &plan.by_key[counter.charges()] {
            let charge = &mut plan.charges[charge as usize];
            if ticket.over.contains(&charge.descriptor) {
                charge.outcome = Outcome::Over;
            }
            let is_shadow = plan.asking[charge.descriptor as usize].reached.is_shadow();
            let state = |limit: &RuleLimit| shards.state(counter, limit, &pinned.in_force.rules, now);
            let told = Reading::of(&charge.limit.algorithm, &state(&charge.limit), now);
            read(charge, counter.hits.taken, is_shadow, told, state, now);
        }
    }
    drop(shards);
    Decision { code: Code::Ok, statuses: statuses(&plan) }
}

impl Deciding<'_, '_, '_> {
    /// The first charge of a counter. All of them have one rule, and one limit but for the numbers of requests' own.
    fn first(&self, counter: &PlannedCounter) -> &Charge<'_> {
        &self.charges[self.by_key[counter.charges().start] as usize]
    }

    /// What a counter remembers.
    fn state(&self, counter: &PlannedCounter) -> Cow<'_, State> {
        self.shards.state(counter, &self.first(counter).limit, self.rules, self.now)
    }

    /// The bucket of a counter whose hits may wait for their turn.
    fn queueing(&self, counter: &PlannedCounter) -> Option<&LeakyBucket> {
        let first = self.first(counter);
        let is_shadow = self.asking[first.descriptor as usize].reached.is_shadow();
        if is_shadow { None } else { first.limit.algorithm.queueing() }
    }

    /// Takes hits that are over for admitted if they have a turn within `patience`; false if none have.
    fn accept_queued(&mut self, patience: Duration) -> bool {
        let mut waiting: SmallVec<[u32; 2]> = SmallVec::new();
        for counter in self.counters {
            let Some(bucket) = self.queueing(counter) else { continue };
            let state = bucket.give_back(self.state(counter).into_owned(), counter.hits.given, self.now);
            if matches!(
                bucket.admission(&state, counter.hits.taken, patience, self.now),
                Admission::Queued(_)
            ) {
                let takes = |charge: &u32| matches!(self.charges[*charge as usize].hits, Hits::Take(_));
                waiting.extend(self.by_key[counter.charges()].iter().copied().filter(takes));
            }
        }
        for &charge in &waiting {
            self.charges[charge as usize].outcome = Outcome::Admitted;
        }
        for (asking, index) in self.asking.iter_mut().zip(0..) {
            let mut charges = self.charges.iter().filter(|charge| charge.descriptor == index);
            asking.is_over = charges.any(|charge| charge.outcome != Outcome::Admitted);
        }
        !waiting.is_empty()
    }

    /// Tells those who are turned away from a queue when there will be a place for them.
    fn read_until_accepted(&mut self, patience: Duration) {
        for counter in self.counters {
            let Some(bucket) = self.queueing(counter) else { continue };
            let until_turn =
                bucket.until_accepted(&self.state(counter), counter.hits.taken, patience, self.now);
            for &charge in &self.by_key[counter.charges()] {
                let charge = &mut self.charges[charge as usize];
                if charge.outcome == Outcome::Over && matches!(charge.hits, Hits::Take(_)) {
                    charge.reset = Some(until_turn);
                }
            }
        }
    }

    /// Whether hits are to be given back.
    fn gives_back(&self) -> bool {
        self.counters.iter().any(|counter| counter.hits.given > 0)
    }

    /// The hits that settling will give back, by counter. They are before all who wait.
    fn given_back(&self, code: Code) -> SmallVec<[(Key, u64); 1]> {
        let gives_back = self.counters.iter().filter(|counter| counter.hits.given > 0);
        gives_back
            .map(|counter| {
                let used = self.first(counter).limit.algorithm.used(&self.state(counter), self.now);
                (counter.key, self.counted(counter, code == Code::Ok).given.min(used))
            })
            .collect()
    }

    /// Descriptors that are over and deny nothing.
    fn over(&self) -> SmallVec<[u32; 2]> {
        let over = self.asking.iter().zip(0..).filter(|(asking, _)| asking.is_over);
        over.map(|(_, index)| index).collect()
    }

    /// The hits of an admitted request, counter by counter, after they were charged. A counter that is still not there
    /// has found no room, and counts nothing.
    fn hits_of_counters(&self) -> SmallVec<[QueuedHits; 1]> {
        let charged =
            |counter: &&PlannedCounter| self.shards.has(counter) && self.counted(counter, true).taken > 0;
        self.counters
            .iter()
            .filter(charged)
            .map(|counter| {
                let first = self.first(counter);
                // What is counted in any case is not taken off again.
                let hits = if first.is_always() { 0 } else { self.counted(counter, true).taken };
                let position = match &first.limit.algorithm {
                    Algorithm::LeakyBucket(bucket) => {
                        Some((*bucket, bucket.last_position(&self.state(counter))))
                    }
                    _ => None,
                };
                let waits = self.queueing(counter).is_some();
                QueuedHits { key: counter.key, limit: first.limit.id, hits, position, waits }
            })
            .collect()
    }
}
