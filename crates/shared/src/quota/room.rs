//! What the last division of a bucket left free for the shares of single clients.
//!
//! Invariants:
//!
//! - what may be in force at clients grows only by what the last division left of the counter's part, and by what was given up since;
//! - the counter has this part until the end of everything that is sent.

use super::{Settings, allocation::Level, means::Means, rates::Rates};
use std::time::Duration;
use tidegate_core::limit::Timestamp;

/// Reciprocal of the relative change of the clients' demand after which the rate is divided anew, if they demand more than there is.
pub(super) const RATE_PER_DRIFT: u64 = 128;

/// What the last division of a bucket left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) level: Level,
    pub(super) means: Means,
    /// Change of the demand of clients, counted up to the level, if that bounds them.
    pub(super) drift: i64,
    /// Whether all clients have their targets.
    pub(super) is_met: bool,
    /// End of the time in which assignments may be sent.
    pub(super) until: Timestamp,
}

impl Settings {
    /// The longest time between two divisions of a bucket.
    pub(super) fn division_interval(&self) -> Duration {
        self.ttl / 3
    }

    /// Time for which the counter has the part of all clients. No assignment that is sent until the next division is in force for longer.
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
        // The clients with growth have grown.
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
