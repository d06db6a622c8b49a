//! The charges of a request: which of them fit, and what they count.

use super::{Key, Oracle, counter::Number};
use crate::{
    oracle::{Model, Oracle as Plain},
    outcome::{DescriptorHits, Hits, gives, takes},
    reserved::rules::{Estimate, Limit, Reserve},
    rules::Rule,
    schedule::{Schedule, with_limit},
};
use std::collections::BTreeSet;

/// One descriptor's hits for one counter.
pub struct Charge {
    pub descriptor: usize,
    pub key: Key,
    /// The hits of the request, which a limit with an estimate does not charge.
    pub hits: Hits,
    pub fits: bool,
    pub is_banned: bool,
}

impl Limit {
    /// The greatest number that it admits at any time.
    pub(super) fn most(&self) -> u64 {
        Plain::new(self.model.clone()).limit().max(self.schedule.as_ref().map_or(0, Schedule::most))
    }

    /// The number that applies at a moment, if it differs from the declared number.
    pub(super) fn number_at(&self, at: u64) -> Option<u64> {
        self.schedule.as_ref().and_then(|schedule| schedule.requests_at(at))
    }

    pub(super) fn model_at(&self, at: u64) -> Model {
        self.number_at(at).map_or(self.model.clone(), |number| with_limit(&self.model, number))
    }

    /// The estimate that applies at a moment, if it is a number: at most the number of the limit.
    pub(super) fn estimate_at(&self, at: u64) -> Option<u64> {
        match self.reserve?.estimate {
            Estimate::Hits(hits) => Some(self.number_at(at).map_or(hits, |number| hits.min(number).max(1))),
            Estimate::OfRequest => None,
        }
    }

    /// The hits that are charged here at a moment for hits of a request.
    pub(super) fn charged_at(&self, hits: Hits, at: u64) -> Hits {
        match (hits, self.estimate_at(at)) {
            (Hits::Take(_), Some(estimate)) => Hits::Take(estimate),
            (hits, _) => hits,
        }
    }
}

impl Oracle {
    pub(super) fn charges(&self, descriptors: &[DescriptorHits]) -> Vec<Charge> {
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

    /// The hits of all charges of a counter for which `counts` holds, by the estimates that apply at a moment.
    pub(super) fn sum(
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

    /// Shadow rules never deny; quota rules deny if all of them are over.
    pub(super) fn verdict(&self, descriptors: &[DescriptorHits], charges: &[Charge]) -> bool {
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

    /// Whether the hits of the request for the counter of a charge fit at a moment, by the numbers that apply at another moment.
    pub(super) fn admits(&self, charges: &[Charge], charge: &Charge, at: u64, from: u64) -> bool {
        let given = self.sum(charges, charge.key, gives, from, |_| true);
        self.counter_at(charge.key, from).remaining(given, at) >= self.wanted(charges, charge, from)
    }

    /// The hits that the counter of a charge has to admit, by the estimates that apply at a moment.
    pub(super) fn wanted(&self, charges: &[Charge], charge: &Charge, at: u64) -> u64 {
        match charge.hits {
            Hits::Peek => self.limit(charge.key).estimate_at(at).unwrap_or(1),
            _ => self.sum(charges, charge.key, takes, at, |_| true),
        }
    }

    pub(super) fn count_denials(&mut self, charges: &[Charge]) {
        let denies = |charge: &&Charge| takes(charge.hits) > 0 && !charge.fits && !charge.is_banned;
        let denied: BTreeSet<Key> = charges.iter().filter(denies).map(|charge| charge.key).collect();
        for key in denied {
            if let Some(ban) = self.limit(key).ban.clone() {
                let counter = self.counters.bans.entry(key).or_insert_with(|| Plain::new(ban.clone()));
                counter.change_rule(ban, self.now);
                counter.take(1, self.now);
            }
        }
    }

    /// Counts the hits of a counter that count under this verdict; returns whether they are an estimate.
    pub(super) fn charge(&mut self, charges: &[Charge], key: Key, is_over: bool, ticket: &str) -> bool {
        let Limit { reserve, always, .. } = *self.limit(key);
        let counts = |charge: &Charge| always || !is_over && !is_over_at(charges, charge.descriptor);
        let [given, mut taken] = [gives, takes].map(|hits| self.sum(charges, key, hits, self.now, counts));
        // A debt is at most a multiple of the number that applies.
        if always && self.limit(key).number_at(self.now) == Some(0) {
            taken = 0;
        }
        if given == 0 && taken == 0 {
            return false;
        }
        let (mut counter, now) = (self.counter(key), self.now);
        if given > 0 {
            counter.give_back(given, now);
        }
        if taken > 0 {
            let number = match reserve {
                Some(Reserve { hold, returns, .. }) => {
                    Number::Open { ticket: ticket.to_owned(), hits: taken, deadline: now + hold, returns }
                }
                None => Number::Known(taken),
            };
            counter.add(number, now);
        }
        counter.model = self.limit(key).model.clone();
        self.counters.counted.insert(key, counter);
        taken > 0 && reserve.is_some()
    }
}

impl Charge {
    pub fn is_over(&self) -> bool {
        !self.fits || self.is_banned
    }
}

/// Whether a limit of the descriptor denies its hits, regardless of shadow and quota modes.
fn is_over_at(charges: &[Charge], descriptor: usize) -> bool {
    charges.iter().any(|charge| charge.descriptor == descriptor && charge.is_over())
}
