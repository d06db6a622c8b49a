//! The naive limiter with estimates: a list of all charges of each counter, each at its time, from which the counter is made anew for each result.
//! An end replaces a number in the list.

use super::traffic::{Estimate, Limit, Reserve, Rules};
use crate::{
    oracle::{Model, Oracle as Plain, first},
    outcome::{DescriptorHits, Hits, Outcome, Status, Tightest, Wait, gives, takes},
};
use std::collections::BTreeMap;

/// 14 November 2023.
pub const START: u64 = 1_700_000_000_000_000_000;

/// Rule, value, and limit of the rule.
type Key = (usize, usize, usize);

#[derive(Clone, Debug)]
enum Number {
    Known(u64),
    GivenBack(u64),
    /// An estimate, until its end or its deadline.
    Open {
        ticket: String,
        hits: u64,
        deadline: u64,
        returns: bool,
    },
}

#[derive(Clone, Debug)]
struct Charged {
    at: u64,
    number: Number,
}

#[derive(Clone, Debug)]
struct Counter {
    model: Model,
    charged: Vec<Charged>,
}

/// All counters, and those of denials.
#[derive(Clone, Debug, Default)]
struct Counters {
    counted: BTreeMap<Key, Counter>,
    bans: BTreeMap<Key, Plain>,
}

/// One descriptor's hits for one counter.
struct Charge {
    descriptor: usize,
    key: Key,
    hits: Hits,
    /// The hits that a peek is about.
    peeked: u64,
    fits: bool,
    is_banned: bool,
}

pub struct Oracle {
    rules: Rules,
    counters: Counters,
    saved: Counters,
    pub now: u64,
}

impl Counter {
    fn is_bucket(&self) -> bool {
        matches!(
            self.model,
            Model::GreedyBucket { .. } | Model::IntervalBucket { .. } | Model::LeakyBucket { .. }
        )
    }

    /// The counter at a moment; without the estimates that are open then if only settled hits are wanted.
    fn at(&self, now: u64, is_settled: bool) -> Plain {
        let mut plain = Plain::new(self.model.clone());
        for Charged { at, number } in &self.charged {
            match number {
                Number::Known(hits) => take(&mut plain, *hits, *at),
                Number::GivenBack(hits) => plain.give_back(*hits, *at),
                Number::Open { deadline, returns: true, .. } if *deadline <= now => {}
                Number::Open { deadline, .. } if is_settled && *deadline > now => {}
                Number::Open { hits, .. } => take(&mut plain, *hits, *at),
            }
        }
        plain
    }

    /// Hits that would be admitted at a moment after so many are given back.
    fn remaining(&self, given: u64, now: u64) -> u64 {
        if given == 0 {
            return self.at(now, false).remaining(now);
        }
        if self.is_bucket() {
            let used = self.at(now, false).used_without(&self.at(now, true), given, now);
            return self.at(now, false).limit().saturating_sub(used);
        }
        let mut without = self.clone();
        without.give_back(given, now);
        without.remaining(0, now)
    }

    /// Gives back the newest settled hits.
    fn give_back(&mut self, hits: u64, now: u64) {
        self.settle(now);
        if self.is_bucket() {
            return self.charged.push(Charged { at: now, number: Number::GivenBack(hits) });
        }
        let mut left = hits;
        for charged in self.charged.iter_mut().rev() {
            if let Number::Known(hits) = &mut charged.number {
                let taken = left.min(*hits);
                (*hits, left) = (*hits - taken, left - taken);
            }
        }
    }

    /// Whole hits that are settled, which can be given back.
    fn returnable(&self, now: u64) -> u64 {
        self.at(now, true).whole(now)
    }

    /// Estimates are known from their deadlines on.
    fn settle(&mut self, now: u64) {
        for charged in &mut self.charged {
            if let Number::Open { hits, deadline, returns, .. } = charged.number
                && deadline <= now
            {
                charged.number = Number::Known(if returns { 0 } else { hits });
            }
        }
        self.join(now);
    }

    /// A log keeps the times of its newest settled hits, as many as the limit; those before are dated as the newest of them, and stay so if newer
    /// ones are given back.
    fn join(&mut self, now: u64) {
        let Model::SlidingLog { limit, window } = self.model else { return };
        let (mut newer, mut joined) = (0, None);
        for Charged { at, number } in
            self.charged.iter_mut().rev().filter(|charged| charged.at + window > now)
        {
            if let Number::Known(hits @ 1..) = number {
                newer += *hits;
                if joined.is_none() && newer > limit {
                    joined = Some(*at);
                }
                *at = joined.unwrap_or(*at);
            }
        }
        self.charged.sort_by_key(|charged| charged.at);
    }
}

