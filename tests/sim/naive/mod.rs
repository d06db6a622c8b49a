//! A naive limiter: one oracle for each counter, and all rules of charging in one folder.

mod charges;
pub mod resets;

pub use charges::{Charge, is_of_ban, is_over_at, sum};

use crate::{
    naive_queue::NaiveQueue,
    oracle::{Model, Oracle},
    outcome::{DescriptorHits, Hits, Outcome, gives, takes},
    rules::{QueueLimits, Rules},
    traffic::{Event, Step},
    world::Settings,
};
use std::collections::BTreeMap;

/// Settings, rules, counters, queued requests, and the counters in the snapshot.
#[derive(Clone)]
pub struct Naive {
    settings: Settings,
    rules: Rules,
    pub counters: BTreeMap<Key, Oracle>,
    /// The limit under which each counter was last counted; none for limits sent with requests, which differ in number only.
    labels: BTreeMap<Key, Option<Label>>,
    pub queue: NaiveQueue,
    snapshot: Snapshot,
    /// Whether there is anything to write: an unchanged snapshot keeps its time.
    pub is_changed: bool,
}

/// Counters, and the time at which they were written.
#[derive(Clone, Default)]
struct Snapshot {
    at: u64,
    counters: BTreeMap<Key, Oracle>,
    labels: BTreeMap<Key, Option<Label>>,
}

/// The part of a limit that, if changed, converts its counters.
#[derive(Clone)]
struct Label {
    model: Model,
    queue: Option<QueueLimits>,
}

impl PartialEq for Label {
    fn eq(&self, other: &Self) -> bool {
        if let Model::Ban { .. } = self.model {
            return self.model == other.model;
        }
        let limit = |label: &Self| Oracle::new(label.model.clone()).limit();
        self.model.counts_as(&other.model) && limit(self) == limit(other) && self.queue == other.queue
    }
}

/// Rule, value, and the limit whose counter it is.
pub type Key = (usize, usize, Of);

/// The limit that a counter belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Of {
    /// One of the limits of the rule.
    Rule(usize),
    /// The limit sent with the request.
    Request,
    /// In the reference semantics: the limit of the rule, or of the request, with a window of this many nanoseconds.
    Window(u64),
    /// Denials by one of the limits of the rule.
    Ban(usize),
}

impl Naive {
    pub fn new(settings: Settings, rules: Rules) -> Self {
        let queue = NaiveQueue::new(settings.queued_max);
        Self {
            settings,
            rules,
            counters: BTreeMap::new(),
            labels: BTreeMap::new(),
            queue,
            snapshot: Snapshot::default(),
            is_changed: true,
        }
    }

    /// Runs a step. Returns the results of all requests that it completes, in the order of arrival.
    pub fn play(&mut self, Step { now, event }: &Step) -> Vec<Outcome> {
        match event {
            Event::Request { descriptors, max_wait } => {
                return vec![self.decide(descriptors, *max_wait, *now)];
            }
            Event::Cancel(number) => {
                if let Some(index) = number.checked_rem(self.queue.len()) {
                    self.cancel(index, *now);
                }
            }
            Event::Release => return self.release_all(*now),
            Event::EndQueues(after) => return self.end_queue(now + after, *now),
            Event::ChangeRules(rules) => self.put_in_force(rules),
            Event::Reload { rules, meanwhile } => {
                let mut outcomes = Vec::new();
                for step in meanwhile {
                    if let (Event::Crash(_), Some(rules)) = (&step.event, rules) {
                        self.put_in_force(rules);
                    }
                    outcomes.extend(self.play(step));
                }
                rules.iter().for_each(|rules| self.put_in_force(rules));
                return outcomes;
            }
            Event::FreeLimits => {}
            Event::Sweep => self.sweep(*now),
            Event::Snapshot => self.write_snapshot(*now),
            Event::Restart(start) => {
                let released = self.release_all(*now).into_iter();
                let outcomes = released.chain(self.end_queue(*now, *now)).collect();
                self.write_snapshot(*now);
                self.restart(*start);
                return outcomes;
            }
            Event::Crash(start) => self.restart(*start),
        }
        Vec::new()
    }

    fn put_in_force(&mut self, rules: &Rules) {
        self.rules = rules.clone();
        self.drop_ended_bans();
    }

    /// A ban that is not in the rules has ended, and rules that have it again begin without denials.
    fn drop_ended_bans(&mut self) {
        let before = self.counters.len();
        let rules = &self.rules.0;
        self.counters.retain(|(rule, _, of), _| match of {
            Of::Ban(limit) => rules[*rule].limits[*limit].ban.is_some(),
            Of::Rule(_) | Of::Request | Of::Window(_) => true,
        });
        self.is_changed |= self.counters.len() < before;
    }

    /// Remaining wait of each queued request, in the order of arrival.
    pub fn remaining_waits(&self, now: u64) -> Vec<u64> {
        self.queue.remaining_waits(now)
    }

    /// Number of counters, including expired counters that were not swept.
    pub fn counters(&self) -> usize {
        self.counters.len()
    }

    /// Drops expired counters; expiry is compared in whole seconds.
    fn sweep(&mut self, now: u64) {
        let before = self.counters.len();
        self.counters.retain(|_, oracle| oracle.expires().div_ceil(1_000_000_000) > now / 1_000_000_000);
        self.is_changed |= self.counters.len() < before;
    }

    fn write_snapshot(&mut self, at: u64) {
        if self.is_changed {
            let (counters, labels) = (self.counters.clone(), self.labels.clone());
            self.snapshot = Snapshot { at, counters, labels };
            self.is_changed = false;
        }
    }

