//! The decision, as naively as it can be said: an oracle for every counter, and every rule of charging in one place.

use crate::{
    oracle::{Model, Oracle},
    rules::{Queue, Rules},
    traffic::{Step, What},
    waits::Waits,
    world::Settings,
};
use std::collections::BTreeMap;

/// What one descriptor asks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Asked {
    /// Number of the rule; one more than there are is none.
    pub rule: usize,
    /// Number of the value.
    pub value: usize,
    pub hits: Hits,
    /// A limit of the request's own, per second.
    pub own: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Hits {
    Take(u64),
    Peek,
    GiveBack(u64),
}

/// What becomes of a request.
#[derive(Clone, PartialEq, Debug)]
pub enum Told {
    /// It waits for its turn.
    Held,
    /// Whether it is over, and what each descriptor is told.
    Answer(bool, Vec<Status>),
}

/// What is to be answered to one descriptor.
#[derive(Clone, PartialEq, Debug)]
pub struct Status {
    pub is_over: bool,
    /// Of the tightest limit; none if nothing limits the descriptor.
    pub limit: Option<Tightest>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Tightest {
    pub remaining: u64,
    pub reset: Wait,
}

/// How long to wait; the later the larger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wait {
    /// Until there is room, and nobody knows when.
    Unknown,
    /// In nanoseconds.
    After(u64),
    Never,
}

impl Wait {
    pub fn known(self) -> Option<u64> {
        if let Self::After(nanos) = self { Some(nanos) } else { None }
    }
}

/// Settings, rules, counters, who waits, and what the snapshot has of the counters.
#[derive(Clone)]
pub struct Naive {
    settings: Settings,
    rules: Rules,
    pub counters: BTreeMap<Key, Oracle>,
    /// The limit under which each counter was counted last; none for limits of requests, which differ in number only.
    labels: BTreeMap<Key, Option<Label>>,
    pub waits: Waits,
    snapshot: Snapshot,
    /// Whether there is anything to write: what did not change is not dated anew.
    pub is_changed: bool,
}

/// Counters, and when they were written.
#[derive(Clone, Default)]
struct Snapshot {
    at: u64,
    counters: BTreeMap<Key, Oracle>,
    labels: BTreeMap<Key, Option<Label>>,
}

/// A limit, as far as it makes a counter another one.
#[derive(Clone)]
struct Label {
    model: Model,
    queue: Option<Queue>,
}

impl PartialEq for Label {
    fn eq(&self, other: &Self) -> bool {
        let limit = |label: &Self| Oracle::new(label.model.clone()).limit();
        self.model.counts_as(&other.model) && limit(self) == limit(other) && self.queue == other.queue
    }
}

/// Rule, value, and the limit: of the rule, or the request's own.
pub type Key = (usize, usize, Option<usize>);

/// One descriptor's hits for one counter.
pub struct Charge {
    pub descriptor: usize,
    pub key: Key,
    requests: u64,
    model: Model,
    pub hits: Hits,
    pub always: bool,
    pub fits: bool,
    /// Whether there is no room for its counter.
    has_no_room: bool,
    /// Of one that is over: when it has a place in the queue, if it would have waited for that.
    pub until_place: Option<Wait>,
    /// Whether it may wait. Not in a shadow.
    pub queue: Option<Queue>,
    label: Option<Label>,
}

impl Naive {
    pub fn new(settings: Settings, rules: Rules) -> Self {
        let waits = Waits::new(settings.waiting_max);
        let (counters, labels) = (BTreeMap::new(), BTreeMap::new());
        Self { settings, rules, counters, labels, waits, snapshot: Snapshot::default(), is_changed: true }
    }

    /// Lets a step happen; what those are told who learn something by it, in the order of coming.
    pub fn play(&mut self, Step { now, what }: &Step) -> Vec<Told> {
        match what {
            What::Ask { asked, patience } => return vec![self.ask(asked, *patience, *now)],
            What::GiveUp(number) => {
                if let Some(index) = number.checked_rem(self.waits.len()) {
                    self.give_up(index, *now);
                }
            }
            What::Answer => return self.answer_all_due(*now),
            What::End(after) => return self.end(now + after, *now),
            What::ChangeRules(rules) => self.rules = rules.clone(),
            What::Sweep => self.sweep(*now),
            What::Snapshot => self.write_snapshot(*now),
            What::Restart(start) => {
                let answers = self.answer_all_due(*now).into_iter();
                let told = answers.chain(self.end(*now, *now)).collect();
                self.write_snapshot(*now);
                self.restart(*start);
                return told;
            }
            What::Crash(start) => self.restart(*start),
        }
        Vec::new()
    }

    /// How long each of those who wait still has to, in the order of coming.
    pub fn waits(&self, now: u64) -> Vec<u64> {
        self.waits.waits(now)
    }

    /// Counters that there are, expired ones that nobody swept too.
    pub fn counters(&self) -> usize {
        self.counters.len()
    }

