//! Figures of each limit, by its stable name.
//!
//! A limit of the rules has samples for `admitted` and `denied` from the start, so that rates are right from the first hit;
//! all others appear once they are not zero.

use super::{
    page::Page,
    sink::{Kind, Value},
};
use crate::{
    limit::SeriesId,
    rules::{LimitName, RuleSet},
    service::{Counts, LimitCounts, Outcome},
};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

/// The `limit` of the series that limits beyond the bound share.
const OTHER_LIMIT: &str = "other";

/// The figures of one series.
struct Figures {
    name: Arc<LimitName>,
    counts: Counts,
    /// Values of a descriptor, and their counts.
    by_values: Vec<(Box<str>, Counts)>,
    /// The limit, if it is one of the rules in force: hits and seconds of its window.
    in_force: Option<(u32, f64)>,
}

impl Page<'_> {
    pub(super) fn limits(&mut self, counts: &LimitCounts, rules: &RuleSet) -> fmt::Result {
        let (figures, values) = figures(counts, rules);
        let help = "Hits by limit and outcome";
        self.by_outcome("limit_hits", help, &figures, Counts::hits)?;
        let help = "Requests by limit and outcome, once for each descriptor that the limit applied to";
        self.by_outcome("limit_requests", help, &figures, Counts::requests)?;
        let help = "Hits that the limit admits in one window";
        self.of_limits("limit_max_hits", help, &figures, |(requests, _)| f64::from(requests))?;
        let help = "Length of the limit's window";
        self.of_limits("limit_window_seconds", help, &figures, |(_, seconds)| seconds)?;
        self.gauge("limit_series", "Names of limits with series of their own", figures.len() as u64)?;
        let help = "Limits in force that share the series of limit=\"other\"";
        self.gauge("limits_without_series", help, rules.limits_without_series() as u64)?;
        self.gauge("limit_value_series", "Values of descriptors with series of their own", values as u64)
    }

    fn by_outcome(
        &mut self,
        name: &str,
        help: &str,
        figures: &BTreeMap<SeriesId, Figures>,
        read: fn(&Counts, Outcome) -> u64,
    ) -> fmt::Result {
        self.samples(name, help, Kind::Counter, &mut |samples| {
            for of_limit in figures.values() {
                let LimitName { domain, limit } = &*of_limit.name;
                let (domain, limit) = (("domain", &**domain), ("limit", &**limit));
                for outcome in Outcome::ALL {
                    let is_expected = matches!(outcome, Outcome::Admitted | Outcome::Denied);
                    if of_limit.counts.requests(outcome) > 0 || (is_expected && of_limit.in_force.is_some()) {
                        let value = read(&of_limit.counts, outcome);
                        samples.sample(&[domain, limit, ("outcome", outcome.label())], value.into())?;
                    }
                }
                for (values, counts) in &of_limit.by_values {
                    for outcome in Outcome::ALL.into_iter().filter(|outcome| counts.requests(*outcome) > 0) {
                        let labels = [domain, limit, ("values", &**values), ("outcome", outcome.label())];
                        samples.sample(&labels, read(counts, outcome).into())?;
                    }
                }
            }
            Ok(())
        })
    }

    fn of_limits(
        &mut self,
        name: &str,
        help: &str,
        figures: &BTreeMap<SeriesId, Figures>,
        read: fn((u32, f64)) -> f64,
    ) -> fmt::Result {
        self.samples(name, help, Kind::Gauge, &mut |samples| {
            for Figures { name, in_force, .. } in figures.values() {
                if let Some(in_force) = in_force {
                    let labels = [("domain", &*name.domain), ("limit", &*name.limit)];
                    samples.sample(&labels, Value::Float(read(*in_force)))?;
                }
            }
            Ok(())
        })
    }
}

/// The figures of all series, and the number of values that are counted apart.
fn figures(counts: &LimitCounts, rules: &RuleSet) -> (BTreeMap<SeriesId, Figures>, usize) {
    let mut in_force: HashMap<SeriesId, (u32, f64)> = HashMap::new();
    for (_, limit) in rules.rule_limits().filter(|(_, limit)| limit.series != SeriesId::OTHER) {
        // Of several limits with one name, the first.
        in_force
            .entry(limit.series)
            .or_insert_with(|| (limit.requests, limit.window.duration().as_secs_f64()));
    }
    let mut named = rules.limits().series();
    named.push((SeriesId::OTHER, Arc::new(LimitName { domain: "".into(), limit: OTHER_LIMIT.into() })));
    let mut figures: BTreeMap<SeriesId, Figures> = named
        .into_iter()
        .map(|(series, name)| {
            let (counts, in_force) = (counts.counts(series), in_force.get(&series).copied());
            (series, Figures { name, counts, by_values: Vec::new(), in_force })
        })
        .collect();
    let (by_values, number) = counts.by_values(|series| figures.contains_key(&series));
    for ((series, values), counts) in by_values {
        if let Some(of_series) = figures.get_mut(&series) {
            of_series.by_values.push((values, counts));
        }
    }
    figures.values_mut().for_each(|of_series| of_series.by_values.sort_by(|(a, _), (b, _)| a.cmp(b)));
    (figures, number)
}
