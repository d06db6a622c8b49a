//! Schedules: limits that apply at times of the week, in the place of the one that a rule declares.
//!
//! All limits of a schedule count by the same algorithm in the same counters, and differ only in the number that they admit: what was
//! used stays used when another one begins to apply.

use super::RuleLimit;
use crate::{
    algorithm::{Hours, State, Timetable},
    limit::{Reset, Timestamp},
};
use std::fmt;

/// The limits of a schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    timetable: Timetable,
    /// By the hours of the timetable.
    limits: Box<[RuleLimit]>,
}

/// A limit and its hours: `50 mon-fri 08:00-18:00 Europe/Berlin`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScheduledLimit<'s> {
    /// Hits per window; [`Schedule::UNLIMITED`] if nothing limits them.
    pub requests: u32,
    /// The times of the week.
    pub hours: Hours,
    /// The time zone.
    pub zone: &'s str,
}

impl Schedule {
    /// A number that no counter exceeds.
    pub const UNLIMITED: u32 = u32::MAX;

    /// The numbers that `declared` admits in the hours of the timetable.
    pub(super) fn new(timetable: Timetable, declared: &RuleLimit, requests: &[u32]) -> Self {
        let limit = |&requests: &u32| {
            let algorithm = declared.algorithm.with_requests(requests, declared.requests, declared.window);
            RuleLimit { requests, algorithm, ..declared.clone() }
        };
        Self { timetable, limits: requests.iter().map(limit).collect() }
    }

    /// When its limits apply.
    pub fn timetable(&self) -> &Timetable {
        &self.timetable
    }

    /// Its limits, the first of which applies where hours overlap.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = ScheduledLimit<'_>> {
        let zone = self.timetable.zone().name();
        let both = self.timetable.hours().iter().zip(&self.limits);
        both.map(move |(hours, limit)| ScheduledLimit { requests: limit.requests, hours: *hours, zone })
    }

    /// The limit in the place of the declared one at a moment.
    #[inline]
    pub(crate) fn limit_at(&self, now: Timestamp) -> Option<&RuleLimit> {
        self.limits.get(self.timetable.at(now)?)
    }

    /// The least wait after which `hits` would be admitted if no other hits arrived, whichever limit applies then.
    pub(crate) fn until_admits(
        &self,
        declared: &RuleLimit,
        state: &State,
        hits: u64,
        now: Timestamp,
    ) -> Reset {
        let all = self.limits.iter().enumerate().map(|(index, limit)| (Some(index), limit));
        // What fits a limit fits it from then on, so that of each limit only the first moment matters.
        let moments = all.chain([(None, declared)]).filter_map(|(hours, limit)| {
            match limit.algorithm.until_admits(state, hits, now) {
                Reset::After(wait) => self.timetable.first_at(hours, now.saturating_add(wait)),
                Reset::Never => None,
            }
        });
        moments.min().map_or(Reset::Never, |moment| Reset::After(moment.since(now)))
    }

    /// Whether both admit the same at the same times.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.timetable == other.timetable && self.entries().eq(other.entries())
    }
}

impl fmt::Display for ScheduledLimit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.requests {
            Schedule::UNLIMITED => f.write_str("unlimited")?,
            requests => write!(f, "{requests}")?,
        }
        write!(f, " {} {}", self.hours, self.zone)
    }
}