    /// Expired counters go, by whole seconds.
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

    /// What was written, as a process finds it that starts now; expired counters are left out, to the nanosecond.
    fn restart(&mut self, start: u64) {
        let Snapshot { at, mut counters, labels } = self.snapshot.clone();
        self.labels = labels;
        counters.values_mut().for_each(|oracle| oracle.restart(at, start));
        counters.retain(|_, oracle| oracle.expires() > start);
        self.counters = counters;
        self.waits = Waits::new(self.settings.waiting_max);
        // What was moved to now is to be written as it is now; and so is what there is where nothing was written yet.
        self.is_changed = at > start || at == 0;
    }

    /// Decides for a caller that waits no longer than so many nanoseconds.
    pub fn ask(&mut self, asked: &[Asked], patience: u64, now: u64) -> Told {
        // With no room to spare, it matters which of the expired counters are still there.
        if self.settings.may_fill_up() {
            self.sweep(now);
        }
        let mut charges = self.charges(asked);
        let counters: Vec<Key> =
            BTreeMap::from_iter(charges.iter().map(|charge| (charge.key, ()))).into_keys().collect();
        self.convert(&charges, now);
        for &key in &counters {
            self.evaluate(&mut charges, key, now);
        }
        let would_wait = patience > 0 && self.verdict(asked, &charges);
        let patience = patience.min(self.waits.patience(now));
        if would_wait {
            counters.iter().for_each(|&key| self.let_wait(&mut charges, key, patience, now));
        }
        let (is_over, has_room) = self.make_room(asked, &mut charges, &counters, now);
        counters.iter().for_each(|&key| self.settle(&charges, key, is_over, has_room, now));
        if would_wait && is_over {
            self.tell_until_place(&mut charges, patience, now);
        } else if would_wait {
            self.waits.enter(self.waiter(asked, &charges, &counters, now));
            return Told::Held;
        }
        self.answer(is_over, asked, &charges, now)
    }

    /// The verdict, and whether there is room for new counters. Without, descriptors that need one may be over.
    fn make_room(
        &mut self,
        asked: &[Asked],
        charges: &mut [Charge],
        counters: &[Key],
        now: u64,
    ) -> (bool, bool) {
        let is_over = self.verdict(asked, charges);
        let has_room = |naive: &Self| {
            let is_new =
                |key| !naive.counters.contains_key(key) && naive.counted(charges, *key, is_over, takes) > 0;
            let new = counters.iter().filter(|key| is_new(key)).count();
            naive.counters.len() + new <= naive.settings.counters_max
        };
        if !has_room(self) {
            // A counter that was converted just now may count nothing any more: then its room is used again.
            self.sweep(now);
        }
        let has_room = has_room(self);
        if !has_room && self.settings.denies_when_full {
            for charge in charges.iter_mut().filter(|charge| takes(charge.hits) > 0 && charge.fits) {
                charge.has_no_room = !self.counters.contains_key(&charge.key);
            }
        }
        (self.verdict(asked, charges), has_room)
    }

    /// Counts what is to be counted of a counter.
    fn settle(&mut self, charges: &[Charge], key: Key, is_over: bool, has_room: bool, now: u64) {
        let [given, taken] = [gives, takes].map(|hits| self.counted(charges, key, is_over, hits));
        let is_there = self.counters.contains_key(&key);
        if is_there && given + taken > 0 || taken > 0 && has_room {
            let mut oracle = self.oracle(charges, key, now);
            self.waits.move_up(0, key, given.min(oracle.used(now)));
            oracle.give_back(given, now);
            oracle.take(taken, now);
            self.counters.insert(key, oracle);
            self.convert(charges, now);
            self.is_changed = true;
        }
    }

    /// Converts the counters that were counted under another limit, once and for all: what was used counts as taken now.
    pub fn convert(&mut self, charges: &[Charge], now: u64) {
        for Charge { key, model, label, .. } in charges {
            let Some(oracle) = self.counters.get_mut(key) else { continue };
            oracle.change_rule(model.clone(), now);
            let former = self.labels.insert(*key, label.clone());
            self.is_changed |= former.is_some_and(|former| former != *label);
        }
    }

    pub fn answer(&self, is_over: bool, asked: &[Asked], charges: &[Charge], now: u64) -> Told {
        let statuses = (0..asked.len()).map(|index| self.status(asked, charges, index, now));
        Told::Answer(is_over, statuses.collect())
    }

    /// Whether each charge of a counter fits.
    fn evaluate(&self, charges: &mut [Charge], key: Key, now: u64) {
        let [given, taken] = [gives, takes].map(|hits| sum(charges, key, |_| true, hits));
        for charge in charges.iter_mut().filter(|charge| charge.key == key) {
            let mut oracle = self.oracle_of(charge, now);
            oracle.give_back(given, now);
            charge.fits = match charge.hits {
                Hits::Take(_) => taken <= oracle.remaining(now),
                // There, a check passes at exactly the limit.
                Hits::Peek if self.settings.is_reference => oracle.used(now) <= charge.requests,
                Hits::Peek => oracle.remaining(now) > 0,
                Hits::GiveBack(_) => true,
            };
        }
    }

