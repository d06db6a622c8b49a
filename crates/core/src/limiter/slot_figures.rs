//! Figures of slots, for each limit: hits in flight, the oldest slot, expired slots, releases of unknown slots.
//!
//! The sweeper, which visits every counter regularly anyway, reads what is in flight. Takes and releases therefore pay nothing for it, and
//! it is right after restarts, resets and rule changes, and when slots expire without traffic. Expired slots and unknown releases are rare:
//! they are counted when noticed, under a lock that is taken last.

use crate::{
    limit::{LimitId, Timestamp},
    rules::{LimitIdentity, LimitTable},
    store::Counter,
    sync::Mutex,
};
use std::{collections::HashMap, time::Duration};

/// Most limits with figures, unless more are in force: beyond it, the figures of former rules are dropped.
const LIMITS_MAX: usize = 4_096;

/// Figures of the slots of one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotFigures {
    /// Hits in flight, as of the last pass of the sweeper.
    pub in_flight: u64,
    /// Age of its oldest slot then; with several `max_hold`, of the slot that ends first in each counter. None without a slot.
    pub oldest: Option<Duration>,
    /// Slots that were not released before their deadlines.
    pub expired: u64,
    /// Releases of slots that an existing counter did not hold.
    pub unknown: u64,
}

impl SlotFigures {
    /// Adds the figures of another limit of the series.
    pub(super) fn add(&mut self, other: &Self) {
        self.in_flight += other.in_flight;
        self.oldest = self.oldest.max(other.oldest);
        self.expired += other.expired;
        self.unknown += other.unknown;
    }
}

/// The figures of all limits.
pub(super) struct FiguresByLimit {
    limits: LimitTable,
    figures: Mutex<HashMap<LimitIdentity, Figures>>,
}

#[derive(Default)]
struct Figures {
    shown: SlotFigures,
    /// Slots in flight that the present pass has found.
    found: SlotFigures,
}

/// What the sweeper has found in a few pages.
#[derive(Default)]
pub(super) struct Found {
    /// The slots in flight, and those that have expired with their counter.
    pub(super) slots: HashMap<LimitId, SlotFigures>,
    /// Number of reservations that were dropped with their counter, past their deadlines.
    pub(super) lost: usize,
}

impl Found {
    /// Adds a counter. If it is dropped, its slots and reservations have expired.
    pub(super) fn visit(&mut self, counter: &Counter, stays: bool, now: Timestamp) {
        if let (Some(reserved), false) = (counter.reserved(), stays) {
            self.lost += reserved.open().len();
        }
        let Some(slots) = counter.slots() else { return };
        let found = self.slots.entry(counter.limit()).or_default();
        if !stays {
            found.expired += slots.all().len() as u64;
            return;
        }
        found.in_flight += slots.held(now).map(|slot| u64::from(slot.hits)).sum::<u64>();
        found.oldest = found.oldest.max(slots.held(now).next().map(|slot| now.since(slot.taken())));
    }
}

impl FiguresByLimit {
    /// Without figures, for limits with the numbers of this table.
    pub(super) fn new(limits: LimitTable) -> Self {
        Self { limits, figures: Mutex::new(HashMap::new()) }
    }

    /// Counts expired slots of a limit.
    pub(super) fn count_expired(&self, limit: LimitId, slots: u64) {
        self.change(limit, |figures| figures.shown.expired += slots);
    }

    /// Counts a release of a slot that a counter of the limit does not have.
    pub(super) fn count_unknown(&self, limit: LimitId) {
        self.change(limit, |figures| figures.shown.unknown += 1);
    }

    fn change(&self, limit: LimitId, change: impl FnOnce(&mut Figures)) {
        let Some(info) = self.limits.get(limit) else { return };
        let mut figures = self.figures.lock();
        match figures.get_mut(&info.identity) {
            Some(figures) => change(figures),
            None => change(figures.entry(info.identity.clone()).or_default()),
        }
    }

    /// Adds slots in flight of a limit to what the pass has found.
    pub(super) fn add_in_flight(&self, limit: LimitId, found: SlotFigures) {
        self.change(limit, |figures| figures.found.add(&found));
    }

    /// The figures of these limits, as of the last pass.
    pub(super) fn shown<'l, T>(
        &self,
        limits: impl Iterator<Item = (&'l LimitIdentity, T)>,
    ) -> Vec<(T, SlotFigures)> {
        let figures = self.figures.lock();
        let shown = |identity| figures.get(identity).map_or_else(Default::default, |figures| figures.shown);
        limits.map(|(identity, of)| (of, shown(identity))).collect()
    }

    /// Publishes what a whole pass has found.
    pub(super) fn show(&self, is_in_force: impl Fn(&LimitIdentity) -> bool) {
        let mut figures = self.figures.lock();
        for Figures { shown, found } in figures.values_mut() {
            let SlotFigures { in_flight, oldest, .. } = std::mem::take(found);
            (shown.in_flight, shown.oldest) = (in_flight, oldest);
        }
        if figures.len() > LIMITS_MAX {
            figures.retain(|identity, figures| figures.shown.in_flight > 0 || is_in_force(identity));
        }
    }
}
