//! Counts of calls and hits as in Limitador: by domain (its namespace), and by the labels that an expression makes from the request. Denied
//! calls are also counted by the limit that denied.
//!
//! The number of series is bounded; more series share [`OTHER_DOMAIN`].

use std::{collections::BTreeMap, fmt::Write as _};
use tidegate_core::{
    limit::{Code, Decision, Hits, Request},
    rules::{Expression, texts_of},
};
use tidegate_counts::CountsByText;

/// Domain of the series beyond the bound.
const OTHER_DOMAIN: &str = "other";

/// Labels of denied calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitadorLabels {
    /// The namespace.
    Namespace,
    /// Also the name of the limit.
    LimitName,
}

/// Settings of the counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitadorSettings {
    /// Labels of denied calls.
    pub labels: LimitadorLabels,
    /// Makes more labels from a request: a map of names to values.
    pub expression: Option<Expression>,
}

/// A series that is counted apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LimitadorSeries {
    /// The domain.
    pub domain: Box<str>,
    /// The labels from the expression, by their Prometheus names.
    pub labels: Vec<(String, String)>,
}

/// Calls and hits of one series.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LimitadorCalls {
    /// Calls that were admitted.
    pub authorized_calls: u64,
    /// Hits of admitted calls and of reports.
    pub authorized_hits: u64,
    /// Calls that were denied, by the name of the limit. The name is empty if names are not counted.
    pub limited_calls: BTreeMap<Box<str>, u64>,
}

impl LimitadorCalls {
    /// Adds hits, saturating: callers choose the number of hits of a request.
    fn add_hits(&mut self, hits: u64) {
        self.authorized_hits = self.authorized_hits.saturating_add(hits);
    }
}

/// Counts by domain and labels.
pub struct LimitadorCounts {
    settings: LimitadorSettings,
    /// Bound on the limits of a series.
    series_max: usize,
    /// By the texts of a series, each with its length before it. Series beyond the bound have an empty text.
    by_series: CountsByText<(LimitadorSeries, LimitadorCalls)>,
}

impl LimitadorCounts {
    /// Counts of nothing yet.
    pub(super) fn new(settings: LimitadorSettings, series_max: usize) -> Self {
        Self { settings, series_max, by_series: CountsByText::new(series_max) }
    }

    /// The labels of denied calls.
    pub fn labels(&self) -> LimitadorLabels {
        self.settings.labels
    }

    /// Counts a decision that is sent.
    pub(super) fn count(&self, request: &Request<'_>, decision: &Decision<'_>) {
        let labels = match &self.settings.expression {
            Some(expression) => labels(texts_of(expression, request.descriptors())),
            None => Vec::new(),
        };
        let domain = request.domain();
        let write = |key: &mut String, is_other| {
            if is_other {
                return;
            }
            let texts = labels.iter().flat_map(|(name, value)| [name.as_str(), value]);
            for text in std::iter::once(domain).chain(texts) {
                let _ = write!(key, "{}:{text}", text.len());
            }
        };
        let series = |is_other| match is_other {
            true => LimitadorSeries { domain: OTHER_DOMAIN.into(), labels: Vec::new() },
            false => LimitadorSeries { domain: domain.into(), labels: labels.clone() },
        };
        let make = |is_other| (series(is_other), LimitadorCalls::default());
        self.by_series.of_thread().add(write, make, |(_, calls)| self.count_call(request, decision, calls));
    }

    fn count_call(&self, request: &Request<'_>, decision: &Decision<'_>, calls: &mut LimitadorCalls) {
        let hits = match request.descriptors().first().map(|descriptor| descriptor.hits) {
            Some(Hits::Take(hits)) => hits.get(),
            _ => 0,
        };
        match decision.code {
            _ if request.is_report() => calls.add_hits(hits),
            Code::Ok => {
                calls.authorized_calls += 1;
                calls.add_hits(hits);
            }
            Code::OverLimit => {
                let name = decision.denying().find_map(|status| status.limit).map_or("", |limit| limit.name);
                let name = if self.settings.labels == LimitadorLabels::LimitName { name } else { "" };
                let limited = &mut calls.limited_calls;
                let is_counted_apart = limited.contains_key(name) || limited.len() < self.series_max;
                *limited.entry(if is_counted_apart { name } else { "other" }.into()).or_default() += 1;
            }
        }
    }

    /// The counts of all threads.
    pub fn sums(&self) -> BTreeMap<LimitadorSeries, LimitadorCalls> {
        let mut sums: BTreeMap<LimitadorSeries, LimitadorCalls> = BTreeMap::new();
        self.by_series.for_each(|_, (series, calls)| {
            let sum = sums.entry(series.clone()).or_default();
            sum.authorized_calls += calls.authorized_calls;
            sum.add_hits(calls.authorized_hits);
            for (name, calls) in &calls.limited_calls {
                *sum.limited_calls.entry(name.clone()).or_default() += calls;
            }
        });
        sums
    }
}

/// Sorted labels with names that Prometheus accepts, without those of Limitador itself.
fn labels(pairs: Vec<(String, String)>) -> Vec<(String, String)> {
    let name = |name: String| -> String {
        let is_digit_first = name.starts_with(|first: char| first.is_ascii_digit());
        let valid = |one: char| if one.is_ascii_alphanumeric() || one == '_' { one } else { '_' };
        let name: String = name.chars().map(valid).collect();
        if is_digit_first { format!("_{name}") } else { name }
    };
    let mut labels: Vec<_> = pairs.into_iter().map(|(key, value)| (name(key), value)).collect();
    labels.retain(|(name, _)| !name.is_empty() && name != "limitador_namespace" && name != "limit_name");
    labels.sort();
    labels.dedup_by(|later, first| later.0 == first.0);
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_labels_are_those_that_prometheus_accepts() {
        let pairs = [
            ("auth.identity.userid", "ann"),
            ("1st", "x"),
            ("a-b", "y"),
            ("a.b", "z"),
            ("limit_name", "n"),
            ("", "e"),
        ];
        let made = labels(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        let made: Vec<(&str, &str)> = made.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(made, [("_1st", "x"), ("a_b", "y"), ("auth_identity_userid", "ann")]);
    }
}
