//! A naive limiter: one oracle for each counter, and all rules of charging in one file.

use crate::{
    naive_queue::NaiveQueue,
    oracle::{Model, Oracle},
    outcome::{DescriptorHits, Hits, Outcome, Status, Tightest, Wait, gives, takes},
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
    /// The limit under which each counter was counted last; none for limits sent with requests, which differ in number
    /// only.
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
        let limit = |label: &Self| Oracle::new(label.model.clone()).limit();
        self.model.counts_as(&other.model) && limit(self) == limit(other) && self.queue == other.queue
    }
}

/// Rule, value, and which counter of these.
pub type Key = (usize, usize, Of);

/// The limit that a counter is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Of {
    /// One of those of the rule.
    Rule(usize),
    /// That sent with the request.
    Request,
    /// In the reference: the limit of the rule, or of the request, with a window of so many nanoseconds.
    Window(u64),
}

/// Lengths of windows that the reference has too.
const UNITS: [u64; 3] = [1_000_000_000, 60_000_000_000, 3_600_000_000_000];

/// One descriptor's hits for one counter.
pub struct Charge {
    pub descriptor: usize,
    pub key: Key,
    requests: u64,
    model: Model,
    pub hits: Hits,
    pub always: bool,
    pub fits: bool,
    /// Whether it needs a new counter and there is no room for one.
    has_no_room: bool,
    /// Of limits that the reference has too: hits that remain after it, in the order of the request.
    remaining_in_order: Option<u64>,
    /// If it is over its limit and could have been queued: time until the queue has room for it.
    pub until_queueable: Option<Wait>,
    /// Bounds of its queue, if it may be queued. Shadow limits do not queue.
    pub queue: Option<QueueLimits>,
    label: Option<Label>,
}

