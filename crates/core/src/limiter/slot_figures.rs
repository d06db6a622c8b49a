//! Figures of slots, for each limit: hits in flight and the oldest slot, slots that expired, releases that named none.
//!
//! What is in flight is read by the sweeper, which visits every counter once in a while anyway. Takes and releases therefore pay
//! nothing for it, and it is right after restarts, resets and changes of rules, and where slots expire without traffic.
//! Expired slots and unknown releases are rare: they are counted when they are noticed, under a lock that is taken last.

use super::in_force::Limiter;
use crate::{
    limit::{LimitId, SeriesId, Timestamp},
    rules::{LimitIdentity, LimitTable},
    store::{Counter, Swept},
    sync::Mutex,
};
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

/// Limits that have figures, unless more are in force: those of former rules are dropped beyond it.
const LIMITS_MAX: usize = 4_096;

/// Figures of the slots of one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotFigures {
    /// Hits in flight, as of the last pass of the sweeper.
    pub in_flight: u64,
    /// The age of its oldest slot then: of several `max_hold`, of the slot that ends first in each counter. None without a slot.
    pub oldest: Option<Duration>,
    /// Slots that were not released before their deadlines.
    pub expired: u64,
    /// Releases of slots that were not held, by counters that exist.
    pub unknown: u64,
}

impl SlotFigures {
    /// Adds those of another limit of the series.
    fn add(&mut self, other: &Self) {
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
    /// What the pass that is under way has found.
    in_flight: InFlight,
}

#[derive(Clone, Copy, Default)]
struct InFlight {
    hits: u64,
    oldest: Option<Duration>,
}

impl InFlight {
    fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.oldest = self.oldest.max(other.oldest);
    }
}

/// The slots that the sweeper has found in a few pages.
#[derive(Default)]
struct Found(HashMap<LimitId, (InFlight, u64)>);

impl Found {
    /// Adds a counter. Slots of one that is dropped have expired.
    fn visit(&mut self, counter: &Counter, stays: bool, now: Timestamp) {
        let Some(slots) = counter.slots() else { return };
        let (in_flight, expired) = self.0.entry(counter.limit()).or_default();
        if !stays {
            *expired += slots.all().len() as u64;
            return;
        }
        let held = slots.held(now);
        let hits = held.iter().map(|slot| u64::from(slot.hits)).sum();
        in_flight.add(InFlight { hits, oldest: held.first().map(|slot| now.since(slot.taken())) });
    }
}

impl FiguresByLimit {
    /// Of limits with the numbers of this table.
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

    /// Shows what a whole pass has found.
    fn show(&self, is_in_force: impl Fn(&LimitIdentity) -> bool) {
        let mut figures = self.figures.lock();
        for Figures { shown, in_flight } in figures.values_mut() {
            let InFlight { hits, oldest } = std::mem::take(in_flight);
            (shown.in_flight, shown.oldest) = (hits, oldest);
        }
        if figures.len() > LIMITS_MAX {
            figures.retain(|identity, figures| figures.shown.in_flight > 0 || is_in_force(identity));
        }
    }
}

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
        for (limit, (in_flight, expired)) in found.0 {
            self.slots.count_expired(limit, expired);
            figures.change(limit, |figures| figures.in_flight.add(in_flight));
        }
        if shard + 1 == self.store.shard_count() {
            let rules = self.rules();
            let in_force: HashSet<_> = rules.slot_limits().map(|(identity, _)| identity).collect();
            figures.show(|identity| in_force.contains(identity));
        }
    }

    /// The figures of the limits of requests in flight in force, by series.
    pub fn slot_figures(&self) -> HashMap<SeriesId, SlotFigures> {
        let (rules, mut by_series) = (self.rules(), HashMap::<_, SlotFigures>::new());
        let figures = self.slots.figures.figures.lock();
        // Two limits of one identity, such as an override's and that of the rule in its place, have one entry.
        let limits: HashSet<_> = rules.slot_limits().collect();
        for (identity, series) in limits {
            let shown = figures.get(identity).map_or_else(Default::default, |figures| figures.shown);
            by_series.entry(series).or_default().add(&shown);
        }
        by_series
    }
}
