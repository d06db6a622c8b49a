//! Sweeping: drops expired counters, counts the slots in flight, and what has expired with its counter.

use super::{
    in_force::Limiter,
    slot_figures::{Found, SlotFigures},
    ticket::HeldKind,
};
use crate::{
    limit::{SeriesId, Timestamp},
    store::{Counter, Swept},
};
use std::{
    collections::{HashMap, HashSet},
    sync::atomic::Ordering,
};

impl Limiter {
    /// Drops the expired counters of one shard, `pages_max` pages under one lock. The last shard ends a pass, in which slots in
    /// flight are counted.
    pub fn sweep(&self, shard: usize, pages_max: usize, now: Timestamp) {
        let mut found = Found::default();
        loop {
            let visit = |counter: &Counter, stays| found.visit(counter, stays, now);
            let Swept { finished, .. } = self.store.sweep_visiting(shard, pages_max, now, visit);
            if finished {
                break;
            }
        }
        let figures = &self.slots.figures;
        self.slots.counts_of(HeldKind::Reservation).expired.fetch_add(found.lost as u64, Ordering::Relaxed);
        for (limit, found) in found.slots {
            self.slots.count_expired(limit, found.expired);
            figures.add_in_flight(limit, found);
        }
        if shard + 1 == self.store.shard_count() {
            let rules = self.rules();
            let in_force: HashSet<_> = rules.slot_limits().map(|(identity, _)| identity).collect();
            figures.show(|identity| in_force.contains(identity));
        }
    }

    /// Figures of the limits of requests in flight that are in force, by series.
    pub fn slot_figures(&self) -> HashMap<SeriesId, SlotFigures> {
        let (rules, mut by_series) = (self.rules(), HashMap::<_, SlotFigures>::new());
        // Limits of one identity, such as an override's and the limit it replaces, have one entry.
        let limits: HashSet<_> = rules.slot_limits().collect();
        for (series, shown) in self.slots.figures.shown(limits.into_iter()) {
            by_series.entry(series).or_default().add(&shown);
        }
        by_series
    }
}
