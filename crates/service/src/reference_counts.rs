//! Counts of hits as in the reference server: by a key made of the domain, and of the entries as the rule names them.
//!
//! The number of keys is bounded; more keys share [`OTHER_KEY`].

use std::collections::BTreeMap;
use tidegate_core::limit::{Code, Decision, Descriptor, Entry, Hits, MetricLabel, Request, RuleInfo, Status};
use tidegate_counts::CountsByText;

/// Key of the hits beyond the bound on the number of keys.
const OTHER_KEY: &str = "other.other";

/// Hits, by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReferenceHits {
    /// All hits.
    pub total: u64,
    /// Hits above the limit.
    pub over_limit: u64,
    /// Hits between the near ratio and the limit.
    pub near_limit: u64,
    /// Hits of descriptors within their limits.
    pub within_limit: u64,
    /// Hits above the limit of a rule in shadow mode.
    pub shadow_mode: u64,
}

impl ReferenceHits {
    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.total, other.total),
            (&mut self.over_limit, other.over_limit),
            (&mut self.near_limit, other.near_limit),
            (&mut self.within_limit, other.within_limit),
            (&mut self.shadow_mode, other.shadow_mode),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    /// Counts of one descriptor: `after` is the number of hits in its counter after these. The limit is near above `near`.
    fn of(hits: u64, after: u64, limit: u64, near: u64, is_shadow: bool) -> Self {
        // Hits that were not counted may exceed the counter. Wraps around, as the reference server does.
        let before = after.wrapping_sub(hits);
        let mut counts = Self { total: hits, ..Self::default() };
        if after > limit {
            let above = if before >= limit { hits } else { after - limit };
            counts.over_limit = above;
            counts.near_limit = if before >= limit { 0 } else { limit - near.max(before) };
            counts.shadow_mode = if is_shadow { above } else { 0 };
        } else {
            counts.within_limit = hits;
            if after > near {
                counts.near_limit = if before >= near { hits } else { after - near };
            }
        }
        counts
    }
}

/// Counts by key.
pub struct ReferenceCounts {
    near_limit_ratio: f32,
    by_key: CountsByText<ReferenceHits>,
}

impl ReferenceCounts {
    /// Counts of nothing yet.
    pub(super) fn new(keys_max: usize, near_limit_percent: u8) -> Self {
        let near_limit_ratio = f32::from(near_limit_percent) / 100.0;
        Self { near_limit_ratio, by_key: CountsByText::new(keys_max) }
    }

    /// Counts a decision that is sent.
    pub(super) fn count(&self, request: &Request<'_>, decision: &Decision<'_>) {
        let mut of_thread = self.by_key.of_thread();
        for (index, (descriptor, status)) in request.descriptors().iter().zip(&decision.statuses).enumerate()
        {
            if let Some(counts) = self.counts_of(descriptor, status, decision.excess(index)) {
                let write = |key: &mut String, is_other| {
                    if is_other {
                        return key.push_str(OTHER_KEY);
                    }
                    key.push_str(request.domain());
                    match status.rule {
                        Some(rule) => push_rule(key, &descriptor.entries, rule),
                        None => push_own_limit(key, &descriptor.entries),
                    }
                };
                of_thread.add(write, |_| ReferenceHits::default(), |sum| sum.add(&counts));
            }
        }
    }

    fn counts_of(
        &self,
        descriptor: &Descriptor<'_>,
        status: &Status<'_>,
        excess: u64,
    ) -> Option<ReferenceHits> {
        let limit = status.limit?.requests;
        let hits = match descriptor.hits {
            Hits::Take(hits) | Hits::GiveBack(hits) => hits.get(),
            Hits::Peek => 0,
        };
        let near = (limit as f32 * self.near_limit_ratio).floor() as u64;
        let limit = u64::from(limit);
        let after =
            if status.is_over { limit.saturating_add(excess) } else { limit - u64::from(status.remaining) };
        Some(ReferenceHits::of(hits, after, limit, near, status.is_over && status.code == Code::Ok))
    }

    /// The counts of all threads, by key.
    pub fn sums(&self) -> BTreeMap<Box<str>, ReferenceHits> {
        let mut sums: BTreeMap<Box<str>, ReferenceHits> = BTreeMap::new();
        self.by_key.for_each(|key, counts| sums.entry(key.into()).or_default().add(counts));
        sums
    }
}

