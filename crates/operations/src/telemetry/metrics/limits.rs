//! Figures of each limit, by its stable name.
//!
//! A limit of the rules has samples for `admitted` and `denied` from the start, so that rates are right from the first hit. All other
//! samples appear once they are not zero.

use super::{
    limit_series::{InForce, LimitSeries},
    page::Page,
    sink::{Kind, Label, Number},
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
        let help = "Hits by limit and outcome";
        let is_expected = |_: InForce, outcome| matches!(outcome, Outcome::Admitted | Outcome::Denied);
        let outcomes: Vec<Outcome> = Outcome::ALL.iter().copied().filter(|of| !of.is_of_ban()).collect();
        self.by_outcome("limit_hits", help, &figures, &outcomes, is_expected, OutcomeCounts::hits)?;
        let help = "Requests by limit and outcome, once for each descriptor that the limit applied to";
        let requests = OutcomeCounts::requests;
        self.by_outcome("limit_requests", help, &figures, &outcomes, is_expected, requests)?;
        let (bans, help) = (|limit: InForce, _| limit.bans, "Bans that began");
        self.by_outcome("limit_bans", help, &figures, &[Outcome::BanBegun], bans, requests)?;
        let help = "Requests that a ban of the limit denied, or began with; once for each descriptor";
        self.by_outcome("limit_banned_requests", help, &figures, &[Outcome::Banned], bans, requests)?;
        let help = "Hits that the limit admits in one window";
        self.in_force("limit_max_hits", help, series, |limit| Number::Integer(limit.max_hits.into()))?;
        let help = "Length of the limit's window";
        self.in_force("limit_window_seconds", help, series, |limit| Number::Float(limit.window_seconds))?;
        self.gauge("limit_series", "Names of limits with series of their own", series.len() as u64)?;
        let help = "Limits in force that share the series of limit=\"other\"";
        self.gauge("limits_without_series", help, rules.limits_without_series() as u64)?;
        self.gauge("limit_value_series", "Values of descriptors with series of their own", values as u64)
    }

    /// Figures of limits of requests in flight.
    pub(super) fn slots_by_limit(&mut self, limiter: &Limiter, series: &LimitSeries) -> fmt::Result {
        let figures = limiter.slot_figures();
        let mut family = |name: &str, help: &str, kind: Kind, read: fn(&SlotFigures) -> Number| {
            self.samples(name, help, kind, &mut |samples| {
                for (series, labels) in series.iter() {
                    if let Some(figures) = figures.get(&series.id) {
                        samples.sample_of_limit(labels, &[], read(figures))?;
                    }
                }
                Ok(())
            })
        };
        let help = "Hits in flight, as counted in the last seconds";
        family("limit_in_flight", help, Kind::Gauge, |of| Number::Integer(of.in_flight))?;
        let help = "Age of the oldest slot in flight, as seen in the last seconds; 0 without one";
        family("limit_oldest_slot_seconds", help, Kind::Gauge, |of| {
            Number::Float(of.oldest.unwrap_or_default().as_secs_f64())
        })?;
        let help = "Slots that were not released before max_hold";
        family("limit_expired_slots", help, Kind::Counter, |of| Number::Integer(of.expired))?;
        let help = "Releases that named no slot of the limit";
        family("limit_unknown_releases", help, Kind::Counter, |of| Number::Integer(of.unknown))
    }

    /// Figures of these outcomes, with and without values. A single outcome has no label. Limits in force have the expected outcomes from
    /// the start.
    fn by_outcome(
        &mut self,
        name: &str,
        help: &str,
        figures: &Figures<'_>,
        outcomes: &[Outcome],
        is_expected: fn(InForce, Outcome) -> bool,
        read: fn(&OutcomeCounts, Outcome) -> u64,
    ) -> fmt::Result {
        self.samples(name, help, Kind::Counter, &mut |samples| {
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

    fn in_force(
        &mut self,
        name: &str,
        help: &str,
        series: &LimitSeries,
        read: fn(InForce) -> Number,
    ) -> fmt::Result {
        self.samples(name, help, Kind::Gauge, &mut |samples| {
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
