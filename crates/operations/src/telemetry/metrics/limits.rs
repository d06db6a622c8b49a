//! Figures of each limit, by its stable name.
//!
//! A limit of the rules has samples for `admitted` and `denied` from the start, so that rates are right from the first hit. All other
//! samples appear once they are not zero.

use super::{
    limit_series::{InForce, LimitSeries},
    page::Page,
    sink::{Label, Number},
};
use smallvec::SmallVec;
use std::{collections::HashMap, fmt};
use tidegate_core::{
    limiter::{Limiter, SlotFigures},
    rules::RuleSet,
};
use tidegate_counts::Label as _;
use tidegate_service::{LimitCounts, Outcome, OutcomeCounts};

/// The figures of all series.
struct Figures<'s> {
    series: &'s LimitSeries,
    /// Counts in the order of the series.
    counts: Vec<OutcomeCounts>,
    /// Values of descriptors and their counts, by the position of the series.
    by_values: HashMap<usize, Vec<(Box<str>, OutcomeCounts)>>,
}

impl Page<'_> {
    pub(super) fn limits(
        &mut self,
        counts: &LimitCounts,
        rules: &RuleSet,
        series: &LimitSeries,
    ) -> fmt::Result {
        let (figures, values) = Figures::read(counts, rules, series);
        let is_expected = |_: InForce, outcome| matches!(outcome, Outcome::Admitted | Outcome::Denied);
        let outcomes: Vec<Outcome> = Outcome::ALL.iter().copied().filter(|of| !of.is_of_ban()).collect();
        self.by_outcome("limit_hits", &figures, &outcomes, is_expected, OutcomeCounts::hits)?;
        let requests = OutcomeCounts::requests;
        self.by_outcome("limit_requests", &figures, &outcomes, is_expected, requests)?;
        let bans = |limit: InForce, _| limit.bans;
        self.by_outcome("limit_bans", &figures, &[Outcome::BanBegun], bans, requests)?;
        self.by_outcome("limit_banned_requests", &figures, &[Outcome::Banned], bans, requests)?;
        self.in_force("limit_max_hits", series, |limit| Number::Integer(limit.max_hits.into()))?;
        self.in_force("limit_window_seconds", series, |limit| Number::Float(limit.window_seconds))?;
        self.value("limit_series", series.len() as u64)?;
        self.value("limits_without_series", rules.limits_without_series() as u64)?;
        self.value("limit_value_series", values as u64)
    }

    /// Figures of limits of requests in flight.
    pub(super) fn slots_by_limit(&mut self, limiter: &Limiter, series: &LimitSeries) -> fmt::Result {
        let figures = limiter.slot_figures();
        let mut family = |name: &str, read: fn(&SlotFigures) -> Number| {
            self.samples(name, &mut |samples| {
                for (series, labels) in series.iter() {
                    if let Some(figures) = figures.get(&series.id) {
                        samples.sample_of_limit(labels, &[], read(figures))?;
                    }
                }
                Ok(())
            })
        };
        family("limit_in_flight", |of| Number::Integer(of.in_flight))?;
        family("limit_oldest_slot_seconds", |of| Number::Float(of.oldest.unwrap_or_default().as_secs_f64()))?;
        family("limit_expired_slots", |of| Number::Integer(of.expired))?;
        family("limit_unknown_releases", |of| Number::Integer(of.unknown))
    }

    /// Figures of these outcomes, with and without values. A single outcome has no label. Limits in force have the expected outcomes from
    /// the start.
    fn by_outcome(
        &mut self,
        name: &str,
        figures: &Figures<'_>,
        outcomes: &[Outcome],
        is_expected: fn(InForce, Outcome) -> bool,
        read: fn(&OutcomeCounts, Outcome) -> u64,
    ) -> fmt::Result {
        self.samples(name, &mut |samples| {
            let series = figures.series.iter().zip(&figures.counts).enumerate();
            for (position, ((series, labels), counts)) in series {
                let of_values = figures.by_values.get(&position).into_iter().flatten();
                let of_values = of_values.map(|(values, counts)| (Some(&**values), counts));
                for (values, counts) in std::iter::once((None, counts)).chain(of_values) {
                    let in_force = series.in_force.filter(|_| values.is_none());
                    for outcome in outcomes.iter().copied() {
                        if counts.requests(outcome) == 0
                            && !in_force.is_some_and(|limit| is_expected(limit, outcome))
                        {
                            continue;
                        }
                        let by_outcome = (outcomes.len() > 1).then(|| ("outcome", outcome.name()));
                        let values = values.map(|values| ("values", values));
                        let beside: SmallVec<[Label<'_>; 2]> = values.into_iter().chain(by_outcome).collect();
                        samples.sample_of_limit(labels, &beside, Number::Integer(read(counts, outcome)))?;
                    }
                }
            }
            Ok(())
        })
    }

    fn in_force(&mut self, name: &str, series: &LimitSeries, read: fn(InForce) -> Number) -> fmt::Result {
        self.samples(name, &mut |samples| {
            for (series, labels) in series.iter() {
                if let Some(limit) = series.in_force {
                    samples.sample_of_limit(labels, &[], read(limit))?;
                }
            }
            Ok(())
        })
    }
}

impl<'s> Figures<'s> {
    /// Reads the figures, and the number of values that are counted apart.
    fn read(counts: &LimitCounts, rules: &RuleSet, series: &'s LimitSeries) -> (Self, usize) {
        let reader = counts.reader();
        let of_series = series.iter().map(|(series, _)| reader.counts(series.id)).collect();
        // Not by `series`: other rules may be in force now.
        let (found, number) = counts.by_values(|id| rules.limits().has_series(id));
        let mut by_values: HashMap<usize, Vec<(Box<str>, OutcomeCounts)>> = HashMap::new();
        for ((id, values), counts) in found {
            if let Some(position) = series.position(id) {
                by_values.entry(position).or_default().push((values, counts));
            }
        }
        for of_series in by_values.values_mut() {
            of_series.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        (Self { series, counts: of_series, by_values }, number)
    }
}