/// `.key_value.key`: the entries with the values that the rule names or its metrics show.
fn push_rule(key: &mut String, entries: &[Entry<'_>], rule: &RuleInfo) {
    let is_detailed = rule.shown_values == u64::MAX;
    let shares_any = rule.metric_labels.iter().any(|label| label.shares_counter);
    for (index, (entry, MetricLabel { text, shares_counter })) in
        (0..).zip(entries.iter().zip(&rule.metric_labels))
    {
        let is_shown = rule.shown_values.checked_shr(index).unwrap_or(0) & 1 == 1;
        let (is_wildcard, is_key_alone) = (text.contains('*'), **text == *entry.key);
        key.push('.');
        key.push_str(entry.key);
        let value = match () {
            () if *shares_counter => pattern_of_value(text, entry.key),
            () if is_shown => entry.value,
            () if is_wildcard => pattern_of_value(text, entry.key),
            () if is_key_alone => "",
            () => entry.value,
        };
        if !value.is_empty() || is_detailed && !shares_any {
            key.push('_');
            key.push_str(value);
        }
    }
}

/// `.key_value.key_value`.
fn push_own_limit(key: &mut String, entries: &[Entry<'_>]) {
    key.push('.');
    for (index, Entry { key: of_entry, value }) in entries.iter().enumerate() {
        if index > 0 {
            key.push('.');
        }
        key.push_str(of_entry);
        if !value.is_empty() {
            key.push('_');
            key.push_str(value);
        }
    }
}

/// The part of a joined text with wildcards that stands for the value: what follows the key, if the text begins with it.
fn pattern_of_value<'t>(text: &'t str, key: &str) -> &'t str {
    text.strip_prefix(key).and_then(|rest| rest.strip_prefix('_')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_across_the_near_ratio_and_the_limit_are_divided_as_in_the_reference_server() {
        let of = |hits, after| ReferenceHits::of(hits, after, 10, 8, false);
        let expected = |over_limit, near_limit, within_limit| (over_limit, near_limit, within_limit);
        let shown = |counts: ReferenceHits| (counts.over_limit, counts.near_limit, counts.within_limit);
        assert_eq!(shown(of(3, 3)), expected(0, 0, 3));
        assert_eq!(shown(of(3, 9)), expected(0, 1, 3), "one is near");
        assert_eq!(shown(of(2, 10)), expected(0, 2, 2), "both are near");
        assert_eq!(shown(of(4, 13)), expected(3, 1, 0), "from 9 to 13: one is near, three are above");
        assert_eq!(shown(of(4, 20)), expected(4, 0, 0), "all are above");
        let shadow = ReferenceHits::of(4, 13, 10, 8, true);
        assert_eq!((shadow.shadow_mode, shadow.over_limit, shadow.total), (3, 3, 4));
    }

    fn key(labels: &[(&str, bool)], shown_values: u64, entries: &[(&str, &str)]) -> String {
        let label = |(text, shares_counter): &(&str, bool)| MetricLabel {
            text: (*text).into(),
            shares_counter: *shares_counter,
        };
        let rule = RuleInfo {
            path: "".into(),
            declared_at: "".into(),
            quota: false,
            queues: false,
            holds_slots: false,
            shown_values,
            metric_labels: labels.iter().map(label).collect(),
            metadata: None,
            on_deny: None,
        };
        let entries: Vec<_> = entries.iter().map(|&(key, value)| Entry { key, value }).collect();
        let mut key = "d".to_owned();
        push_rule(&mut key, &entries, &rule);
        key
    }

    #[test]
    fn keys_have_the_values_that_the_rule_names_or_shows() {
        let entries = [("a", "x"), ("b", "y1")];
        assert_eq!(key(&[("a_x", false), ("b", false)], 0, &entries), "d.a_x.b");
        assert_eq!(key(&[("a", false), ("b_y*", false)], 0, &entries), "d.a.b_y*");
        assert_eq!(key(&[("a", false), ("b_y*", false)], 0b11, &entries), "d.a_x.b_y1");
        assert_eq!(key(&[("a", false), ("b_y*", true)], 0b11, &entries), "d.a_x.b_y*");
        assert_eq!(key(&[("a", false)], u64::MAX, &[("a", "")]), "d.a_", "detailed");
        assert_eq!(key(&[("a", false)], 1, &[("a", "")]), "d.a");
    }
}
