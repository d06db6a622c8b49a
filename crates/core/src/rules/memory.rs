//! The memory of the counters of rules: see [`HeapBytes`].

use super::{RuleLimit, RuleSet};
use crate::algorithm::HeapBytes;

impl RuleLimit {
    /// Bytes of a counter on the heap, at any time of its schedule.
    pub fn heap_bytes(&self) -> HeapBytes {
        let scheduled = self.schedule.iter().flat_map(|schedule| schedule.limits());
        scheduled
            .fold(self.algorithm.heap_bytes(), |widest, limit| widest.or_wider(limit.algorithm.heap_bytes()))
    }
}

impl RuleSet {
    /// Bytes of the widest counter on the heap.
    pub fn heap_bytes(&self) -> HeapBytes {
        self.limits_in_force().fold(HeapBytes::default(), |widest, limit| widest.or_wider(limit.heap_bytes()))
    }

    /// The limit with the widest counters, if any has a part on the heap.
    pub fn widest_limit(&self) -> Option<&RuleLimit> {
        let widest = self.limits_in_force().max_by_key(|limit| limit.heap_bytes().most)?;
        (widest.heap_bytes().most > 0).then_some(widest)
    }

    /// The limits of all rules, and those of their bans, which have counters of their own.
    fn limits_in_force(&self) -> impl Iterator<Item = &RuleLimit> {
        let limits = self.domains().flat_map(|domain| domain.rules()).flat_map(|rule| &rule.limits);
        limits.flat_map(|limit| [Some(limit), limit.ban.as_deref()]).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{LoadOptions, Source};

    #[test]
    fn the_widest_counter_is_that_of_any_limit_schedule_or_ban() {
        let most = |limit: &str| {
            let rules = format!(
                "domain: d\ndescriptors: [{{key: a, rate_limit: {{unit: minute, requests_per_unit: 9}}}}, {{key: b, rate_limit: {{unit: day, requests_per_unit: 2{limit}}}}}]\n"
            );
            let rules = RuleSet::parse(&[Source::file("test.yaml", rules)], &LoadOptions::default());
            let rules = rules.unwrap_or_else(|errors| panic!("{errors}"));
            let widest = rules.widest_limit().map_or(0, |limit| limit.heap_bytes().most);
            assert_eq!(widest, rules.heap_bytes().most);
            widest
        };
        let log = ", algorithm: sliding_log";
        assert_eq!(most(""), 0);
        assert_eq!(most(", precision: 255"), 1_095);
        assert_eq!(most(log), 146);
        let schedule = ", schedule: [{hours: '08:00-09:00', requests_per_unit: 100}]";
        assert_eq!(most(&format!("{log}{schedule}")), 2_106);
        assert_eq!(most(", ban: {after: 5, within: 1m, for: 1h}"), 206);
    }
}
