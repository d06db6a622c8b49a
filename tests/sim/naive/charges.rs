//! The charges of a request: their counters, and which of them fit.

use super::{Key, Label, Naive, Of};
use crate::{
    oracle::{Model, Oracle},
    outcome::{DescriptorHits, Hits, Outcome, Wait, gives, takes},
    rules::{QueueLimits, Rule},
    schedule::{Schedule, with_limit},
};

/// Lengths of windows that the reference server has too.
const UNITS: [u64; 3] = [1_000_000_000, 60_000_000_000, 3_600_000_000_000];

/// One descriptor's hits for one counter.
pub struct Charge {
    pub descriptor: usize,
    pub key: Key,
    pub(super) requests: u64,
    /// The numbers that apply now.
    pub(super) model: Model,
    /// The numbers that the rule declares.
    pub(super) declared: Model,
    /// Other numbers at times of the week.
    pub(super) schedule: Option<Schedule>,
    pub hits: Hits,
    pub always: bool,
    /// The most hits that it counts beyond the limit, in its requests per window, and the hits of its queue.
    pub(super) debt_max: Option<u64>,
    pub(super) queued_max: u64,
    pub fits: bool,
    /// Whether it needs a new counter and there is no room for one.
    pub(super) has_no_room: bool,
    /// For limits that the reference server has too: hits that remain after it, in the order of the request.
    pub(super) remaining_in_order: Option<u64>,
    /// Time until the queue has room for it, if it is over its limit and could have been queued.
    pub until_queueable: Option<Wait>,
    /// Bounds of its queue, if it may be queued. Shadow limits do not queue.
    pub queue: Option<QueueLimits>,
    pub(super) label: Option<Label>,
}

impl Naive {
    pub fn outcome(
        &self,
        is_over: bool,
        descriptors: &[DescriptorHits],
        charges: &[Charge],
        now: u64,
    ) -> Outcome {
        let statuses =
            (0..descriptors.len()).map(|index| self.status(descriptors, charges, index, is_over, now));
        Outcome::Decided(is_over, statuses.collect())
    }

    /// Whether each charge of a counter fits.
    pub(super) fn evaluate(&self, charges: &mut [Charge], key: Key, now: u64) {
        if let Of::Window(_) = key.2 {
            return self.evaluate_in_order(charges, key, now);
        }
        let [given, taken] = [gives, takes].map(|hits| sum(charges, key, |_| true, hits));
        for charge in charges.iter_mut().filter(|charge| charge.key == key) {
            let mut oracle = self.oracle_of(charge, now);
            oracle.give_back(given, now);
            charge.fits = match charge.hits {
                Hits::Take(_) | Hits::Peek if is_of_ban(key) => !oracle.is_banned(now),
                Hits::Take(_) => taken <= oracle.remaining(now),
                // In the reference semantics, a peek passes at exactly the limit.
                Hits::Peek if self.settings.is_reference => oracle.used(now) <= charge.requests,
                Hits::Peek => oracle.remaining(now) > 0,
                Hits::GiveBack(_) => true,
            };
        }
    }

