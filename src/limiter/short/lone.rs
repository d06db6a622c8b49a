//! One descriptor: one lock, one probe, one dispatch on the algorithm.

use super::status;
use crate::{
    algorithm::{Standing, Taken},
    limit::{Code, Decision, Descriptor, Hits, Reset, Timestamp},
    limiter::keys::Keys,
    rules::{DomainRules, Rule, RuleLimit},
    store::Store,
};
use smallvec::SmallVec;

#[inline]
pub(in crate::limiter) fn decide<'r>(
    domain: &'r DomainRules,
    keys: &Keys,
    store: &Store,
    descriptor: &Descriptor<'_>,
    now: Timestamp,
) -> Option<Decision<'r>> {
    let Descriptor { entries, limit: None, hits: Hits::Take(hits) } = descriptor else { return None };
    let found = domain.find(entries)?;
    let limit = found.rule.plain_limit()?;
    let key = keys.key(domain, limit, entries, &found.shared);

    let mut shard = store.lock(Store::shard_of(key));
    let place = shard.find(key)?;
    let counter = shard.get(place);
    let words = counter.words().filter(|_| counter.limit() == limit.id)?;
    match limit.algorithm.take(words, hits.get(), now) {
        Taken::Admitted(Standing { state, expires, remaining, until_full }) => {
            shard.get_mut(place).set(state, limit.id, expires);
            drop(shard);
            Some(decision(Code::Ok, found.rule, limit, remaining, Reset::After(until_full)))
        }
        Taken::Over { remaining, until_admits } => {
            drop(shard);
            Some(decision(Code::OverLimit, found.rule, limit, remaining, until_admits))
        }
    }
}

/// Made in either case for itself: one that both came to would be made elsewhere first, and copied.
#[inline]
fn decision<'r>(
    code: Code,
    rule: &'r Rule,
    limit: &'r RuleLimit,
    remaining: u64,
    reset: Reset,
) -> Decision<'r> {
    let mut statuses = SmallVec::new();
    statuses.push(status(code, rule, limit, remaining, reset));
    Decision { code, statuses }
}
