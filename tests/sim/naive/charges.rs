//! The charges of a request: which counters they are of, which fit, and what they report.

use super::{Key, Label, Naive, Of};
use crate::{
    oracle::{Model, Oracle},
    outcome::{DescriptorHits, Hits, Outcome, Status, Tightest, Wait, gives, takes},
    rules::{QueueLimits, Rule},
};

/// Lengths of windows that the reference has too.
const UNITS: [u64; 3] = [1_000_000_000, 60_000_000_000, 3_600_000_000_000];

/// One descriptor's hits for one counter.
pub struct Charge {
    pub descriptor: usize,
    pub key: Key,
    requests: u64,
    pub(super) model: Model,
    pub hits: Hits,
    pub always: bool,
    pub fits: bool,
    /// Whether it needs a new counter and there is no room for one.
    pub(super) has_no_room: bool,
    /// Of limits that the reference has too: hits that remain after it, in the order of the request.
    pub(super) remaining_in_order: Option<u64>,
    /// If it is over its limit and could have been queued: time until the queue has room for it.
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
        let statuses = (0..descriptors.len()).map(|index| self.status(descriptors, charges, index, now));
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

    /// Shadow rules never deny; quota rules deny only if all of them are over. With exact semantics a quota in shadow mode is not
    /// among them; with reference semantics it is one that is never over.
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
