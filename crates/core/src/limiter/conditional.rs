//! Counters of limits that apply by conditions, for operators and checks of several hits.

use super::in_force::Pinned;
use crate::{
    limit::{Descriptor, Entry, Hits, Request, Timestamp},
    rules::ConditionalLimit,
    store::Store,
};
use std::time::Duration;

/// The numbers of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterNumbers {
    /// Hits that would be admitted now.
    pub remaining: u64,
    /// Time until the whole limit is free.
    pub until_full: Duration,
}

impl Pinned<'_> {
    /// The live counters in this process of the domain's limits with conditions and without variables, in the order of the files.
    pub fn unqualified_counters(
        &self,
        domain: &str,
        now: Timestamp,
    ) -> Vec<(&ConditionalLimit, CounterNumbers)> {
        let (rules, store) = (&self.in_force.rules, &self.limiter.store);
        let Some(domain) = rules.domain(domain).filter(|domain| !domain.is_shared()) else {
            return Vec::new();
        };
        let limits = domain.conditional().into_iter().flat_map(|limits| limits.iter());
        let unqualified = limits.filter(|limit| limit.variables.is_empty());
        let counter = |limit: &'_ ConditionalLimit| {
            let key = self.in_force.keys.of_values(domain, limit.limit(), &[]);
            let shard = store.lock(Store::shard_of(key));
            let counter = shard.get(shard.find(key)?);
            // A counter under another limit is converted by the next decision.
            let is_current = counter.limit() == limit.limit().id;
            let (algorithm, state) = is_current.then(|| (&limit.limit().algorithm, counter.state()))?;
            let (remaining, until_full) =
                (algorithm.remaining(&state, now), algorithm.until_full(&state, now));
            (!until_full.is_zero()).then_some(CounterNumbers { remaining, until_full })
        };
        unqualified.filter_map(|limit| Some((limit, counter(limit)?))).collect()
    }

    /// The hits that all limits would admit now for a request with one descriptor, by the counters of this process; none if no limit
    /// applies, or if counters are in a shared store.
    pub fn available<'e>(
        &self,
        domain: &'e str,
        entries: impl Iterator<Item = (&'e str, &'e str)>,
        now: Timestamp,
    ) -> Option<u32> {
        self.in_force.rules.domain(domain).filter(|domain| !domain.is_shared())?;
        let mut request = Request::new(domain);
        let entries = entries.map(|(key, value)| Entry { key, value }).collect();
        request.push(Descriptor { entries, limit: None, hits: Hits::Peek });
        self.service_limits(&request, now).into_iter().map(|limit| limit.available).min()
    }
}
