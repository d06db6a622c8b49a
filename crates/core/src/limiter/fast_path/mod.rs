//! The fast path of most requests: hits for descriptors that each match one plain limit, and either have a counter already or exceed that
//! limit by themselves.
//!
//! [`single`] takes one descriptor, [`multi`] a few. Each decides exactly as the general path does, or returns none without
//! having changed anything. A property sends random requests through both and compares decisions and counters.
//!
//! Functions on the fast path that have several callers are `inline(always)`: as calls, which the optimizer prefers, they
//! cost a single decision a quarter more (docs/performance.md).

mod multi;
mod plain_charge;
mod single;
#[cfg(test)]
pub(super) mod tests;

pub(super) use multi::decide as decide_multi;
pub(super) use plain_charge::{DESCRIPTORS_MAX, PlainCharge};
pub(super) use single::decide as decide_single;

use super::keys::Keys;
use crate::{
    limit::{Decision, Descriptor, Hits, Timestamp},
    rules::{DomainRules, Found},
    store::{Key, Store},
};

/// Up to this many counters are in a near cache without prefetching.
const NEAR_COUNTERS: usize = if cfg!(test) { 8 } else { 8 * 1024 };

/// Whether the fast path may take a request with these descriptors, before their rules are known.
#[inline]
pub(super) fn may_take(descriptors: &[Descriptor<'_>], domain: &DomainRules) -> bool {
    descriptors.len() <= DESCRIPTORS_MAX
        && (descriptors.len() == 1 || !domain.features.replaces)
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
    let hits = plain_hits(descriptor)?;
    charge_with(hits, domain.find(&descriptor.entries).as_ref(), descriptor, domain, keys)
}

/// As [`charge`], for a descriptor with the rule `found`.
#[inline(always)]
pub(super) fn charge_of<'r>(
    found: Option<&Found<'r>>,
    descriptor: &Descriptor<'_>,
    domain: &DomainRules,
    keys: &Keys,
) -> Option<Option<PlainCharge<'r>>> {
    charge_with(plain_hits(descriptor)?, found, descriptor, domain, keys)
}

#[inline(always)]
fn charge_with<'r>(
    hits: u64,
    found: Option<&Found<'r>>,
    descriptor: &Descriptor<'_>,
    domain: &DomainRules,
    keys: &Keys,
) -> Option<Option<PlainCharge<'r>>> {
    let Some(Found { rule, shared }) = found else { return Some(None) };
    let limit = rule.plain_limit()?;
    let key = keys.key(domain, limit, &descriptor.entries, shared);
    Some(Some(PlainCharge::new(key, rule, limit, hits)))
}

/// Prefetches the counters of all charges, so that their cache misses overlap.
#[inline]
pub(super) fn fetch(charges: &[Option<PlainCharge<'_>>], store: &Store) {
    if charges.len() >= 2 {
        fetch_counters(charges.iter().flatten().map(|charge| charge.key), store);
    }
}

/// Prefetches the counters with these keys.
#[inline]
pub(super) fn fetch_counters(keys: impl Iterator<Item = Key> + Clone, store: &Store) {
    if store.counters() <= NEAR_COUNTERS {
        return;
    }
    keys.clone().for_each(|key| store.lock(Store::shard_of(key)).fetch_page(key));
    keys.for_each(|key| store.lock(Store::shard_of(key)).fetch_place(key));
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