fn take(plain: &mut Plain, hits: u64, at: u64) {
    if hits > 0 {
        plain.take(hits, at);
    }
}

impl Oracle {
    pub fn new(rules: Rules) -> Self {
        Self { rules, counters: Counters::default(), saved: Counters::default(), now: START }
    }

    fn limit(&self, (rule, _, limit): Key) -> &Limit {
        &self.rules.0[rule][limit]
    }

    fn counter(&self, key: Key) -> Counter {
        let new = || Counter { model: self.limit(key).model.clone(), charged: Vec::new() };
        self.counters.counted.get(&key).cloned().unwrap_or_else(new)
    }

    fn banned_until(&self, key: Key) -> u64 {
        let ban = self.counters.bans.get(&key);
        self.now + ban.and_then(|ban| ban.until_admits(0, 1, self.now)).unwrap_or(0)
    }

    /// The descriptors with no more hits given back than a bucket has whole settled ones: it gives back parts of them too, which the list cannot
    /// have.
    pub fn returnable(&self, descriptors: &[DescriptorHits]) -> Vec<DescriptorHits> {
        let mut given: BTreeMap<Key, u64> = BTreeMap::new();
        let returnable = |descriptor: &DescriptorHits| {
            let DescriptorHits { rule, value, hits, .. } = *descriptor;
            let Hits::GiveBack(mut hits) = hits else { return *descriptor };
            let keys = || (0..self.rules.0[rule].len()).map(|limit| (rule, value, limit));
            for key in keys() {
                let counter = self.counter(key);
                if counter.is_bucket() {
                    let before = given.get(&key).copied().unwrap_or(0);
                    hits = hits.min(counter.returnable(self.now).saturating_sub(before));
                }
            }
            keys().for_each(|key| *given.entry(key).or_default() += hits);
            let hits = if hits == 0 { Hits::Peek } else { Hits::GiveBack(hits) };
            DescriptorHits { hits, ..*descriptor }
        };
        descriptors.iter().map(returnable).collect()
    }

    fn charges(&self, descriptors: &[DescriptorHits]) -> Vec<Charge> {
        let mut charges = Vec::new();
        for (descriptor, &DescriptorHits { rule, value, hits, .. }) in descriptors.iter().enumerate() {
            for (limit, Limit { reserve, .. }) in self.rules.0[rule].iter().enumerate() {
                let estimate = reserve.and_then(|reserve| match reserve.estimate {
                    Estimate::Hits(hits) => Some(hits),
                    Estimate::OfRequest => None,
                });
                let hits = match (hits, estimate) {
                    (Hits::Take(_), Some(estimate)) => Hits::Take(estimate),
                    (hits, _) => hits,
                };
                let (key, peeked) = ((rule, value, limit), estimate.unwrap_or(1));
                charges.push(Charge { descriptor, key, hits, peeked, fits: true, is_banned: false });
            }
        }
        charges
    }

    /// Decides a request. `ticket` is that of the limiter under test. Returns also whether the request has one.
    pub fn decide(&mut self, descriptors: &[DescriptorHits], ticket: Option<&str>) -> (Outcome, bool) {
        let (mut charges, now) = (self.charges(descriptors), self.now);
        let admits: Vec<(bool, bool)> = charges
            .iter()
            .map(|charge| (self.admits(&charges, charge, now), self.banned_until(charge.key) > now))
            .collect();
        for (charge, (fits, is_banned)) in charges.iter_mut().zip(admits) {
            let gives_back = gives(charge.hits) > 0;
            (charge.fits, charge.is_banned) = (fits || gives_back, is_banned && !gives_back);
        }
        let is_over = charges.iter().any(|charge| !charge.fits || charge.is_banned);
        self.count_denials(&charges);
        let mut keys: Vec<Key> = charges.iter().map(|charge| charge.key).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut has_ticket = false;
        for key in keys {
            has_ticket |= self.charge(&charges, key, is_over, ticket.unwrap_or_default());
        }
        let status = |descriptor| self.status(&charges, descriptor, is_over);
        (Outcome::Decided(is_over, (0..descriptors.len()).map(status).collect()), has_ticket)
    }

    /// Whether the hits of the request for the counter of a charge fit at a moment.
    fn admits(&self, charges: &[Charge], charge: &Charge, at: u64) -> bool {
        let wanted = wanted(charges, charge);
        self.counter(charge.key).remaining(sum(charges, charge.key, gives), at) >= wanted
    }

