//! The naive limiter with estimates: a list of all charges of each counter, each at its time, from which the counter is made anew for each result.
//! An end replaces a number in the list.

use super::traffic::{Estimate, Limit, Reserve, Rule, Rules};
use crate::{
    naive::resets::first_under_schedules,
    oracle::{Model, Oracle as Plain, first},
    outcome::{DescriptorHits, Hits, Outcome, Status, Tightest, Wait, gives, takes},
    schedule::{Schedule, with_limit},
};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Those of the request, which a limit with an estimate does not charge.
    hits: Hits,
    fits: bool,
    is_banned: bool,
}

pub struct Oracle {
    rules: Rules,
    counters: Counters,
    saved: Counters,
    /// The counters that each ticket names.
    tickets: BTreeMap<String, Vec<Key>>,
    pub now: u64,
}

impl Limit {
    /// The number that applies at a moment, if it is not the declared one.
    fn number_at(&self, at: u64) -> Option<u64> {
        self.schedule.as_ref().and_then(|schedule| schedule.requests_at(at))
    }

    fn model_at(&self, at: u64) -> Model {
        self.number_at(at).map_or(self.model.clone(), |number| with_limit(&self.model, number))
    }

    /// The estimate that applies at a moment, if it is a number: at most that of the limit.
    fn estimate_at(&self, at: u64) -> Option<u64> {
        match self.reserve?.estimate {
            Estimate::Hits(hits) => Some(self.number_at(at).map_or(hits, |number| hits.min(number).max(1))),
            Estimate::OfRequest => None,
        }
    }

