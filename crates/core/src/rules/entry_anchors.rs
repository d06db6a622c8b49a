//! Limits of calendar windows whose day an entry of each descriptor states: one limit for each day, in the same counters.
//!
//! A counter belongs to the values of all entries, so that each has one day. A value that is no day has a counter too, whose windows begin with the
//! first day of the period: no value leaves a request without a limit.

use super::RuleLimit;
use crate::{
    algorithm::{Algorithm, Anchor, Calendar, Period, Schedule},
    limit::Entry,
};

/// The entry of a descriptor that states the day on which windows begin.
#[derive(Clone, PartialEq, Debug)]
pub struct AnchorEntry {
    /// Its key.
    pub key: Box<str>,
    /// Its index among the entries.
    pub index: u32,
}

/// The limits by the day that an entry states.
#[derive(Clone, PartialEq, Debug)]
pub struct EntryAnchors {
    entry: AnchorEntry,
    period: Period,
    /// In the order of [`Anchor::days`].
    limits: Box<[RuleLimit]>,
}

impl EntryAnchors {
    /// Those of a limit whose calendar has [`Anchor::OF_ENTRY`].
    pub(super) fn new(entry: AnchorEntry, declared: &RuleLimit) -> Option<Self> {
        let calendar = declared.algorithm.calendar()?;
        let limit = |anchor| RuleLimit {
            algorithm: from(&declared.algorithm, calendar, anchor),
            anchors: None,
            ..declared.clone()
        };
        let limits = Anchor::days(calendar.period()).map(limit).collect();
        Some(Self { entry, period: calendar.period(), limits })
    }

    /// The limit of a descriptor with these entries; none if the value of its entry is no day.
    pub(crate) fn limit(&self, entries: &[Entry<'_>]) -> Option<&RuleLimit> {
        let value = entries.get(self.entry.index as usize)?.value;
        self.limits.get(Anchor::parse_day(self.period, value)?.day_index())
    }

    /// The entry that states the day.
    pub(super) fn entry(&self) -> &AnchorEntry {
        &self.entry
    }
}

/// The fixed window with the same limit, and periods from another anchor on.
fn from(algorithm: &Algorithm, calendar: &Calendar, anchor: Anchor) -> Algorithm {
    let limit = algorithm.fixed().map_or(0, |fixed| fixed.limit);
    Algorithm::fixed_window(limit, Schedule::Calendar(calendar.from(anchor)))
}
