//! The fast path of most requests: hits for descriptors that each match one plain limit and have a counter already.
//!
//! [`single`] takes one descriptor, [`multi`] a few. Each decides exactly as the general path does, or returns none without
//! having changed anything. A property sends random requests through both and compares decisions and counters.
//!
//! Functions on the fast path that have several callers are `inline(always)`: as calls, which the optimizer prefers, they
//! cost a single decision a quarter more (docs/performance.md).

mod multi;
mod single;
#[cfg(test)]
pub(super) mod tests;

pub(super) use multi::decide as decide_multi;
pub(super) use single::decide as decide_single;

use super::keys::Keys;
use crate::{
    algorithm::Algorithm,
    limit::{BanPhase, Code, Decision, Descriptor, Hits, Reset, Status, Timestamp},
    rules::{DomainRules, Found, Rule, RuleLimit},
    store::{Key, Shard, SlotIndex, Store},
};

/// Requests with more descriptors take the general path; its overhead is then a small part of the work.
pub(super) const DESCRIPTORS_MAX: usize = 4;

/// So few counters are in a near cache without prefetching.
const NEAR_COUNTERS: usize = if cfg!(test) { 8 } else { 8 * 1024 };

/// Hits of a descriptor for the counter of its plain limit.
#[derive(Clone, Copy)]
pub(super) struct PlainCharge<'r> {
    /// Key of the counter.
    pub(super) key: Key,
    rule: &'r Rule,
    limit: &'r RuleLimit,
    hits: u64,
}

/// A counter that exists.
#[derive(Clone, Copy)]
struct FoundCounter {
    slot: SlotIndex,
    /// Its state.
    words: [u64; 2],
}

/// Whether the fast path may take a request with these descriptors, as far as known without their rules.
#[inline]
pub(super) fn may_take(descriptors: &[Descriptor<'_>], domain: &DomainRules) -> bool {
    descriptors.len() <= DESCRIPTORS_MAX
        && (descriptors.len() == 1 || !domain.has_replaces())
        && descriptors.iter().all(|descriptor| plain_hits(descriptor).is_some())
}

/// The hits of a descriptor that takes hits and brings no limit along; else none.
#[inline]
fn plain_hits(descriptor: &Descriptor<'_>) -> Option<u64> {
    match descriptor {
        Descriptor { limit: None, hits: Hits::Take(hits), .. } => Some(hits.get()),
        _ => None,
    }
}

/// The charge of a descriptor: `Some(None)` if nothing limits it, none if it is not for the fast path.
#[inline(always)]
pub(super) fn charge<'r>(
    descriptor: &Descriptor<'_>,
    domain: &'r DomainRules,
    keys: &Keys,
) -> Option<Option<PlainCharge<'r>>> {
    // Checked before the rule lookup, which would be in vain.
    plain_hits(descriptor)?;
    charge_of(domain.find(&descriptor.entries).as_ref(), descriptor, domain, keys)
}

/// As [`charge`], for a descriptor with the rule `found`.
#[inline(always)]
pub(super) fn charge_of<'r>(
    found: Option<&Found<'r>>,
    descriptor: &Descriptor<'_>,
    domain: &DomainRules,
    keys: &Keys,
) -> Option<Option<PlainCharge<'r>>> {
    let hits = plain_hits(descriptor)?;
    let Some(Found { rule, shared }) = found else { return Some(None) };
    let limit = rule.plain_limit()?;
    let key = keys.key(domain, limit, &descriptor.entries, shared);
    Some(Some(PlainCharge { key, rule, limit, hits }))
}

/// Prefetches the counters of all charges, so that their cache misses overlap.
#[inline]
pub(super) fn fetch(charges: &[Option<PlainCharge<'_>>], store: &Store) {
    if charges.len() < 2 || store.counters() <= NEAR_COUNTERS {
        return;
    }
    let keys = charges.iter().flatten().map(|charge| charge.key);
    keys.clone().for_each(|key| store.lock(Store::shard_of(key)).fetch_page(key));
    keys.for_each(|key| store.lock(Store::shard_of(key)).fetch_slot(key));
}

/// Decides a request with these charges; none, and nothing has changed, if it needs the general path.
#[inline]
pub(super) fn decide<'r>(
    charges: &[Option<PlainCharge<'r>>],
    store: &Store,
    now: Timestamp,
) -> Option<Decision<'r>> {
    match charges {
        [Some(charge)] => decide_single(*charge, store, now),
        charges => decide_multi(charges, store, now),
    }
}

impl<'r> PlainCharge<'r> {
    /// Hits for the counter of the only limit of a rule.
    pub(super) fn new(key: Key, rule: &'r Rule, limit: &'r RuleLimit, hits: u64) -> Self {
        Self { key, rule, limit, hits }
    }

    pub(super) fn algorithm(&self) -> &'r Algorithm {
        &self.limit.algorithm
    }

    pub(super) fn hits(&self) -> u64 {
        self.hits
    }

    /// Its counter, if it exists, has a state of two words, and was counted under this limit.
    #[inline(always)]
    fn find(&self, shard: &Shard) -> Option<FoundCounter> {
        let slot = shard.find(self.key)?;
        let counter = shard.get(slot);
        let words = counter.words().filter(|_| counter.limit() == self.limit.id)?;
        Some(FoundCounter { slot, words })
    }

    #[inline]
    pub(super) fn status(&self, code: Code, remaining: u64, reset: Reset) -> Status<'r> {
        // A limit is at most u32::MAX, and so is `remaining`.
        let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
        let PlainCharge { rule, limit, .. } = self;
        Status {
            code,
            limit: Some(limit.current()),
            remaining,
            reset: Some(reset),
            rule: Some(&rule.info),
            series: limit.series,
            is_over: code == Code::OverLimit,
            ban: BanPhase::None,
            shows_values: rule.shows_values,
        }
    }
}