    /// What hits of a request are charged here at a moment.
    fn charged_at(&self, hits: Hits, at: u64) -> Hits {
        match (hits, self.estimate_at(at)) {
            (Hits::Take(_), Some(estimate)) => Hits::Take(estimate),
            (hits, _) => hits,
        }
    }
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
        let deadlines = self.charged.iter().filter_map(|charged| match charged.number {
            Number::Open { deadline, .. } => Some(deadline).filter(|deadline| *deadline <= now),
            _ => None,
        });
        for time in deadlines.collect::<BTreeSet<u64>>() {
            for charged in &mut self.charged {
                if let Number::Open { hits, deadline, returns, .. } = charged.number
                    && deadline == time
                {
                    charged.number = Number::Known(if returns { 0 } else { hits });
                }
            }
            self.join(time);
        }
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
        let (counters, saved) = (Counters::default(), Counters::default());
        Self { rules, counters, saved, tickets: BTreeMap::new(), now: START }
    }

    fn limit(&self, (rule, _, limit): Key) -> &Limit {
        &self.rules.0[rule].limits[limit]
    }

    /// The counter under the number that applies at a moment.
    fn counter_at(&self, key: Key, at: u64) -> Counter {
        let charged = self.counters.counted.get(&key).map(|counter| counter.charged.clone());
        Counter { model: self.limit(key).model_at(at), charged: charged.unwrap_or_default() }
    }

    fn counter(&self, key: Key) -> Counter {
        self.counter_at(key, self.now)
    }

    /// The hits of all charges of a counter for which `counts` holds, by the estimates that apply at a moment.
    fn sum(
        &self,
        charges: &[Charge],
        key: Key,
        hits: fn(Hits) -> u64,
        at: u64,
        counts: impl Fn(&Charge) -> bool,
    ) -> u64 {
        let charged = |charge: &Charge| hits(self.limit(key).charged_at(charge.hits, at));
        charges.iter().filter(|charge| charge.key == key && counts(charge)).map(charged).sum()
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
            let keys = || (0..self.rules.0[rule].limits.len()).map(|limit| (rule, value, limit));
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
            for limit in 0..self.rules.0[rule].limits.len() {
                charges.push(Charge {
                    descriptor,
                    key: (rule, value, limit),
                    hits,
                    fits: true,
                    is_banned: false,
                });
            }
        }
        charges
    }

    /// Decides a request. `ticket` is that of the limiter under test. Returns also whether the request has one.
    pub fn decide(&mut self, descriptors: &[DescriptorHits], ticket: Option<&str>) -> (Outcome, bool) {
        let (mut charges, now) = (self.charges(descriptors), self.now);
        let admits: Vec<(bool, bool)> = charges
            .iter()
            .map(|charge| (self.admits(&charges, charge, now, now), self.banned_until(charge.key) > now))
            .collect();
        for (charge, (fits, is_banned)) in charges.iter_mut().zip(admits) {
            let gives_back = gives(charge.hits) > 0;
            (charge.fits, charge.is_banned) = (fits || gives_back, is_banned && !gives_back);
        }
        let is_over = self.verdict(descriptors, &charges);
        self.count_denials(&charges);
        let keys: BTreeSet<Key> = charges.iter().map(|charge| charge.key).collect();
        let mut reserved = Vec::new();
        for key in keys {
            if self.charge(&charges, key, is_over, ticket.unwrap_or_default()) {
                reserved.push(key);
            }
        }
        let has_ticket = !reserved.is_empty();
        if let Some(ticket) = ticket {
            self.tickets.insert(ticket.to_owned(), reserved);
        }
        let status = |descriptor| self.status(&charges, descriptor, is_over);
        (Outcome::Decided(is_over, (0..descriptors.len()).map(status).collect()), has_ticket)
    }

    /// Shadow rules never deny; quota rules deny if all of them are over.
    fn verdict(&self, descriptors: &[DescriptorHits], charges: &[Charge]) -> bool {
        let (mut is_over, mut quotas) = (false, Vec::new());
        for (descriptor, DescriptorHits { rule, .. }) in descriptors.iter().enumerate() {
            match &self.rules.0[*rule] {
                Rule { shadow: true, .. } => {}
                Rule { quota: true, .. } => quotas.push(is_over_at(charges, descriptor)),
                _ => is_over |= is_over_at(charges, descriptor),
            }
        }
        is_over || !quotas.is_empty() && quotas.iter().all(|&is_over| is_over)
    }

    /// Whether the hits of the request for the counter of a charge fit at a moment, by the numbers that apply at another.
    fn admits(&self, charges: &[Charge], charge: &Charge, at: u64, from: u64) -> bool {
        let given = self.sum(charges, charge.key, gives, from, |_| true);
        self.counter_at(charge.key, from).remaining(given, at) >= self.wanted(charges, charge, from)
    }

    /// The hits that the counter of a charge has to admit, by the estimates that apply at a moment.
    fn wanted(&self, charges: &[Charge], charge: &Charge, at: u64) -> u64 {
        match charge.hits {
            Hits::Peek => self.limit(charge.key).estimate_at(at).unwrap_or(1),
            _ => self.sum(charges, charge.key, takes, at, |_| true),
        }
    }

    fn count_denials(&mut self, charges: &[Charge]) {
        let denies = |charge: &&Charge| takes(charge.hits) > 0 && !charge.fits && !charge.is_banned;
        let denied: BTreeSet<Key> = charges.iter().filter(denies).map(|charge| charge.key).collect();
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
        let counts = |charge: &Charge| always || !is_over && !is_over_at(charges, charge.descriptor);
        let [given, mut taken] = [gives, takes].map(|hits| self.sum(charges, key, hits, self.now, counts));
        // A debt is at most so many times the number that applies.
        if always && self.limit(key).number_at(self.now) == Some(0) {
            taken = 0;
        }
        if given == 0 && taken == 0 {
            return false;
        }
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

    /// A ticket, and the rules and values that it names, if it names any.
    pub fn renewable(&self, ticket: &str) -> Option<(String, Vec<(usize, usize)>)> {
        let of: BTreeSet<_> =
            self.tickets.get(ticket)?.iter().map(|(rule, value, _)| (*rule, *value)).collect();
        Some((ticket.to_owned(), of.into_iter().collect()))
    }

    /// The request with this ticket is renewed, if all of its estimates are open; returns whether they are.
    pub fn renew(&mut self, ticket: &str, is_peek: bool) -> bool {
        let keys = self.tickets.get(ticket).cloned().unwrap_or_default();
        let now = self.now;
        let mut counters = self.counters.counted.clone();
        for key in keys {
            let hold = self.limit(key).reserve.map_or(0, |reserve| reserve.hold);
            let charged = counters.get_mut(&key).into_iter().flat_map(|counter| &mut counter.charged);
            let mut open = charged.filter_map(|charged| match &mut charged.number {
                Number::Open { ticket: of, deadline, .. } if of == ticket && *deadline > now => {
                    Some(deadline)
                }
                _ => None,
            });
            let Some(deadline) = open.next() else { return false };
            *deadline = (now + hold).max(*deadline);
        }
        if !is_peek {
            self.counters.counted = counters;
        }
        true
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

    fn status(&self, charges: &[Charge], descriptor: usize, is_denied: bool) -> Status {
        let is_charged = |charge: &&Charge| {
            let Rule { shadow, quota, .. } = self.rules.0[charge.key.0];
            self.limit(charge.key).always && takes(charge.hits) > 0 && !charge.is_over() && !(shadow || quota)
        };
        // A denial that has charged limits waits for them too.
        let charged: Vec<&Charge> = charges.iter().filter(is_charged).filter(|_| is_denied).collect();
        let of_descriptor = || charges.iter().filter(|charge| charge.descriptor == descriptor);
        let is_joint =
            !charged.is_empty() || of_descriptor().any(|charge| self.limit(charge.key).schedule.is_some());
        let limits = of_descriptor().map(|charge| {
            let (counter, remaining) =
                (self.counter(charge.key), self.counter(charge.key).remaining(0, self.now));
            // A ban may begin by this denial.
            let is_banned = gives(charge.hits) == 0 && self.banned_until(charge.key) > self.now;
            if !(charge.is_over() || is_banned) || self.rules.0[charge.key.0].shadow {
                return (false, Tightest { remaining, reset: self.until_full(&counter) });
            }
            let all = match is_joint {
                true => of_descriptor().chain(charged.iter().copied()).collect(),
                false => vec![charge],
            };
            let reset = self.until_all_admit(charges, &all);
            (true, Tightest { remaining: if is_banned { 0 } else { remaining }, reset })
        });
        Status::of_limits(limits)
    }

    /// The wait until the counters of all these charges admit the request, and none of them is banned.
    fn until_all_admit(&self, charges: &[Charge], all: &[&Charge]) -> Wait {
        // At the moment with the greatest number.
        let is_possible = |charge: &&Charge| {
            let limit = self.limit(charge.key);
            let declared = Plain::new(limit.model.clone()).limit();
            let most = declared.max(limit.schedule.as_ref().map_or(0, Schedule::most));
            let hits = match (charge.hits, limit.reserve.map(|reserve| reserve.estimate)) {
                (Hits::Peek, Some(Estimate::Hits(hits))) => hits,
                (Hits::Peek, _) => 1,
                (_, Some(Estimate::Hits(hits))) => {
                    let takes =
                        charges.iter().filter(|other| other.key == charge.key && takes(other.hits) > 0);
                    takes.count() as u64 * hits
                }
                _ => self.sum(charges, charge.key, takes, self.now, |_| true),
            };
            hits <= most
        };
        if !all.iter().all(is_possible) {
            return Wait::Never;
        }
        let admits = |at, from| {
            all.iter().all(|charge| {
                let is_banned = gives(charge.hits) == 0 && self.banned_until(charge.key) > at;
                !is_banned && self.admits(charges, charge, at, from)
            })
        };
        let schedules: Vec<&Schedule> =
            all.iter().filter_map(|charge| self.limit(charge.key).schedule.as_ref()).collect();
        match schedules.is_empty() {
            true => Wait::After(first(self.now, |at| admits(at, self.now)) - self.now),
            false => first_under_schedules(&schedules, self.now, admits),
        }
    }

    fn until_full(&self, counter: &Counter) -> Wait {
        Wait::After(first(self.now, |at| counter.at(at, false).used(at) == 0) - self.now)
    }
}

impl Charge {
    fn is_over(&self) -> bool {
        !self.fits || self.is_banned
    }
}

/// Whether a limit of the descriptor denies its hits, regardless of shadow and quota modes.
fn is_over_at(charges: &[Charge], descriptor: usize) -> bool {
    charges.iter().any(|charge| charge.descriptor == descriptor && charge.is_over())
}
