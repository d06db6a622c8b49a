//! The naive limiter with estimates: the [list of charges](counter) of each counter, and all rules of charging.

mod charges;
mod counter;
mod status;

use super::rules::{Limit, Rules};
use crate::{
    machine::Disrupted,
    oracle::Oracle as Plain,
    outcome::{DescriptorHits, Hits, Outcome, gives},
};
use counter::Counter;
use std::collections::{BTreeMap, BTreeSet};

/// 14 November 2023.
pub const START: u64 = 1_700_000_000_000_000_000;

/// Rule, value, and limit of the rule.
type Key = (usize, usize, usize);

/// All counters, and the counters of denials.
#[derive(Clone, Debug, Default)]
struct Counters {
    counted: BTreeMap<Key, Counter>,
    bans: BTreeMap<Key, Plain>,
}

pub struct Oracle {
    rules: Rules,
    counters: Counters,
    saved: Counters,
    /// The counters that each ticket names.
    tickets: BTreeMap<String, Vec<Key>>,
    pub now: u64,
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
        let limit = self.limit(key);
        let counter = self.counters.counted.get(&key).cloned();
        let mut counter = counter.unwrap_or_else(|| Counter::new(limit.model.clone(), limit.most()));
        counter.model = limit.model_at(at);
        counter
    }

    fn counter(&self, key: Key) -> Counter {
        self.counter_at(key, self.now)
    }

    fn banned_until(&self, key: Key) -> u64 {
        let ban = self.counters.bans.get(&key);
        self.now + ban.and_then(|ban| ban.until_admits(0, 1, self.now)).unwrap_or(0)
    }

    /// Other rules come into force. Counters keep the former rules until they are used again; a ban that is not in the rules has ended.
    pub fn change_rules(&mut self, rules: &Rules) {
        self.rules = rules.clone();
        self.drop_ended_bans();
        for ((rule, _, limit), counter) in &mut self.counters.counted {
            let limit = &rules.0[*rule].limits[*limit];
            if limit.model == counter.model {
                counter.most = limit.most();
            }
        }
    }

    fn drop_ended_bans(&mut self) {
        let rules = &self.rules.0;
        self.counters.bans.retain(|(rule, _, limit), _| rules[*rule].limits[*limit].ban.is_some());
    }

    /// The request uses the counters of its descriptors under the present rules.
    fn convert(&mut self, descriptors: &[DescriptorHits]) {
        for charge in self.charges(descriptors) {
            let (model, most) = (self.limit(charge.key).model.clone(), self.limit(charge.key).most());
            if let Some(counter) = self.counters.counted.get_mut(&charge.key) {
                counter.change_limit(&model, most, self.now);
            }
        }
    }

    /// The descriptors, with no more hits given back than a bucket has whole settled hits: it gives back fractions of them too, which the
    /// list cannot represent.
    pub fn returnable(&mut self, descriptors: &[DescriptorHits]) -> Vec<DescriptorHits> {
        self.convert(descriptors);
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

    /// Decides a request. `ticket` is the ticket of the limiter under test. Also returns whether the request has a ticket.
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

    /// A ticket, and the rules and values that it names, if it names any.
    pub fn renewable(&self, ticket: &str) -> Option<(String, Vec<(usize, usize)>)> {
        let named = self.tickets.get(ticket).filter(|_| self.rules.give_tickets());
        let of: BTreeSet<_> = named?.iter().map(|(rule, value, _)| (*rule, *value)).collect();
        Some((ticket.to_owned(), of.into_iter().collect()))
    }

    /// The request with this ticket is renewed, if all of its estimates are open and their limits still have estimates; returns whether
    /// that is so.
    pub fn renew(&mut self, ticket: &str, is_peek: bool) -> bool {
        let keys = self.tickets.get(ticket).cloned().unwrap_or_default();
        let now = self.now;
        let mut counters = self.counters.counted.clone();
        for key in keys {
            let Some(reserve) = self.limit(key).reserve else { return false };
            let Some(counter) = counters.get_mut(&key).filter(|counter| counter.is_open(ticket, now)) else {
                return false;
            };
            counter.renew(ticket, now + reserve.hold, now);
        }
        if !is_peek {
            self.counters.counted = counters;
        }
        true
    }

    /// The request with this ticket ends: its cost is computed from each estimate. While no rule gives tickets, it is a request like any
    /// other.
    pub fn end(&mut self, ticket: &str, cost: impl Fn(u64) -> u64) {
        if self.rules.give_tickets() {
            let of_ticket = self.counters.counted.values_mut().filter(|counter| counter.has(ticket));
            of_ticket.for_each(|counter| counter.end(ticket, &cost, self.now));
        }
    }
}

impl Disrupted for Oracle {
    // A counter of denials is dropped with the last denial, which other rules might count for longer.
    fn sweep(&mut self, now: u64) {
        self.counters.bans.retain(|_, ban| ban.expires().div_ceil(1_000_000_000) > now / 1_000_000_000);
    }

    fn save(&mut self, _: u64) {
        self.saved = self.counters.clone();
    }

    fn restart(&mut self, start: u64) {
        self.counters = self.saved.clone();
        self.counters.bans.retain(|_, ban| ban.expires() > start);
        self.drop_ended_bans();
        // A process does not know the schedules of former rules.
        for ((rule, _, limit), counter) in &mut self.counters.counted {
            let limit = &self.rules.0[*rule].limits[*limit];
            let own = || Plain::new(counter.model.clone()).limit();
            counter.most = if limit.model == counter.model { limit.most() } else { own() };
        }
    }
}
