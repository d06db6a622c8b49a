//! The short ways, of most requests: hits for descriptors that each reach one plain limit, whose counter is there.
//!
//! [`single`] takes one descriptor, [`multi`] a handful. They decide as the long way would, or not at all. A test sends
//! random requests both ways and compares answers and counters.

mod multi;
mod single;
#[cfg(test)]
pub(super) mod tests;

pub(super) use multi::decide as decide_multi;
pub(super) use single::decide as decide_single;

use super::keys::Keys;
use crate::{
    limit::{Code, Decision, Descriptor, Hits, Reset, Status, Timestamp},
    rules::{DomainRules, Found, Rule, RuleLimit},
    store::{Key, Place, Shard, Store},
};

/// More descriptors go the long way: by then its bookkeeping weighs little.
pub(super) const DESCRIPTORS_MAX: usize = 4;

/// So few counters are in a near cache anyway.
const NEAR_COUNTERS: usize = if cfg!(test) { 8 } else { 8 * 1024 };

/// What a descriptor asks for; nothing, if nothing limits it.
pub(super) type Asked<'r> = Option<Charge<'r>>;

/// The hits that a descriptor asks of the counter of its plain limit.
#[derive(Clone, Copy)]
pub(super) struct Charge<'r> {
    /// The counter's.
    pub(super) key: Key,
    rule: &'r Rule,
    limit: &'r RuleLimit,
    hits: u64,
}

/// A counter that was found.
#[derive(Clone, Copy)]
struct Counter {
    place: Place,
    /// What it remembers.
    words: [u64; 2],
}

/// Whether a request with these descriptors may go a short way, as far as can be told before their rules are found.
#[inline]
pub(super) fn may_take(descriptors: &[Descriptor<'_>], domain: &DomainRules) -> bool {
    descriptors.len() <= DESCRIPTORS_MAX
        && (descriptors.len() == 1 || !domain.has_replaces())
        && descriptors.iter().all(|descriptor| mere_hits(descriptor).is_some())
}

/// The hits of a descriptor that asks for nothing else.
#[inline]
fn mere_hits(descriptor: &Descriptor<'_>) -> Option<u64> {
    match descriptor {
        Descriptor { limit: None, hits: Hits::Take(hits), .. } => Some(hits.get()),
        _ => None,
    }
}

/// What a descriptor asks for; none if that is more than a short way gives.
#[inline]
pub(super) fn asked<'r>(
    descriptor: &Descriptor<'_>,
    domain: &'r DomainRules,
    keys: &Keys,
) -> Option<Asked<'r>> {
    // Asked before its rule is looked for, which would be in vain.
    mere_hits(descriptor)?;
    asked_of(domain.find(&descriptor.entries).as_ref(), descriptor, domain, keys)
}

/// The same, of a descriptor whose rule is found.
#[inline]
pub(super) fn asked_of<'r>(
    found: Option<&Found<'r>>,
    descriptor: &Descriptor<'_>,
    domain: &DomainRules,
    keys: &Keys,
) -> Option<Asked<'r>> {
    let hits = mere_hits(descriptor)?;
    let Some(Found { rule, shared }) = found else { return Some(None) };
    let limit = rule.plain_limit()?;
    let key = keys.key(domain, limit, &descriptor.entries, shared);
    Some(Some(Charge { key, rule, limit, hits }))
}

/// Asks memory for all counters before any of them is waited for.
#[inline]
pub(super) fn fetch(asked: &[Asked<'_>], store: &Store) {
    if asked.len() < 2 || store.counters() <= NEAR_COUNTERS {
        return;
    }
    let keys = asked.iter().flatten().map(|charge| charge.key);
    keys.clone().for_each(|key| store.lock(Store::shard_of(key)).fetch_page(key));
    keys.for_each(|key| store.lock(Store::shard_of(key)).fetch_slot(key));
}

/// Decides a request of which this is asked; none, and nothing has happened, if it has to go the long way.
#[inline]
pub(super) fn decide<'r>(asked: &[Asked<'r>], store: &Store, now: Timestamp) -> Option<Decision<'r>> {
    match asked {
        [Some(charge)] => decide_single(*charge, store, now),
        asked => decide_multi(asked, store, now),
    }
}

impl<'r> Charge<'r> {
    /// Its counter, if it is there and remembers two words that were counted under this limit.
    #[inline]
    fn find(&self, shard: &Shard) -> Option<Counter> {
        let place = shard.find(self.key)?;
        let counter = shard.get(place);
        let words = counter.words().filter(|_| counter.limit() == self.limit.id)?;
        Some(Counter { place, words })
    }

    #[inline]
    fn status(&self, code: Code, remaining: u64, reset: Reset) -> Status<'r> {
        // A limit is at most u32::MAX, and so is what remains of it.
        let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
        let (limit, rule) = (Some(self.limit.current()), Some(&self.rule.info));
        Status { code, limit, remaining, reset: Some(reset), rule }
    }
}