    /// Hits of a counter that count, given the verdict.
    pub fn counted(&self, charges: &[Charge], key: Key, is_over: bool, hits: fn(Hits) -> u64) -> u64 {
        let counts = |charge: &Charge| charge.always || !is_over && !is_over_at(charges, charge.descriptor);
        sum(charges, key, counts, hits)
    }

    pub fn charges(&self, asked: &[Asked]) -> Vec<Charge> {
        let mut charges = Vec::new();
        for (descriptor, &Asked { rule, value, hits, own }) in asked.iter().enumerate() {
            let mut charge = |limit, requests, model, always, queue, label| {
                let (key, fits, has_no_room, until_place) = ((rule, value, limit), true, false, None);
                charges.push(Charge {
                    descriptor,
                    key,
                    requests,
                    model,
                    hits,
                    always,
                    fits,
                    has_no_room,
                    until_place,
                    queue,
                    label,
                });
            };
            if let Some(requests) = own {
                let (limit, window) = (requests.into(), 1_000_000_000);
                let model = match self.settings.is_reference {
                    true => Model::FixedWindow { limit, window },
                    false => Model::SlidingWindow { limit, window, precision: 1 },
                };
                charge(None, limit, model, self.settings.is_reference, None, None);
            } else if let Some(rule) = self.rules.0.get(rule) {
                for (index, limit) in rule.limits.iter().enumerate() {
                    let queue = limit.queue.filter(|_| !rule.shadow);
                    let label = Label { model: limit.model.clone(), queue: limit.queue };
                    charge(
                        Some(index),
                        limit.requests,
                        limit.model.clone(),
                        limit.always,
                        queue,
                        Some(label),
                    );
                }
            }
        }
        charges
    }

    /// The counter of a key as the first limit of its charges reads it.
    pub fn oracle(&self, charges: &[Charge], key: Key, now: u64) -> Oracle {
        let charge = charges.iter().find(|charge| charge.key == key).expect("counters are those of charges");
        self.oracle_of(charge, now)
    }

    /// The counter of a charge as its limit reads it. Charges of one counter have one limit, except that limits of
    /// requests differ in number.
    fn oracle_of(&self, charge: &Charge, now: u64) -> Oracle {
        let mut oracle = match self.counters.get(&charge.key) {
            Some(oracle) => oracle.clone(),
            None => Oracle::new(charge.model.clone()),
        };
        oracle.change_rule(charge.model.clone(), now);
        oracle
    }

    /// A shadow never denies; quotas deny only together.
    fn verdict(&self, asked: &[Asked], charges: &[Charge]) -> bool {
        let rule = |index: usize| match asked[index] {
            Asked { own: None, rule, .. } => self.rules.0.get(rule),
            Asked { own: Some(_), .. } => None,
        };
        let is_over =
            |index: usize| is_over_at(charges, index) && !rule(index).is_some_and(|rule| rule.shadow);
        let (quotas, others): (Vec<usize>, Vec<usize>) =
            (0..asked.len()).partition(|&index| rule(index).is_some_and(|rule| rule.quota));
        others.iter().any(|&index| is_over(index))
            || !quotas.is_empty() && quotas.iter().all(|&index| is_over(index))
    }

    /// The first of the tightest limits: denials before admissions, then the longest wait, or the least that remains.
    fn status(&self, asked: &[Asked], charges: &[Charge], descriptor: usize, now: u64) -> Status {
        let Asked { rule, own, .. } = asked[descriptor];
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
                // There, a reset is always the window's end.
                Some(nanos) if self.settings.is_reference => {
                    Tightest { remaining: oracle.remaining(now), reset: Wait::After(nanos) }
                }
                _ if is_over => {
                    let until_admits =
                        || oracle.until_admits(given, wanted, now).map_or(Wait::Never, Wait::After);
                    let reset = charge.until_place.unwrap_or_else(until_admits);
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

/// Whether a limit of the descriptor does not admit, whatever shadow or quota make of it.
pub fn is_over_at(charges: &[Charge], descriptor: usize) -> bool {
    charges.iter().any(|charge| charge.descriptor == descriptor && charge.is_over())
}

/// The sum over those charges of the counter that count.
pub fn sum(charges: &[Charge], key: Key, counts: impl Fn(&Charge) -> bool, hits: fn(Hits) -> u64) -> u64 {
    let of_key = charges.iter().filter(|charge| charge.key == key && counts(charge));
    of_key.map(|charge| hits(charge.hits)).sum()
}

pub fn takes(hits: Hits) -> u64 {
    if let Hits::Take(hits) = hits { hits } else { 0 }
}

pub fn gives(hits: Hits) -> u64 {
    if let Hits::GiveBack(hits) = hits { hits } else { 0 }
}
