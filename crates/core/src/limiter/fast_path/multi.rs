//! A few descriptors, each with a counter of its own: holding every lock, check all limits, then charge all or none.

use super::plain_charge::{DESCRIPTORS_MAX, FoundCounter, PlainCharge};
use crate::{
    algorithm::{Standing, State, StateView},
    limit::{Code, Decision, Reset, Status, Timestamp},
    store::{Key, Shard, Store},
    sync::MutexGuard,
};
use smallvec::SmallVec;

/// The locked shards, and for each charge the index of its guard.
struct Locked<'s> {
    guards: SmallVec<[MutexGuard<'s, Shard>; DESCRIPTORS_MAX]>,
    guard_of: [usize; DESCRIPTORS_MAX],
}

/// Precondition: at most [`DESCRIPTORS_MAX`] charges.
#[inline]
pub(in crate::limiter) fn decide<'r>(
    charges: &[Option<PlainCharge<'r>>],
    store: &Store,
    now: Timestamp,
) -> Option<Decision<'r>> {
    let Locked { mut guards, guard_of } = lock(store, charges)?;

    // After all shards are locked: the lookups do not depend on each other, so their cache misses overlap.
    let mut counters = [None; DESCRIPTORS_MAX];
    for ((counter, charge), guard) in counters.iter_mut().zip(charges).zip(guard_of) {
        if let Some(charge) = charge {
            *counter = Some(charge.find(&guards[guard])?);
        }
    }
    let mut code = Code::Ok;
    for (charge, counter) in charges.iter().flatten().zip(counters.iter().flatten()) {
        if charge.hits > charge.limit.algorithm.remaining(&StateView::of_words(counter.words), now) {
            code = Code::OverLimit;
        }
    }
    if code == Code::Ok && counters.iter().flatten().any(|counter| counter.slot.is_none()) {
        return None;
    }
    // Nothing was charged before this line, and nothing can fail after it.
    let mut decision = Decision::new(code, SmallVec::new());
    decision.number = store.next_number();
    for ((charge, counter), guard) in charges.iter().zip(counters).zip(guard_of) {
        // Each arm pushes its own status: a common variable would cost a copy.
        match (charge, counter) {
            (Some(charge), Some(FoundCounter { slot: Some(slot), words })) if code == Code::Ok => {
                let Standing { state, expires, remaining, until_full } =
                    charge.limit.algorithm.charge(State::Words(words), charge.hits, now);
                guards[guard].get_mut(slot).set(state, charge.limit.id, expires);
                decision.statuses.push(charge.status(Code::Ok, remaining, Reset::After(until_full)));
            }
            (Some(charge), Some(FoundCounter { words, .. })) => {
                decision.statuses.push(status_when_denied(charge, &StateView::of_words(words), now));
            }
            _ => decision.statuses.push(Status::NO_LIMIT),
        }
    }
    Some(decision)
}

/// Locks the shards in ascending order; none if two descriptors share a counter.
#[inline]
fn lock<'s>(store: &'s Store, charges: &[Option<PlainCharge<'_>>]) -> Option<Locked<'s>> {
    let keys = charges.iter().enumerate().filter_map(|(index, charge)| Some((charge.as_ref()?.key, index)));
    let mut keys: SmallVec<[(Key, usize); DESCRIPTORS_MAX]> = keys.collect();
    keys.sort_unstable();
    let mut locked = Locked { guards: SmallVec::new(), guard_of: [0; DESCRIPTORS_MAX] };
    let mut last: Option<Key> = None;
    for (key, index) in keys {
        if last == Some(key) {
            return None;
        }
        let shard = Store::shard_of(key);
        if last.map(Store::shard_of) != Some(shard) {
            locked.guards.push(store.lock(shard));
        }
        locked.guard_of[index] = locked.guards.len() - 1;
        last = Some(key);
    }
    Some(locked)
}

/// The status of a descriptor of a denied request, whether its own limit denies or another one.
fn status_when_denied<'r>(charge: &PlainCharge<'r>, state: &State, now: Timestamp) -> Status<'r> {
    let algorithm = &charge.limit.algorithm;
    let remaining = algorithm.remaining(state, now);
    if charge.hits > remaining {
        charge.status(Code::OverLimit, remaining, algorithm.until_admits(state, charge.hits, now))
    } else {
        charge.status(Code::Ok, remaining, Reset::After(algorithm.until_full(state, now)))
    }
}
