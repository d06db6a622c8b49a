//! Terms of leases on one counter: what its algorithm permits, and how often nodes must report.

use super::fault::{Fault, is_planted};
use crate::{
    algorithm::{Algorithm, FixedWindow, LeakyBucket, Rate, Refill, Schedule, State, TokenBucket},
    limit::Timestamp,
};
use std::time::Duration;

/// Parameters of all leases; the same on every node of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Length of a lease.
    pub length: Duration,
    /// The smallest lease that is worthwhile, in hits.
    pub grant_min: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { length: Duration::from_millis(200), grant_min: 4 }
    }
}

impl Settings {
    /// Length of a lease in nanoseconds.
    pub fn length_nanos(&self) -> u64 {
        u64::try_from(self.length.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The part of a window after which a node reports if credits are scarce. The hits of a sliding window count for that much
/// longer than they should, so that it bounds what is lost to below one percent.
const WINDOW_PER_REPORT: u64 = 128;

/// The shortest time between two reports of a node about a counter: several round trips.
const REPORT_NANOS_MIN: u64 = 2_000_000;

/// The algorithm of a counter, with the settings.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The algorithm.
    pub algorithm: &'a Algorithm,
    /// The settings.
    pub settings: Settings,
}

impl<'a> Terms<'a> {
    /// Terms for counters of the algorithm; none if they are not leased.
    pub fn of(algorithm: &'a Algorithm, settings: Settings) -> Option<Self> {
        let terms = Self { algorithm, settings };
        let is_leased = terms.settings.length > Duration::ZERO
            && algorithm.queueing().is_none()
            && terms.span_nanos() >= settings.length_nanos();
        is_leased.then_some(terms)
    }

    /// Time that a hit counts: the window's length, or the time in which a full bucket drains.
    fn span_nanos(&self) -> u64 {
        let drains = |hits: u32, rate: Rate| {
            let (per, nanos) = rate.to_parts();
            u64::try_from(u128::from(hits) * u128::from(nanos) / u128::from(per)).unwrap_or(u64::MAX)
        };
        match self.algorithm {
            Algorithm::SlidingWindow(sliding) => sliding.window.nanos().get(),
            Algorithm::SubWindows(sliding) => {
                u64::from(sliding.precision()).saturating_mul(sliding.length_nanos().get())
            }
            Algorithm::SlidingLog(log) => log.window.nanos().get(),
            Algorithm::FixedWindow(FixedWindow { schedule, .. }) => match schedule {
                Schedule::Clock(window) | Schedule::FirstHit(window) => window.nanos().get(),
                Schedule::Calendar(_) => u64::MAX,
            },
            Algorithm::TokenBucket(TokenBucket { size, refill }) => match *refill {
                Refill::Greedy(rate) => drains(*size, rate),
                Refill::Intervals { tokens, interval } => {
                    let intervals = u64::from(size.div_ceil(tokens.get()));
                    interval.nanos().get().saturating_mul(intervals)
                }
            },
            Algorithm::LeakyBucket(LeakyBucket { burst, rate, .. }) => drains(*burst, *rate),
        }
    }

    /// The shortest time between two reports of a node.
    pub fn report_nanos_min(&self) -> u64 {
        let longest = (self.settings.length_nanos() / 2).max(1);
        (self.span_nanos() / WINDOW_PER_REPORT).max(REPORT_NANOS_MIN).min(longest)
    }

    /// The end of a lease that is granted now. Of a fixed window, no later than its last nanosecond, so that hits dated at the
    /// end are in it. None if nothing can be granted: a window from the first hit has to be opened by an exact decision.
    pub(super) fn end(&self, state: &State, now: Timestamp) -> Option<Timestamp> {
        let end = now.saturating_add_nanos(self.settings.length_nanos());
        let Algorithm::FixedWindow(fixed) = self.algorithm else { return Some(end) };
        let is_open = self.algorithm.used(state, now) > 0 || is_planted(Fault::GrantOpensWindow);
        if self.is_from_first_hit() && !is_open {
            return None;
        }
        if is_planted(Fault::NotClipped) {
            return Some(end);
        }
        let window_end = now.saturating_add(fixed.until_window_ends(state, now)).as_nanos();
        Some(end.min(Timestamp::from_nanos(window_end - 1))).filter(|&end| end > now)
    }

    /// Whether windows begin with their first hit.
    pub(super) fn is_from_first_hit(&self) -> bool {
        matches!(self.algorithm, Algorithm::FixedWindow(FixedWindow { schedule: Schedule::FirstHit(_), .. }))
    }
}
