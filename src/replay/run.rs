//! One replay: decides each event under the proposed rules, and under the current ones if there are any.

use super::{
    Demand, Event, Report, Suggestion,
    tally::{Outcome, Tally},
};
use crate::{
    limit::Timestamp,
    limiter::Limiter,
    rules::RuleSet,
    store::{OnFull, Seed, StoreSettings},
};

/// A constant, so that a replay is repeatable. It protects nothing: no client chooses its values while a replay runs.
const SEED: [u8; 16] = [0; 16];

/// Events between two sweeps of expired counters.
const EVENTS_PER_SWEEP: u64 = 1 << 18;

/// Pages swept under one lock, for which nothing else waits.
const PAGES_PER_LOCK: usize = 1_024;

/// Decides events again.
pub struct Replay {
    proposed: Limiter,
    /// None where the current decisions are those of the log.
    current: Option<Limiter>,
    /// Time of the latest event; never runs backwards.
    now: Timestamp,
    decided: u64,
    tally: Tally,
    demand: Option<Demand>,
}

impl Replay {
    /// A replay under the proposed rules, against other rules, or against the log. Under each rules there are at most
    /// `counters_max` counters; requests that need another one are denied.
    pub fn new(proposed: RuleSet, current: Option<RuleSet>, counters_max: usize) -> Self {
        let limiter = |rules| {
            let settings =
                StoreSettings { seed: Seed::from_bytes(SEED), counters_max, on_full: OnFull::Deny };
            Limiter::new(rules, settings, false)
        };
        Self {
            tally: Tally::new(current.is_none()),
            proposed: limiter(proposed),
            current: current.map(limiter),
            now: Timestamp::EPOCH,
            decided: 0,
            demand: None,
        }
    }

    /// Collects the hits of some rules from now on, for [`Demand::suggestions`].
    pub fn collect_demand(&mut self, demand: Demand) {
        self.demand = Some(demand);
    }

    /// Decides one event at its time.
    pub fn decide(&mut self, event: &Event) {
        self.now = self.now.max(event.time);
        let (request, now) = (event.request(), self.now);
        if let Some(demand) = &mut self.demand {
            demand.add(&request, now);
        }
        let rules = self.proposed.pin();
        let proposed = rules.decide(&request, now);
        let proposed = Outcome::decided(&proposed);
        match &self.current {
            None => self.tally.add(event, &proposed, &Outcome::recorded(event), now),
            Some(current) => {
                let rules = current.pin();
                let current = rules.decide(&request, now);
                self.tally.add(event, &proposed, &Outcome::decided(&current), now);
            }
        }
        self.decided += 1;
        if self.decided.is_multiple_of(EVENTS_PER_SWEEP) {
            self.sweep();
        }
    }

    /// Requests decided so far.
    pub fn decided(&self) -> u64 {
        self.decided
    }

    /// Requests that a full store denied, under the proposed and the current rules: the report is not exact if there are any.
    pub fn no_room(&self) -> usize {
        self.limiters().map(|limiter| limiter.store().no_room()).sum()
    }

    /// The report on all events, and the suggestions if demand was collected.
    pub fn into_report(self) -> (Report, Vec<Suggestion>) {
        let suggestions = self.demand.map(|demand| demand.suggestions()).unwrap_or_default();
        (self.tally.into_report(), suggestions)
    }

    fn limiters(&self) -> impl Iterator<Item = &Limiter> {
        std::iter::once(&self.proposed).chain(&self.current)
    }

    fn sweep(&self) {
        for limiter in self.limiters() {
            let store = limiter.store();
            for shard in 0..store.shard_count() {
                while !store.sweep(shard, PAGES_PER_LOCK, self.now).finished {}
            }
        }
    }
}
