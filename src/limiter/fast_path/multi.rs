//! A handful of descriptors, each with a counter of its own: under all locks it is found out whether every limit admits,
//! and then each is charged, or none.

use super::{Asked, Charge, Counter, DESCRIPTORS_MAX};
use crate::{
    algorithm::{Standing, State},
    limit::{Code, Decision, Reset, Status, Timestamp},
    store::{Key, Shard, Store},
    sync::MutexGuard,
};
use smallvec::SmallVec;

/// The locks of the shards, and for each of what is asked which of them is its counter's.
struct Locked<'s> {
    guards: SmallVec<[MutexGuard<'s, Shard>; DESCRIPTORS_MAX]>,
    of_asked: [usize; DESCRIPTORS_MAX],
}

/// At most [`DESCRIPTORS_MAX`] are asked.
#[inline]
pub(in crate::limiter) fn decide<'r>(
    asked: &[Asked<'r>],
    store: &Store,
    now: Timestamp,
) -> Option<Decision<'r>> {
    let Locked { mut guards, of_asked } = lock(store, asked)?;

    // Once all are locked: the processor looks for one counter while it waits for another.
    let mut counters = [None; DESCRIPTORS_MAX];
    for ((counter, asked), guard) in counters.iter_mut().zip(asked).zip(of_asked) {
        if let Some(charge) = asked {
            *counter = Some(charge.find(&guards[guard])?);
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
    for ((asked, counter), guard) in asked.iter().zip(counters).zip(of_asked) {
        // Each pushes its own status: one that they had in common would be made elsewhere first, and copied.
        match (asked, counter) {
            (Some(charge), Some(Counter { place, words })) if code == Code::Ok => {
                let Standing { state, expires, remaining, until_full } =
                    charge.limit.algorithm.charge(State::Words(words), charge.hits, now);
                guards[guard].get_mut(place).set(state, charge.limit.id, expires);
                decision.statuses.push(charge.status(Code::Ok, remaining, Reset::After(until_full)));
            }
            (Some(charge), Some(Counter { words, .. })) => {
                decision.statuses.push(of_denied(charge, &State::Words(words), now));
            }
            _ => decision.statuses.push(Status::NO_LIMIT),
        }
    }
    Some(decision)
}

/// Locks the shards, in ascending order; none if two descriptors ask the same counter.
#[inline]
fn lock<'s>(store: &'s Store, asked: &[Asked<'_>]) -> Option<Locked<'s>> {
    let keys = asked.iter().enumerate().filter_map(|(index, asked)| Some((asked.as_ref()?.key, index)));
    let mut keys: SmallVec<[(Key, usize); DESCRIPTORS_MAX]> = keys.collect();
    keys.sort_unstable();
    let mut locked = Locked { guards: SmallVec::new(), of_asked: [0; DESCRIPTORS_MAX] };
    let mut last: Option<Key> = None;
    for (key, index) in keys {
        if last == Some(key) {
            return None;
        }
        let shard = Store::shard_of(key);
        if last.map(Store::shard_of) != Some(shard) {
            locked.guards.push(store.lock(shard));
        }
        locked.of_asked[index] = locked.guards.len() - 1;
        last = Some(key);
    }
    Some(locked)
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