    fn count_denials(&mut self, charges: &[Charge]) {
        let denies = |charge: &&Charge| takes(charge.hits) > 0 && !charge.fits && !charge.is_banned;
        let mut denied: Vec<Key> = charges.iter().filter(denies).map(|charge| charge.key).collect();
        denied.sort_unstable();
        denied.dedup();
        for key in denied {
            if let Some(ban) = self.limit(key).ban.clone() {
                let counter = self.counters.bans.entry(key).or_insert_with(|| Plain::new(ban));
                counter.take(1, self.now);
            }
        }
    }

    /// Counts the hits of a counter that count under this verdict; whether they are an estimate.
    fn charge(&mut self, charges: &[Charge], key: Key, is_over: bool, ticket: &str) -> bool {
        let Limit { reserve, always, .. } = *self.limit(key);
        if is_over && !always {
            return false;
        }
        let [given, taken] = [gives, takes].map(|hits| sum(charges, key, hits));
        let (mut counter, now) = (self.counter(key), self.now);
        counter.settle(now);
        if given > 0 {
            counter.give_back(given, now);
        }
        let number = match reserve {
            Some(Reserve { hold, returns, .. }) => {
                Number::Open { ticket: ticket.to_owned(), hits: taken, deadline: now + hold, returns }
            }
            None => Number::Known(taken),
        };
        if taken > 0 {
            counter.charged.push(Charged { at: now, number });
        }
        counter.join(now);
        self.counters.counted.insert(key, counter);
        taken > 0 && reserve.is_some()
    }

    /// The request with this ticket ends: its cost is made of each estimate.
    pub fn end(&mut self, ticket: &str, cost: impl Fn(u64) -> u64) {
        for counter in self.counters.counted.values_mut() {
            counter.settle(self.now);
            for charged in &mut counter.charged {
                if let Number::Open { ticket: of, hits, .. } = &charged.number
                    && of == ticket
                {
                    charged.number = Number::Known(cost(*hits));
                }
            }
            counter.join(self.now);
        }
    }

    pub fn save(&mut self) {
        self.saved = self.counters.clone();
    }

    /// A start from the last snapshot.
    pub fn start(&mut self) {
        self.counters = self.saved.clone();
    }

    /// The first of the tightest limits: denials before admissions, then the longest wait, or the least that remains.
    fn status(&self, charges: &[Charge], descriptor: usize, is_denied: bool) -> Status {
        let mut status = Status { is_over: false, limit: None };
        let is_charged = |charge: &&Charge| {
            self.limit(charge.key).always && takes(charge.hits) > 0 && charge.fits && !charge.is_banned
        };
        // A denial that has charged limits waits for them too.
        let charged: Vec<&Charge> = charges.iter().filter(is_charged).filter(|_| is_denied).collect();
        for charge in charges.iter().filter(|charge| charge.descriptor == descriptor) {
            let banned_until = if gives(charge.hits) > 0 { 0 } else { self.banned_until(charge.key) };
            let is_banned = banned_until > self.now;
            let is_over = !charge.fits || is_banned;
            let counter = self.counter(charge.key);
            let all = || match charged.is_empty() {
                true => vec![charge],
                false => {
                    let of_descriptor = charges.iter().filter(|charge| charge.descriptor == descriptor);
                    of_descriptor.chain(charged.iter().copied()).collect()
                }
            };
            let next = match is_over {
                true => Tightest {
                    remaining: if is_banned { 0 } else { counter.remaining(0, self.now) },
                    reset: self.until_all_admit(charges, &all()),
                },
                false => {
                    Tightest { remaining: counter.remaining(0, self.now), reset: self.until_full(&counter) }
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

    /// The wait until the counters of all these charges admit the request, and none of them is banned.
    fn until_all_admit(&self, charges: &[Charge], all: &[&Charge]) -> Wait {
        let is_possible = |charge: &&Charge| {
            let most = Plain::new(self.limit(charge.key).model.clone()).limit();
            wanted(charges, charge) <= most
        };
        if !all.iter().all(is_possible) {
            return Wait::Never;
        }
        let admits = |charge: &Charge, at| {
            let is_banned = gives(charge.hits) == 0 && self.banned_until(charge.key) > at;
            !is_banned && self.admits(charges, charge, at)
        };
        Wait::After(first(self.now, |at| all.iter().all(|charge| admits(charge, at))) - self.now)
    }

    fn until_full(&self, counter: &Counter) -> Wait {
        Wait::After(first(self.now, |at| counter.at(at, false).used(at) == 0) - self.now)
    }
}

/// The hits that the counter of a charge has to admit.
fn wanted(charges: &[Charge], charge: &Charge) -> u64 {
    if charge.hits == Hits::Peek { charge.peeked } else { sum(charges, charge.key, takes) }
}

fn sum(charges: &[Charge], key: Key, hits: fn(Hits) -> u64) -> u64 {
    charges.iter().filter(|charge| charge.key == key).map(|charge| hits(charge.hits)).sum()
}