    /// Like the reference server: each charge finds the counter as the charges before it left it.
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
        if is_of_ban(key) {
            // One denial for a request that the limit itself denies, unless a ban is in force; none is given back.
            let is_denial = |(limit, ban): (&Charge, &Charge)| {
                ban.key == key && takes(limit.hits) > 0 && !limit.fits && ban.fits
            };
            let is_denied = charges.iter().zip(charges.iter().skip(1)).any(is_denial);
            return if is_denied { hits(Hits::Take(1)) } else { 0 };
        }
        let counts = |charge: &Charge| charge.always || !is_over && !is_over_at(charges, charge.descriptor);
        sum(charges, key, counts, hits)
    }

    pub fn charges(&self, descriptors: &[DescriptorHits], now: u64) -> Vec<Charge> {
        let mut charges = Vec::new();
        for (descriptor, &DescriptorHits { rule, value, hits, own }) in descriptors.iter().enumerate() {
            let mut charge = |of,
                              requests,
                              declared: Model,
                              schedule: Option<Schedule>,
                              (always, debt_max, queued_max),
                              queue,
                              label| {
                let in_force = schedule.as_ref().and_then(|schedule| schedule.requests_at(now));
                let model = in_force.map_or(declared.clone(), |number| with_limit(&declared, number));
                let requests = in_force.unwrap_or(requests);
                charges.push(Charge {
                    descriptor,
                    key: (rule, value, of),
                    requests,
                    model,
                    declared,
                    schedule,
                    hits,
                    always,
                    debt_max,
                    queued_max,
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
                charge(of, limit, model, None, (self.settings.is_reference, None, 0), None, None);
            } else if let Some(rule) = self.rules.0.get(rule) {
                let mut windows = Vec::new();
                for (index, limit) in rule.limits.iter().enumerate() {
                    let of = match limit.model {
                        // One limit of each window has the counter that the reference server would have.
                        Model::FixedWindow { window, .. }
                            if self.settings.is_reference
                                && limit.always
                                && limit.debt_max.is_none()
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
                    let schedule = limit.schedule.clone();
                    charge(
                        of,
                        limit.requests,
                        limit.model.clone(),
                        schedule,
                        (limit.always, limit.debt_max, limit.queue.map_or(0, |queue| queue.hits)),
                        queue,
                        Some(label),
                    );
                    if let Some(ban) = &limit.ban {
                        let label = Label { model: ban.clone(), queue: None };
                        charge(Of::Ban(index), 0, ban.clone(), None, (false, None, 0), None, Some(label));
                    }
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

    /// The counter of a charge, read under its limit. Charges of one counter have the same limit, except that limits sent with requests may
    /// differ in number.
    pub(super) fn oracle_of(&self, charge: &Charge, now: u64) -> Oracle {
        let mut oracle = match self.counters.get(&charge.key) {
            Some(oracle) => oracle.clone(),
            None => Oracle::new(charge.declared.clone()),
        };
        oracle.change_rule_within(self.most_converted(charge), charge.declared.clone(), now);
        oracle.change_rule(charge.model.clone(), now);
        oracle
    }

    /// The most used hits of a counter that was counted under another limit, if it was.
    pub(super) fn most_converted(&self, charge: &Charge) -> u64 {
        let is_converted = self.labels.get(&charge.key).is_some_and(|former| *former != charge.label);
        if is_converted { charge.counted_at_most() } else { u64::MAX }
    }

    /// Shadow rules never deny; quota rules deny only if all of them are over. With exact semantics a quota in shadow mode is not one of
    /// them; with reference semantics it counts as a quota that is never over.
    pub(super) fn verdict(&self, descriptors: &[DescriptorHits], charges: &[Charge]) -> bool {
        let rule = |index: usize| match descriptors[index] {
            DescriptorHits { own: None, rule, .. } => self.rules.0.get(rule),
            DescriptorHits { own: Some(_), .. } => None,
        };
        let is_over =
            |index: usize| is_over_at(charges, index) && !rule(index).is_some_and(|rule| rule.shadow);
        let (quotas, others): (Vec<usize>, Vec<usize>) = (0..descriptors.len()).partition(|&index| {
            let votes = |rule: &Rule| rule.quota && (self.settings.is_reference || !rule.shadow);
            rule(index).is_some_and(votes)
        });
        others.iter().any(|&index| is_over(index))
            || !quotas.is_empty() && quotas.iter().all(|&index| is_over(index))
    }
}

impl Charge {
    /// The hits within the bound on debts, if they are counted in addition to the used hits.
    pub(super) fn within_debt(&self, oracle: &Oracle, hits: u64, now: u64) -> u64 {
        if !self.always {
            return hits;
        }
        hits.min(self.counted_at_most().saturating_sub(oracle.used(now)))
    }

    /// The most hits that its counter has, debts and queued hits included.
    pub(super) fn counted_at_most(&self) -> u64 {
        let Some(windows) = self.debt_max else { return u64::MAX };
        Oracle::new(self.model.clone()).limit() + windows * self.requests + self.queued_max
    }

    pub(super) fn is_over(&self) -> bool {
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

/// Whether the counter is a counter of denials.
pub fn is_of_ban(key: Key) -> bool {
    matches!(key.2, Of::Ban(_))
}
