//! The series of limits for a page of metrics. They are made once for each rule set in force, since each scrape may read ten thousand of
//! them.

use super::{sink::LimitLabels, text::push_limit_labels};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tidegate_core::{
    limit::SeriesId,
    rules::{LimitName, RuleSet},
};

/// The `limit` of the series that all limits beyond the bound share.
const OTHER_LIMIT: &str = "other";

/// The series of one rule set, including series of former rules whose ids are still in use.
pub(super) struct LimitSeries {
    /// Series by identity.
    series: Vec<Series>,
    /// The labels of all series, one after the other.
    labels: String,
}

/// One series.
pub(super) struct Series {
    pub(super) id: SeriesId,
    /// The limit, if it is one of the rules in force.
    pub(super) in_force: Option<InForce>,
    /// End of its labels in `labels`. They start at the end of the labels before.
    labels_end: usize,
    // The texts instead of the `LimitName`, as a reference to that keeps the id in use.
    domain: Arc<str>,
    limit: Arc<str>,
}

/// A limit of the rules in force.
#[derive(Clone, Copy)]
pub(super) struct InForce {
    pub(super) max_hits: u32,
    pub(super) window_seconds: f64,
    /// Whether it bans keys.
    pub(super) bans: bool,
}

impl LimitSeries {
    fn new(rules: &RuleSet) -> Self {
        let mut in_force: HashMap<SeriesId, InForce> = HashMap::new();
        for (_, limit) in rules.rule_limits().filter(|(_, limit)| limit.series != SeriesId::OTHER) {
            // If several limits have one name, the first.
            in_force.entry(limit.series).or_insert_with(|| InForce {
                max_hits: limit.requests,
                window_seconds: limit.window.duration().as_secs_f64(),
                bans: limit.ban.is_some(),
            });
        }
        let mut named = rules.limits().series();
        named.push((SeriesId::OTHER, Arc::new(LimitName { domain: "".into(), limit: OTHER_LIMIT.into() })));
        named.sort_unstable_by_key(|(id, _)| *id);
        let mut labels = String::new();
        let of_named = |(id, name): (SeriesId, Arc<LimitName>)| {
            let LimitName { domain, limit } = &*name;
            push_limit_labels(&mut labels, domain, limit);
            let (domain, limit) = (Arc::clone(domain), Arc::clone(limit));
            Series { id, in_force: in_force.get(&id).copied(), labels_end: labels.len(), domain, limit }
        };
        let series = named.into_iter().map(of_named).collect();
        Self { series, labels }
    }

    /// Number of the series.
    pub(super) fn len(&self) -> usize {
        self.series.len()
    }

    /// The series with their labels, by identity.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Series, LimitLabels<'_>)> {
        let mut start = 0;
        self.series.iter().map(move |series| {
            let text = &self.labels[start..series.labels_end];
            start = series.labels_end;
            (series, LimitLabels { domain: &series.domain, limit: &series.limit, text })
        })
    }

    /// The position of a series in the order of [`iter`](Self::iter).
    pub(super) fn position(&self, id: SeriesId) -> Option<usize> {
        self.series.binary_search_by_key(&id, |series| series.id).ok()
    }
}

/// The series of the last rule set that was read.
#[derive(Default)]
pub(super) struct LastSeries(Mutex<Option<(Weak<RuleSet>, Arc<LimitSeries>)>>);

impl LastSeries {
    /// The series of the rules in force.
    pub(super) fn of(&self, rules: &Arc<RuleSet>) -> Arc<LimitSeries> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // While there is a `Weak`, no other rule set can have the same address.
        if let Some((of, series)) = &*last
            && std::ptr::eq(of.as_ptr(), Arc::as_ptr(rules))
        {
            return Arc::clone(series);
        }
        let series = Arc::new(LimitSeries::new(rules));
        *last = Some((Arc::downgrade(rules), Arc::clone(&series)));
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::rules::{LoadOptions, Source};

    fn rules(text: &str) -> Arc<RuleSet> {
        let text = format!("domain: d\ndescriptors:\n{text}");
        Arc::new(
            RuleSet::parse(&[Source::file("r.yaml", &text)], &LoadOptions::default()).expect("good rules"),
        )
    }

    fn labels(series: &LimitSeries) -> Vec<&str> {
        series.iter().map(|(_, labels)| labels.text).collect()
    }

    #[test]
    fn labels_are_escaped_and_those_of_their_series() {
        let rules = rules(
            "- { key: a, rate_limit: { name: 'with \"quotes\"', unit: hour, requests_per_unit: 2 } }\n\
             - { key: b, rate_limit: { per: 10s, requests_per_unit: 3 } }\n",
        );
        let series = LimitSeries::new(&rules);
        let expected = [
            "domain=\"\",limit=\"other\"",
            "domain=\"d\",limit=\"with \\\"quotes\\\"\"",
            "domain=\"d\",limit=\"b\"",
        ];
        // The series of limits in requests follow.
        assert_eq!(labels(&series)[..3], expected);
        let in_force: Vec<_> = series.iter().filter_map(|(series, _)| series.in_force).collect();
        let of_limits: Vec<_> = in_force.iter().map(|limit| (limit.max_hits, limit.window_seconds)).collect();
        assert_eq!(of_limits, [(2, 3600.0), (3, 10.0)]);
        for (position, (of_position, _)) in series.iter().enumerate() {
            assert_eq!(series.position(of_position.id), Some(position));
        }
    }

    #[test]
    fn series_are_made_again_when_other_rules_are_in_force() {
        let last = LastSeries::default();
        let former = rules("- { key: a, rate_limit: { unit: hour, requests_per_unit: 2 } }\n");
        let first = last.of(&former);
        assert!(Arc::ptr_eq(&first, &last.of(&former)));
        drop(former);
        let later = rules("- { key: b, rate_limit: { unit: hour, requests_per_unit: 2 } }\n");
        assert_eq!(labels(&last.of(&later))[1], "domain=\"d\",limit=\"b\"");
    }
}
