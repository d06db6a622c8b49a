//! The short ways, of most requests: hits for descriptors that each reach one plain limit, whose counter is there.
//!
//! [`lone`] takes one descriptor, [`several`] a handful. They decide as the long way would, or not at all. A test sends
//! random requests both ways and compares answers and counters.

mod lone;
mod several;
#[cfg(test)]
mod tests;

pub(super) use lone::decide as lone;
pub(super) use several::decide as several;

use super::keys::Keys;
use crate::{
    limit::{Code, Descriptor, Hits, Reset, Status},
    rules::{DomainRules, Rule, RuleLimit},
    store::{Key, Place, Shard},
};

/// The hits that a descriptor asks of the counter of its plain limit.
#[derive(Clone, Copy)]
struct Charge<'r> {
    key: Key,
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

/// What a descriptor asks for.
enum Asked<'r> {
    /// Nothing that anything limits.
    Nothing,
    /// Hits of a plain limit.
    Hits(Charge<'r>),
    /// What goes the long way.
    More,
}

impl<'r> Asked<'r> {
    #[inline]
    fn by(descriptor: &Descriptor<'_>, domain: &'r DomainRules, keys: &Keys) -> Self {
        let Descriptor { entries, limit: None, hits: Hits::Take(hits) } = descriptor else {
            return Self::More;
        };
        let Some(found) = domain.find(entries) else { return Self::Nothing };
        let Some(limit) = found.rule.plain_limit() else { return Self::More };
        let key = keys.key(domain, limit, entries, &found.shared);
        Self::Hits(Charge { key, rule: found.rule, limit, hits: hits.get() })
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
