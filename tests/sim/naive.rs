//! The decision, as naively as it can be said: an oracle for every counter, and every rule of charging in one place.

use crate::{
    oracle::{Model, Oracle},
    rules::Rules,
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
    /// In nanoseconds; none for never.
    pub reset: Option<u64>,
}

/// Rules, counters, and nothing else.
pub struct Naive {
    rules: Rules,
    counters: BTreeMap<Key, Oracle>,
}

/// Rule, value, and the limit: of the rule, or the request's own.
type Key = (usize, usize, Option<usize>);

/// One descriptor's hits for one counter.
struct Charge {
    descriptor: usize,
    key: Key,
    model: Model,
    hits: Hits,
    always: bool,
    fits: bool,
}

impl Naive {
    pub fn new(rules: Rules) -> Self {
        Self { rules, counters: BTreeMap::new() }
    }

    pub fn change_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Whether the request is over, and what each descriptor is told.
    pub fn decide(&mut self, asked: &[Asked], now: u64) -> (bool, Vec<Status>) {
        let mut charges = self.charges(asked);
        let counters: Vec<Key> =
            BTreeMap::from_iter(charges.iter().map(|charge| (charge.key, ()))).into_keys().collect();
        for &key in &counters {
            let taken = sum(&charges, key, |_| true, takes);
            let mut oracle = self.oracle(&charges, key, now);
            oracle.give_back(sum(&charges, key, |_| true, gives), now);
            for charge in charges.iter_mut().filter(|charge| charge.key == key) {
                charge.fits = match charge.hits {
                    Hits::Take(_) => taken <= oracle.remaining(now),
                    Hits::Peek => oracle.remaining(now) > 0,
                    Hits::GiveBack(_) => true,
                };
            }
        }
        let over: Vec<bool> = (0..asked.len())
            .map(|index| charges.iter().any(|charge| charge.descriptor == index && !charge.fits))
            .collect();
        let is_over = self.verdict(asked, &over);
        for &key in &counters {
            let counts = |charge: &Charge| charge.always || !is_over && !over[charge.descriptor];
            let (given, taken) = (sum(&charges, key, counts, gives), sum(&charges, key, counts, takes));
            if given > 0 || taken > 0 {
                let mut oracle = self.oracle(&charges, key, now);
                oracle.give_back(given, now);
                oracle.take(taken, now);
                self.counters.insert(key, oracle);
            }
        }
        let statuses = (0..asked.len()).map(|index| self.status(asked, &charges, index, now)).collect();
        (is_over, statuses)
    }

    fn charges(&self, asked: &[Asked]) -> Vec<Charge> {
        let mut charges = Vec::new();
        for (descriptor, &Asked { rule, value, hits, own }) in asked.iter().enumerate() {
            let mut charge = |limit, model, always| {
                charges.push(Charge {
                    descriptor,
                    key: (rule, value, limit),
                    model,
                    hits,
                    always,
                    fits: true,
                });
            };
            if let Some(requests) = own {
                let model =
                    Model::SlidingWindow { limit: requests.into(), window: 1_000_000_000, precision: 1 };
                charge(None, model, false);
            } else if let Some(rule) = self.rules.0.get(rule) {
                for (index, limit) in rule.limits.iter().enumerate() {
                    charge(Some(index), limit.model.clone(), limit.always);
                }
            }
        }
        charges
    }

    /// The counter as its limit of now reads it. Charges of one counter have one limit, but for requests' own: of those
    /// the first.
    fn oracle(&self, charges: &[Charge], key: Key, now: u64) -> Oracle {
        let charge = charges.iter().find(|charge| charge.key == key).expect("counters are those of charges");
        let mut oracle = match self.counters.get(&key) {
            Some(oracle) => oracle.clone(),
            None => Oracle::new(charge.model.clone()),
        };
        oracle.change_rule(charge.model.clone(), now);
        oracle
    }

    /// A shadow never denies; quotas deny only together.
    fn verdict(&self, asked: &[Asked], over: &[bool]) -> bool {
        let rule = |index: usize| match asked[index] {
            Asked { own: None, rule, .. } => self.rules.0.get(rule),
            Asked { own: Some(_), .. } => None,
        };
        let is_over = |index: usize| over[index] && !rule(index).is_some_and(|rule| rule.shadow);
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
            let oracle = self.oracle(charges, charge.key, now);
            let is_over = !charge.fits && !is_shadow;
            let wanted = match charge.hits {
                Hits::Peek => 1,
                Hits::Take(_) | Hits::GiveBack(_) => sum(charges, charge.key, |_| true, takes),
            };
            let reset = if is_over { oracle.until_admits(wanted, now) } else { Some(oracle.until_full(now)) };
            let next = Tightest { remaining: oracle.remaining(now), reset };
            let waits = |reset: Option<u64>| reset.unwrap_or(u64::MAX);
            let is_tighter = match &status.limit {
                None => true,
                Some(_) if is_over != status.is_over => is_over,
                Some(tightest) if is_over => waits(next.reset) > waits(tightest.reset),
                Some(tightest) => next.remaining < tightest.remaining,
            };
            if is_tighter {
                status = Status { is_over, limit: Some(next) };
            }
        }
        status
    }
}

/// The sum over those charges of the counter that count.
fn sum(charges: &[Charge], key: Key, counts: impl Fn(&Charge) -> bool, hits: fn(Hits) -> u64) -> u64 {
    let of_key = charges.iter().filter(|charge| charge.key == key && counts(charge));
    of_key.map(|charge| hits(charge.hits)).sum()
}

fn takes(hits: Hits) -> u64 {
    if let Hits::Take(hits) = hits { hits } else { 0 }
}

fn gives(hits: Hits) -> u64 {
    if let Hits::GiveBack(hits) = hits { hits } else { 0 }
}
