//! One descriptor: one lock, one probe, one dispatch on the algorithm.

use super::plain_charge::PlainCharge;
use crate::{
    algorithm::{Standing, StateView, Taken},
    limit::{Code, Decision, Reset, Timestamp},
    store::{Shard, Store},
    sync::MutexGuard,
};
use smallvec::SmallVec;

/// Always inlined: returned from a call, the decision (some 400 bytes) would be copied once more, for a tenth of its cost.
#[inline(always)]
pub(in crate::limiter) fn decide<'r>(
    charge: PlainCharge<'r>,
    store: &Store,
    now: Timestamp,
) -> Option<Decision<'r>> {
    let mut shard = store.lock(Store::shard_of(charge.key));
    let Some(place) = shard.find(charge.key) else { return without_counter(charge, store, shard, now) };
    let words = charge.words(&shard, place)?;
    match charge.limit.algorithm.take(words, charge.hits, now)? {
        Taken::Admitted(Standing { state, expires, remaining, until_full }) => {
            shard.get_mut(place).set_words(state, charge.limit.id, expires);
            let number = store.next_number();
            drop(shard);
            Some(decision(charge, Code::Ok, remaining, Reset::After(until_full), number))
        }
        Taken::Over { remaining, until_admits } => {
            let number = store.next_number();
            drop(shard);
            Some(decision(charge, Code::OverLimit, remaining, until_admits, number))
        }
    }
}

/// Denies hits that exceed the limit by themselves; none if they need a counter.
#[inline(always)]
fn without_counter<'r>(
    charge: PlainCharge<'r>,
    store: &Store,
    shard: MutexGuard<'_, Shard>,
    now: Timestamp,
) -> Option<Decision<'r>> {
    let (algorithm, empty) = (&charge.limit.algorithm, StateView::of_words([0; 2]));
    if !charge.exceeds_limit() {
        return None;
    }
    let remaining = algorithm.remaining(&empty, now);
    let until_admits = algorithm.until_admits(&empty, charge.hits, now);
    let number = store.next_number();
    drop(shard);
    Some(decision(charge, Code::OverLimit, remaining, until_admits, number))
}

/// Called in each arm, and inlined there, to build the decision in place: built after the match it would be copied.
#[inline]
fn decision(charge: PlainCharge<'_>, code: Code, remaining: u64, reset: Reset, number: u64) -> Decision<'_> {
    let mut decision = Decision::new(code, SmallVec::new());
    decision.number = number;
    decision.statuses.push(charge.status(code, remaining, reset));
    decision
}