impl Naive {
    pub fn new(settings: Settings, rules: Rules) -> Self {
        let queue = NaiveQueue::new(settings.queued_max);
        let (counters, labels) = (BTreeMap::new(), BTreeMap::new());
        Self { settings, rules, counters, labels, queue, snapshot: Snapshot::default(), is_changed: true }
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
            Event::ChangeRules(rules) => self.rules = rules.clone(),
            Event::Reload { rules, meanwhile } => {
                let mut outcomes = Vec::new();
                for step in meanwhile {
                    if let (Event::Crash(_), Some(rules)) = (&step.event, rules) {
                        self.rules = rules.clone();
                    }
                    outcomes.extend(self.play(step));
                }
                self.rules = rules.clone().unwrap_or_else(|| self.rules.clone());
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

    /// Remaining wait of each queued request, in the order of arrival.
    pub fn remaining_waits(&self, now: u64) -> Vec<u64> {
        self.queue.remaining_waits(now)
    }

    /// Number of counters, including expired ones that were not swept.
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
        // Counters that were moved to the present are written again, and so is everything if nothing was written yet.
        self.is_changed = at > start || at == 0;
    }

    /// Decides a request; its caller waits at most `max_wait` nanoseconds.
    pub fn decide(&mut self, descriptors: &[DescriptorHits], max_wait: u64, now: u64) -> Outcome {
        // If counters are scarce, the result depends on which expired ones are still stored.
        if self.settings.may_fill_up() {
            self.sweep(now);
        }
        let mut charges = self.charges(descriptors);
        let counters: Vec<Key> =
            BTreeMap::from_iter(charges.iter().map(|charge| (charge.key, ()))).into_keys().collect();
        self.convert(&charges, now);
        for &key in &counters {
            self.evaluate(&mut charges, key, now);
        }
        let tries_queue = max_wait > 0 && self.verdict(descriptors, &charges);
        let max_wait = max_wait.min(self.queue.max_wait(now));
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

    /// The verdict, and whether there is room for new counters. Without room, descriptors that need one may be over.
    fn make_room(
        &mut self,
        descriptors: &[DescriptorHits],
        charges: &mut [Charge],
        counters: &[Key],
        now: u64,
    ) -> (bool, bool) {
        let is_over = self.verdict(descriptors, charges);
        let has_room = |naive: &Self| {
            let is_new =
                |key| !naive.counters.contains_key(key) && naive.counted(charges, *key, is_over, takes) > 0;
            let new = counters.iter().filter(|key| is_new(key)).count();
            naive.counters.len() + new <= naive.settings.counters_max
        };
        if !has_room(self) {
            // A counter that was just converted may count nothing any more: its room is then free.
            self.sweep(now);
        }
        let has_room = has_room(self);
        if !has_room && self.settings.denies_when_full {
            for charge in charges.iter_mut().filter(|charge| takes(charge.hits) > 0 && charge.fits) {
                charge.has_no_room = !self.counters.contains_key(&charge.key);
                if charge.has_no_room && charge.remaining_in_order.is_some() {
                    charge.remaining_in_order = Some(0);
                }
            }
        }
        (self.verdict(descriptors, charges), has_room)
    }

    /// Applies the hits that count to one counter.
    fn charge_counter(&mut self, charges: &[Charge], key: Key, is_over: bool, has_room: bool, now: u64) {
        let [given, taken] = [gives, takes].map(|hits| self.counted(charges, key, is_over, hits));
        let is_there = self.counters.contains_key(&key);
        if is_there && given + taken > 0 || taken > 0 && has_room {
            let mut oracle = self.oracle(charges, key, now);
            self.queue.move_up(0, key, given.min(oracle.used(now)));
            oracle.give_back(given, now);
            oracle.take(taken, now);
            self.counters.insert(key, oracle);
            self.convert(charges, now);
            self.is_changed = true;
        }
    }

    /// Converts the counters that were counted under another limit, once: hits used before count as taken now. The limit of
    /// a counter is that of its first charge.
    pub fn convert(&mut self, charges: &[Charge], now: u64) {
        for (index, Charge { key, model, label, .. }) in charges.iter().enumerate() {
            if charges[..index].iter().any(|former| former.key == *key) {
                continue;
            }
            let Some(oracle) = self.counters.get_mut(key) else { continue };
            oracle.change_rule(model.clone(), now);
            let former = self.labels.insert(*key, label.clone());
            self.is_changed |= former.is_some_and(|former| former != *label);
        }
    }

    pub fn outcome(
        &self,
        is_over: bool,
        descriptors: &[DescriptorHits],
        charges: &[Charge],
        now: u64,
    ) -> Outcome {
        let statuses = (0..descriptors.len()).map(|index| self.status(descriptors, charges, index, now));
        Outcome::Decided(is_over, statuses.collect())
    }

    /// Whether each charge of a counter fits.
    fn evaluate(&self, charges: &mut [Charge], key: Key, now: u64) {
        if let Of::Window(_) = key.2 {
            return self.evaluate_in_order(charges, key, now);
        }
        let [given, taken] = [gives, takes].map(|hits| sum(charges, key, |_| true, hits));
        for charge in charges.iter_mut().filter(|charge| charge.key == key) {
            let mut oracle = self.oracle_of(charge, now);
            oracle.give_back(given, now);
            charge.fits = match charge.hits {
                Hits::Take(_) => taken <= oracle.remaining(now),
                // In the reference, a peek passes at exactly the limit.
                Hits::Peek if self.settings.is_reference => oracle.used(now) <= charge.requests,
                Hits::Peek => oracle.remaining(now) > 0,
                Hits::GiveBack(_) => true,
            };
        }
    }

    /// As the reference does: each charge finds the counter as those before it left it.
    fn evaluate_in_order(&self, charges: &mut [Charge], key: Key, now: u64) {
        let mut used = self.oracle(charges, key, now).used(now);
        for charge in charges.iter_mut().filter(|charge| charge.key == key) {
            used = (used + takes(charge.hits)).saturating_sub(gives(charge.hits));
            charge.fits = used <= charge.requests || gives(charge.hits) > 0;
            charge.remaining_in_order = Some(charge.requests.saturating_sub(used));
        }
    }

    /// Sum of the hits of a counter that count under this verdict.
    pub fn counted(&self, charges: &[Charge], key: Key, is_over: bool, hits: fn(Hits) -> u64) -> u64 {
        let counts = |charge: &Charge| charge.always || !is_over && !is_over_at(charges, charge.descriptor);
        sum(charges, key, counts, hits)
    }

    pub fn charges(&self, descriptors: &[DescriptorHits]) -> Vec<Charge> {
        let mut charges = Vec::new();
        for (descriptor, &DescriptorHits { rule, value, hits, own }) in descriptors.iter().enumerate() {
            let mut charge = |of, requests, model, always, queue, label| {
                charges.push(Charge {
                    descriptor,
                    key: (rule, value, of),
                    requests,
                    model,
                    hits,
                    always,
                    fits: true,
                    has_no_room: false,
                    remaining_in_order: None,
                    until_queueable: None,
                    queue,
                    label,
                });
            };
            if let Some(requests) = own {
                let (limit, window) = (requests.into(), 1_000_000_000);
                let (of, model) = match self.settings.is_reference {
                    true => (Of::Window(window), Model::FixedWindow { limit, window }),
                    false => (Of::Request, Model::SlidingWindow { limit, window, precision: 1 }),
                };
                charge(of, limit, model, self.settings.is_reference, None, None);
            } else if let Some(rule) = self.rules.0.get(rule) {
                let mut windows = Vec::new();
                for (index, limit) in rule.limits.iter().enumerate() {
                    let of = match limit.model {
                        // One limit of each window has the counter that the reference would have.
                        Model::FixedWindow { window, .. }
                            if self.settings.is_reference
                                && limit.always
                                && UNITS.contains(&window)
                                && !windows.contains(&window) =>
                        {
                            windows.push(window);
                            Of::Window(window)
                        }
                        _ => Of::Rule(index),
                    };
                    let queue = limit.queue.filter(|_| !rule.shadow);
                    let label = Label { model: limit.model.clone(), queue: limit.queue };
                    charge(of, limit.requests, limit.model.clone(), limit.always, queue, Some(label));
                }
            }
        }
        charges
    }

    /// The counter of a key, read under the limit of the first of its charges.
    pub fn oracle(&self, charges: &[Charge], key: Key, now: u64) -> Oracle {
        let charge = charges.iter().find(|charge| charge.key == key).expect("counters are those of charges");
        self.oracle_of(charge, now)
    }

    /// The counter of a charge, read under its limit. Charges of one counter have one limit, except that limits sent
    /// with requests may differ in number.
    fn oracle_of(&self, charge: &Charge, now: u64) -> Oracle {
        let mut oracle = match self.counters.get(&charge.key) {
            Some(oracle) => oracle.clone(),
            None => Oracle::new(charge.model.clone()),
        };
        oracle.change_rule(charge.model.clone(), now);
        oracle
    }

    /// Shadow rules never deny; quota rules deny only if all of them are over.
    fn verdict(&self, descriptors: &[DescriptorHits], charges: &[Charge]) -> bool {
        let rule = |index: usize| match descriptors[index] {
            DescriptorHits { own: None, rule, .. } => self.rules.0.get(rule),
            DescriptorHits { own: Some(_), .. } => None,
        };
        let is_over =
            |index: usize| is_over_at(charges, index) && !rule(index).is_some_and(|rule| rule.shadow);
        let (quotas, others): (Vec<usize>, Vec<usize>) =
            (0..descriptors.len()).partition(|&index| rule(index).is_some_and(|rule| rule.quota));
        others.iter().any(|&index| is_over(index))
            || !quotas.is_empty() && quotas.iter().all(|&index| is_over(index))
    }

    /// The first of the tightest limits: denials before admissions, then the longest wait, or the least that remains.
    fn status(
        &self,
        descriptors: &[DescriptorHits],
        charges: &[Charge],
        descriptor: usize,
        now: u64,
    ) -> Status {
        let DescriptorHits { rule, own, .. } = descriptors[descriptor];
        let is_shadow = own.is_none() && self.rules.0.get(rule).is_some_and(|rule| rule.shadow);
        let mut status = Status { is_over: false, limit: None };
        for charge in charges.iter().filter(|charge| charge.descriptor == descriptor) {
            let oracle = self.oracle_of(charge, now);
            let given = sum(charges, charge.key, |_| true, gives);
            let is_over = charge.is_over() && !is_shadow;
            let wanted = match charge.hits {
                Hits::Peek => 1,
                Hits::Take(_) | Hits::GiveBack(_) => sum(charges, charge.key, |_| true, takes),
            };
            let next = match oracle.until_window_ends(now) {
                _ if is_over && charge.has_no_room => Tightest { remaining: 0, reset: Wait::Unknown },
                // In the reference, a reset is always the end of the window.
                Some(nanos) if self.settings.is_reference => {
                    let remaining = charge.remaining_in_order.unwrap_or_else(|| oracle.remaining(now));
                    Tightest { remaining, reset: Wait::After(nanos) }
                }
                _ if is_over => {
                    let until_admits =
                        || oracle.until_admits(given, wanted, now).map_or(Wait::Never, Wait::After);
                    let reset = charge.until_queueable.unwrap_or_else(until_admits);
                    Tightest { remaining: oracle.remaining(now), reset }
                }
                _ => {
                    Tightest { remaining: oracle.remaining(now), reset: Wait::After(oracle.until_full(now)) }
                }
            };
            let is_tighter = match &status.limit {
                None => true,
                Some(_) if is_over != status.is_over => is_over,
                Some(tightest) if is_over => next.reset > tightest.reset,
                Some(tightest) => next.remaining < tightest.remaining,
            };
            if is_tighter {
                status = Status { is_over, limit: Some(next) };
            }
        }
        status
    }
}

impl Charge {
    fn is_over(&self) -> bool {
        !self.fits || self.has_no_room
    }
}

/// Whether a limit of the descriptor does not admit its hits, regardless of shadow and quota modes.
pub fn is_over_at(charges: &[Charge], descriptor: usize) -> bool {
    charges.iter().any(|charge| charge.descriptor == descriptor && charge.is_over())
}

/// Sum of the hits over the charges of the counter for which `counts` holds.
pub fn sum(charges: &[Charge], key: Key, counts: impl Fn(&Charge) -> bool, hits: fn(Hits) -> u64) -> u64 {
    let of_key = charges.iter().filter(|charge| charge.key == key && counts(charge));
    of_key.map(|charge| hits(charge.hits)).sum()
}
