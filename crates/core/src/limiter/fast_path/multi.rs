//! A few descriptors, each with a counter of its own: holding every lock, check all limits, then charge all or none.

use super::plain_charge::{DESCRIPTORS_MAX, FoundCounter, PlainCharge};
use crate::{
    algorithm::{Standing, StateView, Taken},
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
    let mut taken = [const { None }; DESCRIPTORS_MAX];
    for ((taken, charge), counter) in taken.iter_mut().zip(charges).zip(counters) {
        if let (Some(charge), Some(FoundCounter { words, .. })) = (charge, counter) {
            let of_charge = charge.limit.algorithm.take(words, charge.hits, now)?;
            if let Taken::Over { .. } = of_charge {
                code = Code::OverLimit;
            }
            *taken = Some(of_charge);
        }
    }
    if code == Code::Ok && counters.iter().flatten().any(|counter| counter.place.is_none()) {
        return None;
    }
    // Nothing was charged before this line, and nothing can fail after it.
    let mut decision = Decision::new(code, SmallVec::new());
    decision.number = store.next_number();
    for (((charge, counter), taken), guard) in charges.iter().zip(counters).zip(taken).zip(guard_of) {
        let (Some(charge), Some(counter), Some(taken)) = (charge, counter, taken) else {
            decision.statuses.push(Status::NO_LIMIT);
            continue;
        };
        // Each arm pushes its own status: a common variable would cost a copy.
        match (taken, counter.place) {
            (Taken::Admitted(Standing { state, expires, remaining, until_full }), Some(place))
                if code == Code::Ok =>
            {
                guards[guard].get_mut(place).set_words(state, charge.limit.id, expires);
                decision.statuses.push(charge.status(Code::Ok, remaining, Reset::After(until_full)));
            }
            (Taken::Over { remaining, until_admits }, _) => {
                decision.statuses.push(charge.status(Code::OverLimit, remaining, until_admits));
            }
            // Another descriptor denies the request.
            (Taken::Admitted(_), _) => {
                let (algorithm, state) = (&charge.limit.algorithm, StateView::of_words(counter.words));
                let (remaining, until_full) =
                    (algorithm.remaining(&state, now), algorithm.until_full(&state, now));
                decision.statuses.push(charge.status(Code::Ok, remaining, Reset::After(until_full)));
            }
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
