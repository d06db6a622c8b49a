//! A handful of descriptors, each with a counter of its own: under all locks it is found out whether every limit admits,
//! and then each is charged, or none.

use super::{Asked, Charge, Counter};
use crate::{
    algorithm::{Standing, State},
    limit::{Code, Decision, Descriptor, Reset, Status, Timestamp},
    limiter::keys::Keys,
    rules::DomainRules,
    store::{Key, Shard, Store},
    sync::MutexGuard,
};
use smallvec::SmallVec;

/// More descriptors go the long way: by then its bookkeeping weighs little.
const DESCRIPTORS_MAX: usize = 4;

type Guards<'s> = SmallVec<[MutexGuard<'s, Shard>; DESCRIPTORS_MAX]>;

/// A charge, and the index of the guard of its counter's shard.
#[derive(Clone, Copy)]
struct Guarded<'r> {
    charge: Charge<'r>,
    guard: usize,
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
    // None for a descriptor that nothing limits.
    let mut asked: [Option<Guarded<'r>>; DESCRIPTORS_MAX] = [None; DESCRIPTORS_MAX];
    let asked = &mut asked[..descriptors.len()];
    for (asked, descriptor) in asked.iter_mut().zip(descriptors) {
        match Asked::by(descriptor, domain, keys) {
            Asked::Nothing => {}
            Asked::Hits(charge) => *asked = Some(Guarded { charge, guard: 0 }),
            Asked::More => return None,
        }
    }
    let mut guards = lock(store, asked)?;

    // Once all are locked: the processor looks for one counter while it waits for another.
    let mut counters = [None; DESCRIPTORS_MAX];
    for (counter, asked) in counters.iter_mut().zip(&*asked) {
        if let Some(Guarded { charge, guard }) = asked {
            *counter = Some(charge.find(&guards[*guard])?);
        }
    }
    let mut code = Code::Ok;
    for (Guarded { charge, .. }, counter) in asked.iter().flatten().zip(counters.iter().flatten()) {
        if charge.hits > charge.limit.algorithm.remaining(&State::Words(counter.words), now) {
            code = Code::OverLimit;
        }
    }
    // Nothing was charged until here; from here on nothing can fail.
    let mut decision = Decision { code, statuses: SmallVec::new() };
    for (asked, counter) in asked.iter().zip(counters) {
        // Each pushes its own status: one that they had in common would be made elsewhere first, and copied.
        match (asked, counter) {
            (Some(Guarded { charge, guard }), Some(Counter { place, words })) if code == Code::Ok => {
                let Standing { state, expires, remaining, until_full } =
                    charge.limit.algorithm.charge(State::Words(words), charge.hits, now);
                guards[*guard].get_mut(place).set(state, charge.limit.id, expires);
                decision.statuses.push(charge.status(Code::Ok, remaining, Reset::After(until_full)));
            }
            (Some(Guarded { charge, .. }), Some(Counter { words, .. })) => {
                decision.statuses.push(of_denied(charge, &State::Words(words), now));
            }
            _ => decision.statuses.push(Status::NO_LIMIT),
        }
    }
    Some(decision)
}

/// Locks the shards, in ascending order; none if two descriptors ask the same counter.
#[inline]
fn lock<'s>(store: &'s Store, asked: &mut [Option<Guarded<'_>>]) -> Option<Guards<'s>> {
    let mut asked: SmallVec<[&mut Guarded<'_>; DESCRIPTORS_MAX]> = asked.iter_mut().flatten().collect();
    asked.sort_unstable_by_key(|asked| asked.charge.key);
    let mut guards = Guards::new();
    let mut last: Option<Key> = None;
    for Guarded { charge, guard } in asked {
        if last == Some(charge.key) {
            return None;
        }
        let shard = Store::shard_of(charge.key);
        if last.map(Store::shard_of) != Some(shard) {
            guards.push(store.lock(shard));
        }
        *guard = guards.len() - 1;
        last = Some(charge.key);
    }
    Some(guards)
}

/// What a counter says to a request that is denied, by its limit or by another.
fn of_denied<'r>(charge: &Charge<'r>, state: &State, now: Timestamp) -> Status<'r> {
    let algorithm = &charge.limit.algorithm;
    let remaining = algorithm.remaining(state, now);
    if charge.hits > remaining {
        charge.status(Code::OverLimit, remaining, algorithm.until_admits(state, charge.hits, now))
    } else {
        charge.status(Code::Ok, remaining, Reset::After(algorithm.until_full(state, now)))
    }
}
