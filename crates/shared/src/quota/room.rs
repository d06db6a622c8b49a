//! What the last division of a bucket left for the shares of single clients.
//!
//! Invariants:
//!
//! - what clients may have in force grows by no more than was left of the part of the counter at the last division, and was given up since;
//! - the counter has that part until the end of all that is sent.

use super::{Settings, allocation::Level, means::Means, rates::Rates};
use std::time::Duration;
use tidegate_core::limit::Timestamp;

/// The part of a rate by which the demand of clients changes before it is divided anew, if they demand more than all of it.
pub(super) const RATE_PER_DRIFT: u64 = 128;

/// What the last division of a bucket left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) level: Level,
    pub(super) means: Means,
    /// Change of the demand of clients up to the level, where that bounds it.
    pub(super) drift: i64,
    /// Whether all clients have what they are to have.
    pub(super) is_met: bool,
    /// The end of the time in which something may be sent.
    pub(super) until: Timestamp,
}

impl Settings {
    /// The longest time between two divisions of a bucket.
    pub(super) fn division_interval(&self) -> Duration {
        self.ttl / 3
    }

    /// Time for which the counter has the part of all clients: no assignment that is sent until the next division is in force for longer.
    pub(super) fn part_life(&self) -> Duration {
        self.division_interval() + self.round_trip + self.ttl + self.round_trip
    }
}

impl Room {
    pub(super) fn new(
        rates: &Rates,
        level: Level,
        mut means: Means,
        is_met: bool,
        settings: &Settings,
        now: Timestamp,
    ) -> Self {
        // Those that were to grow have grown.
        means.free = rates.rate.saturating_sub(rates.in_force);
        means.growth = 0;
        let until = now.saturating_add(settings.division_interval() + settings.round_trip);
        Self { level, means, drift: 0, is_met, until }
    }

    /// Notes that a client gave up a rate. Returns whether others need it.
    pub(super) fn give_up(&mut self, rate: u64) -> bool {
        self.means.free = self.means.free.saturating_add(rate);
        !self.is_met
    }

    /// Notes a change of demand.
    pub(super) fn note_demand(&mut self, before: u64, now: u64) {
        if self.level.is_bound() {
            let change =
                self.level.direct(now).cast_signed().saturating_sub(self.level.direct(before).cast_signed());
            self.drift = self.drift.saturating_add(change);
        }
    }
}
