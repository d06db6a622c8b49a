//! Hits of a descriptor for the counter of its plain limit.

use crate::{
    limit::{BanPhase, Code, Reset, Status},
    rules::{Rule, RuleLimit},
    store::{Key, PlaceIndex, Shard},
};

/// Requests with more descriptors take the general path; its overhead is then a small part of the work.
pub(in crate::limiter) const DESCRIPTORS_MAX: usize = 4;

/// Hits of a descriptor for the counter of its plain limit.
#[derive(Clone, Copy)]
pub(in crate::limiter) struct PlainCharge<'r> {
    /// Key of the counter.
    pub(in crate::limiter) key: Key,
    pub(in crate::limiter) rule: &'r Rule,
    pub(in crate::limiter) limit: &'r RuleLimit,
    pub(in crate::limiter) hits: u64,
}

/// A counter for the fast path.
#[derive(Clone, Copy)]
pub(super) struct FoundCounter {
    /// None if it does not exist: hits are then denied or left to the general path.
    pub(in crate::limiter) place: Option<PlaceIndex>,
    /// Its state.
    pub(in crate::limiter) words: [u64; 2],
}

impl<'r> PlainCharge<'r> {
    /// Hits for the counter of the only limit of a rule.
    pub(in crate::limiter) fn new(key: Key, rule: &'r Rule, limit: &'r RuleLimit, hits: u64) -> Self {
        Self { key, rule, limit, hits }
    }

    /// Finds its counter, if that has a state of two words and was counted under this limit, or if it does not exist and need not, because
    /// the hits exceed the limit by themselves.
    #[inline(always)]
    pub(super) fn find(&self, shard: &Shard) -> Option<FoundCounter> {
        let Some(place) = shard.find(self.key) else {
            return self.exceeds_limit().then_some(FoundCounter { place: None, words: [0; 2] });
        };
        Some(FoundCounter { place: Some(place), words: self.words(shard, place)? })
    }

    /// The state of its counter, if it is two words under this limit.
    #[inline(always)]
    pub(super) fn words(&self, shard: &Shard, place: PlaceIndex) -> Option<[u64; 2]> {
        let counter = shard.get(place);
        counter.words().filter(|_| counter.limit() == self.limit.id)
    }

    /// Whether the hits exceed the limit by themselves.
    #[inline(always)]
    pub(super) fn exceeds_limit(&self) -> bool {
        self.hits > u64::from(self.limit.capacity)
    }

    #[inline]
    pub(in crate::limiter) fn status(&self, code: Code, remaining: u64, reset: Reset) -> Status<'r> {
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