    /// Starts from the snapshot; counters that have expired, to the nanosecond, are left out.
    fn restart(&mut self, start: u64) {
        let Snapshot { at, mut counters, labels } = self.snapshot.clone();
        self.labels = labels;
        counters.values_mut().for_each(|oracle| oracle.restart(at, start));
        counters.retain(|_, oracle| oracle.expires() > start);
        self.counters = counters;
        self.queue = NaiveQueue::new(self.settings.queued_max);
        // Counters that were moved to the present are written again; everything is written if nothing was written yet.
        self.is_changed = at > start || at == 0;
        self.drop_ended_bans();
    }

    /// Decides a request; its caller waits at most `max_wait` nanoseconds.
    pub fn decide(&mut self, descriptors: &[DescriptorHits], max_wait: u64, now: u64) -> Outcome {
        // If counters are scarce, the result depends on which expired counters are still stored.
        if self.settings.may_fill_up() {
            self.sweep(now);
        }
        let mut charges = self.charges(descriptors, now);
        let counters: Vec<Key> =
            BTreeMap::from_iter(charges.iter().map(|charge| (charge.key, ()))).into_keys().collect();
        self.convert(&charges, now);
        for &key in &counters {
            self.evaluate(&mut charges, key, now);
        }
        let tries_queue = max_wait > 0 && self.verdict(descriptors, &charges);
        let max_wait = max_wait.min(self.queue.max_wait(&counters, now));
        if tries_queue {
            counters.iter().for_each(|&key| self.try_queue(&mut charges, key, max_wait, now));
        }
        let (is_over, has_room) = self.make_room(descriptors, &mut charges, &counters, now);
        counters.iter().for_each(|&key| self.charge_counter(&charges, key, is_over, has_room, now));
        if tries_queue && is_over {
            self.report_wait_for_queue(&mut charges, max_wait, now);
        } else if tries_queue {
            self.queue.push(self.queued_request(descriptors, &charges, &counters, now));
            return Outcome::Queued;
        }
        self.outcome(is_over, descriptors, &charges, now)
    }

    /// The verdict, and whether there is room for new counters. Without room, descriptors that need a new counter may be over.
    fn make_room(
        &mut self,
        descriptors: &[DescriptorHits],
        charges: &mut [Charge],
        counters: &[Key],
        now: u64,
    ) -> (bool, bool) {
        let is_over = self.verdict(descriptors, charges);
        let has_room = |naive: &Self| {
            let is_new = |key: &&Key| {
                !naive.counters.contains_key(*key)
                    && !is_of_ban(**key)
                    && naive.taken(charges, **key, is_over, now) > 0
            };
            let new = counters.iter().filter(|key| is_new(key)).count();
            // A peek reports what a hit would get.
            let is_asked = |charge: &Charge| {
                matches!(charge.hits, Hits::Peek) && !naive.counters.contains_key(&charge.key)
            };
            let asked = usize::from(new == 0 && charges.iter().any(is_asked));
            naive.counters.len() + new + asked <= naive.settings.counters_max
        };
        if !has_room(self) {
            // A counter that was just converted may count nothing any more: its room is then free.
            self.sweep(now);
        }
        let has_room = has_room(self);
        if !has_room && self.settings.denies_when_full {
            for charge in charges
                .iter_mut()
                .filter(|charge| (takes(charge.hits) > 0 || matches!(charge.hits, Hits::Peek)) && charge.fits)
            {
                charge.has_no_room = !self.counters.contains_key(&charge.key);
                if charge.has_no_room && charge.remaining_in_order.is_some() {
                    charge.remaining_in_order = Some(0);
                }
            }
        }
        (self.verdict(descriptors, charges), has_room)
    }

    /// The hits that are added to a counter: the hits that count, within the bound on debts.
    fn taken(&self, charges: &[Charge], key: Key, is_over: bool, now: u64) -> u64 {
        let [given, taken] = [gives, takes].map(|hits| self.counted(charges, key, is_over, hits));
        let charge = charges.iter().find(|charge| charge.key == key).expect("counters are those of charges");
        let mut oracle = self.oracle(charges, key, now);
        oracle.give_back(given, now);
        charge.within_debt(&oracle, taken, now)
    }

    /// Applies the hits that count to one counter, which has the numbers that the rule declares, whichever apply now.
    fn charge_counter(&mut self, charges: &[Charge], key: Key, is_over: bool, has_room: bool, now: u64) {
        let given = self.counted(charges, key, is_over, gives);
        let taken = self.taken(charges, key, is_over, now);
        let is_there = self.counters.contains_key(&key);
        if is_there && given + taken > 0 || taken > 0 && has_room {
            let mut oracle = self.oracle(charges, key, now);
            self.queue.move_up(0, key, given.min(oracle.used(now)));
            oracle.give_back(given, now);
            oracle.take(taken, now);
            let charge =
                charges.iter().find(|charge| charge.key == key).expect("counters are those of charges");
            oracle.change_rule(charge.declared.clone(), now);
            if self.counters.insert(key, oracle).is_none() {
                self.labels.remove(&key);
            }
            self.convert(charges, now);
            self.is_changed = true;
        }
    }

    /// Converts the counters that were counted under another limit, once: hits used before count as taken now. The limit of a counter is
    /// the limit of its first charge.
    pub fn convert(&mut self, charges: &[Charge], now: u64) {
        for (index, charge) in charges.iter().enumerate() {
            let Charge { key, declared, label, .. } = charge;
            if charges[..index].iter().any(|former| former.key == *key) {
                continue;
            }
            let most = self.most_converted(charge);
            let Some(oracle) = self.counters.get_mut(key) else { continue };
            oracle.change_rule_within(most, declared.clone(), now);
            let former = self.labels.insert(*key, label.clone());
            self.is_changed |= former.is_some_and(|former| former != *label);
        }
    }
}
