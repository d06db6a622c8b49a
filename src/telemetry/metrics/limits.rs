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
use std::{collections::HashMap, fmt, sync::Arc};

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

/// The figures of all series, in the order of their series.
struct AllFigures(Vec<(SeriesId, Figures)>);

impl AllFigures {
    fn iter(&self) -> impl Iterator<Item = &Figures> {
        self.0.iter().map(|(_, figures)| figures)
    }

    fn position(&self, series: SeriesId) -> Option<usize> {
        self.0.binary_search_by_key(&series, |(found, _)| *found).ok()
    }
}

impl Page<'_> {
    pub(super) fn limits(&mut self, counts: &LimitCounts, rules: &RuleSet) -> fmt::Result {
        let (figures, values) = figures(counts, rules);
        let help = "Hits by limit and outcome";
        self.by_outcome("limit_hits", help, &figures, Counts::hits)?;
        let help = "Requests by limit and outcome, once for each descriptor that the limit applied to";
        self.by_outcome("limit_requests", help, &figures, Counts::requests)?;
        let help = "Hits that the limit admits in one window";
        self.of_limits("limit_max_hits", help, &figures, |(requests, _)| u64::from(requests).into())?;
        let help = "Length of the limit's window";
        self.of_limits("limit_window_seconds", help, &figures, |(_, seconds)| seconds.into())?;
        self.gauge("limit_series", "Names of limits with series of their own", figures.0.len() as u64)?;
        let help = "Limits in force that share the series of limit=\"other\"";
        self.gauge("limits_without_series", help, rules.limits_without_series() as u64)?;
        self.gauge("limit_value_series", "Values of descriptors with series of their own", values as u64)
    }

    fn by_outcome(
        &mut self,
        name: &str,
        help: &str,
        figures: &AllFigures,
        read: fn(&Counts, Outcome) -> u64,
    ) -> fmt::Result {
        self.samples(name, help, Kind::Counter, &mut |samples| {
            for of_limit in figures.iter() {
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
        figures: &AllFigures,
        read: fn((u32, f64)) -> Value<'static>,
    ) -> fmt::Result {
        self.samples(name, help, Kind::Gauge, &mut |samples| {
            for Figures { name, in_force, .. } in figures.iter() {
                if let Some(in_force) = in_force {
                    let labels = [("domain", &*name.domain), ("limit", &*name.limit)];
                    samples.sample(&labels, read(*in_force))?;
                }
            }
            Ok(())
        })
    }
}

/// The figures of all series, and the number of values that are counted apart.
fn figures(counts: &LimitCounts, rules: &RuleSet) -> (AllFigures, usize) {
    let mut in_force: HashMap<SeriesId, (u32, f64)> = HashMap::new();
    for (_, limit) in rules.rule_limits().filter(|(_, limit)| limit.series != SeriesId::OTHER) {
        // Of several limits with one name, the first.
        in_force
            .entry(limit.series)
            .or_insert_with(|| (limit.requests, limit.window.duration().as_secs_f64()));
    }
    let mut named = rules.limits().series();
    named.push((SeriesId::OTHER, Arc::new(LimitName { domain: "".into(), limit: OTHER_LIMIT.into() })));
    named.sort_unstable_by_key(|(series, _)| *series);
    let reader = counts.reader();
    let of_series = |(series, name): (SeriesId, Arc<LimitName>)| {
        let (counts, in_force) = (reader.counts(series), in_force.get(&series).copied());
        (series, Figures { name, counts, by_values: Vec::new(), in_force })
    };
    let mut figures = AllFigures(named.into_iter().map(of_series).collect());
    let (by_values, number) = counts.by_values(|series| figures.position(series).is_some());
    for ((series, values), counts) in by_values {
        if let Some(position) = figures.position(series) {
            figures.0[position].1.by_values.push((values, counts));
        }
    }
    for (_, of_series) in &mut figures.0 {
        of_series.by_values.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    (figures, number)
}
