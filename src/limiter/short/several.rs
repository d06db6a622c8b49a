//! A handful of descriptors, each with a counter of its own: under all locks it is found out whether every limit admits,
//! and then each is charged, or none.

use super::status;
use crate::{
    algorithm::{Standing, State},
    limit::{Code, Decision, Descriptor, Hits, Reset, Status, Timestamp},
    limiter::keys::Keys,
    rules::{DomainRules, Rule, RuleLimit},
    store::{Key, Place, Shard, Store},
    sync::MutexGuard,
};
use smallvec::SmallVec;

/// More descriptors go the long way: by then its bookkeeping weighs little.
const DESCRIPTORS_MAX: usize = 4;

type Guards<'s> = SmallVec<[MutexGuard<'s, Shard>; DESCRIPTORS_MAX]>;

/// The hits that one descriptor asks of its counter; none for a descriptor that nothing limits.
type Asked<'r> = Option<Charge<'r>>;

#[derive(Clone, Copy)]
struct Charge<'r> {
    key: Key,
    rule: &'r Rule,
    limit: &'r RuleLimit,
    hits: u64,
    /// Index of the guard of the counter's shard, which is locked later.
    guard: usize,
}

/// A counter that was found.
#[derive(Clone, Copy)]
struct Counter {
    place: Place,
    /// What it remembers.
    words: [u64; 2],
}

#[inline]
pub(in crate::limiter) fn decide<'r>(
    domain: &'r DomainRules,
    keys: &Keys,
    store: &Store,
    descriptors: &[Descriptor<'_>],
    now: Timestamp,
) -> Option<Decision<'r>> {
    if !(2..=DESCRIPTORS_MAX).contains(&descriptors.len()) || domain.has_replaces() {
        return None;
    }
    let mut asked: [Asked<'r>; DESCRIPTORS_MAX] = [None; DESCRIPTORS_MAX];
    let asked = &mut asked[..descriptors.len()];
    for (asked, descriptor) in asked.iter_mut().zip(descriptors) {
        *asked = charge(domain, keys, descriptor)?;
    }
    let mut guards = lock(store, asked)?;

    // Once all are locked: the processor looks for one counter while it waits for another.
    let mut counters = [None; DESCRIPTORS_MAX];
    for (counter, charge) in counters.iter_mut().zip(&*asked) {
        if let Some(charge) = charge {
            *counter = Some(charge.find(&guards)?);
        }
    }
    let mut code = Code::Ok;
    for (charge, counter) in asked.iter().flatten().zip(counters.iter().flatten()) {
        if charge.hits > charge.limit.algorithm.remaining(&State::Words(counter.words), now) {
            code = Code::OverLimit;
        }
    }
    // Nothing was charged until here; from here on nothing can fail.
    let mut decision = Decision { code, statuses: SmallVec::new() };
    for (charge, counter) in asked.iter().zip(counters) {
        // Each pushes its own status: one that they had in common would be made elsewhere first, and copied.
        match (charge, counter) {
            (Some(charge), Some(Counter { place, words })) if code == Code::Ok => {
                let Standing { state, expires, remaining, until_full } =
                    charge.limit.algorithm.charge(State::Words(words), charge.hits, now);
                guards[charge.guard].get_mut(place).set(state, charge.limit.id, expires);
                decision.statuses.push(charge.status(Code::Ok, remaining, Reset::After(until_full)));
            }
            (Some(charge), Some(Counter { words, .. })) => {
                decision.statuses.push(charge.of_denied(&State::Words(words), now));
            }
            _ => decision.statuses.push(Status::NO_LIMIT),
        }
    }
    Some(decision)
}

/// What a descriptor asks; none if that is more than hits of a plain limit.
#[inline]
fn charge<'r>(domain: &'r DomainRules, keys: &Keys, descriptor: &Descriptor<'_>) -> Option<Asked<'r>> {
    let Descriptor { entries, limit: None, hits: Hits::Take(hits) } = descriptor else { return None };
    let Some(found) = domain.find(entries) else { return Some(None) };
    let (rule, limit) = (found.rule, found.rule.plain_limit()?);
    let key = keys.key(domain, limit, entries, &found.shared);
    Some(Some(Charge { key, rule, limit, hits: hits.get(), guard: 0 }))
}

/// Locks the shards, in ascending order; none if two descriptors ask the same counter.
#[inline]
fn lock<'s>(store: &'s Store, asked: &mut [Asked<'_>]) -> Option<Guards<'s>> {
    let mut charges: SmallVec<[&mut Charge<'_>; DESCRIPTORS_MAX]> = asked.iter_mut().flatten().collect();
    charges.sort_unstable_by_key(|charge| charge.key);
    let mut guards = Guards::new();
    let mut last: Option<Key> = None;
    for charge in charges {
        if last == Some(charge.key) {
            return None;
        }
        let shard = Store::shard_of(charge.key);
        if last.map(Store::shard_of) != Some(shard) {
            guards.push(store.lock(shard));
        }
        charge.guard = guards.len() - 1;
        last = Some(charge.key);
    }
    Some(guards)
}

impl<'r> Charge<'r> {
    /// The counter, if it is there and remembers two words that were counted under this limit.
    #[inline]
    fn find(&self, guards: &Guards<'_>) -> Option<Counter> {
        let shard = &guards[self.guard];
        let place = shard.find(self.key)?;
        let counter = shard.get(place);
        let words = counter.words().filter(|_| counter.limit() == self.limit.id)?;
        Some(Counter { place, words })
    }

    /// What its counter says to a request that is denied, by this limit or by another.
    fn of_denied(&self, state: &State, now: Timestamp) -> Status<'r> {
        let algorithm = &self.limit.algorithm;
        let remaining = algorithm.remaining(state, now);
        if self.hits > remaining {
            self.status(Code::OverLimit, remaining, algorithm.until_admits(state, self.hits, now))
        } else {
            self.status(Code::Ok, remaining, Reset::After(algorithm.until_full(state, now)))
        }
    }

    #[inline]
    fn status(&self, code: Code, remaining: u64, reset: Reset) -> Status<'r> {
        status(code, self.rule, self.limit, remaining, reset)
    }
}
