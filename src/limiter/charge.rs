//! What a request asks of which counters.

use crate::{
    limit::{CurrentLimit, Descriptor, Hits, Request},
    rules::{Charge as ChargeRule, DomainRules, Rule, RuleLimit},
    store::{Fingerprint, Key, Seed},
};
use smallvec::SmallVec;
use std::borrow::Cow;

/// What one descriptor reached in the rules.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Reached<'r> {
    /// Nothing that limits it.
    Nothing,
    /// A rule that says nothing limits it.
    Unlimited(&'r Rule),
    /// The limits of a rule.
    Rule(&'r Rule),
    /// The limit that the request brought along.
    Override,
}

impl<'r> Reached<'r> {
    /// Names of limits that do not apply because of this one.
    fn replaces(self) -> impl Iterator<Item = &'r str> {
        let rule = match self {
            Self::Rule(rule) | Self::Unlimited(rule) => Some(rule),
            Self::Nothing | Self::Override => None,
        };
        rule.into_iter().flat_map(|rule| &rule.replaces).map(|name| &**name)
    }

    /// Whether a would-be denial is let through.
    pub(super) fn is_shadow(self) -> bool {
        matches!(self, Self::Rule(rule) if rule.shadow)
    }

    /// Whether it denies only together with every other quota rule.
    pub(super) fn is_quota(self) -> bool {
        matches!(self, Self::Rule(rule) if rule.quota)
    }
}

/// The hits that one descriptor asks of one counter.
pub(super) struct Charge<'r> {
    /// Index of the descriptor in the request.
    pub(super) descriptor: usize,
    /// The counter.
    pub(super) key: Key,
    /// The limit: a rule's, or the request's own.
    pub(super) limit: Cow<'r, RuleLimit>,
    /// What is asked.
    pub(super) hits: Hits,
    /// What its counter says to it.
    pub(super) answer: Answer,
}

/// What a counter says to a charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// The hits fit. Until it is evaluated, a charge is taken to.
    Admitted,
    /// They do not.
    Over,
    /// They might, but there is no room to make the counter.
    NoRoom,
}

impl<'r> Charge<'r> {
    /// Whether hits are counted even when the request is denied.
    pub(super) fn is_always(&self) -> bool {
        self.limit.charge == ChargeRule::Always
    }

    /// The limit as a status reports it.
    pub(super) fn current(&self) -> CurrentLimit<'r> {
        match &self.limit {
            Cow::Borrowed(limit) => limit.current(),
            Cow::Owned(limit) => CurrentLimit { name: "", requests: limit.requests, unit: limit.unit },
        }
    }
}

/// A request laid out for deciding.
pub(super) struct Plan<'r> {
    /// One for each descriptor.
    pub(super) reached: SmallVec<[Reached<'r>; 4]>,
    /// Sorted by key, and so by shard; charges of one counter are neighbours, in the order of the request.
    pub(super) charges: SmallVec<[Charge<'r>; 2]>,
}

impl<'r> Plan<'r> {
    /// Finds the limits of every descriptor.
    pub(super) fn new(domain: &'r DomainRules, seed: &Seed, request: &Request<'_>) -> Self {
        let mut plan = Self { reached: SmallVec::new(), charges: SmallVec::new() };
        for (index, descriptor) in request.descriptors().iter().enumerate() {
            let reached = plan.reach(domain, seed, request.domain(), index, descriptor);
            plan.reached.push(reached);
        }
        if domain.has_replaces() {
            plan.drop_replaced();
        }
        if plan.charges.len() > 1 {
            plan.charges.sort_by_key(|charge| charge.key);
        }
        plan
    }

    fn reach(
        &mut self,
        domain: &'r DomainRules,
        seed: &Seed,
        domain_name: &str,
        index: usize,
        descriptor: &Descriptor<'_>,
    ) -> Reached<'r> {
        let hits = descriptor.hits;
        let charge = |key, limit| Charge { descriptor: index, key, limit, hits, answer: Answer::Admitted };
        if let Some(own) = descriptor.limit {
            let limit = domain.override_limit(own);
            let key = key(seed, domain_name, descriptor, &[], limit.tag);
            self.charges.push(charge(key, Cow::Owned(limit)));
            return Reached::Override;
        }
        let Some(found) = domain.find(&descriptor.entries) else {
            return Reached::Nothing;
        };
        if found.rule.unlimited {
            return Reached::Unlimited(found.rule);
        }
        for limit in &found.rule.limits {
            let key = key(seed, domain_name, descriptor, &found.shared, limit.tag);
            self.charges.push(charge(key, Cow::Borrowed(limit)));
        }
        if found.rule.limits.is_empty() { Reached::Nothing } else { Reached::Rule(found.rule) }
    }

    /// A limit whose name another matched rule replaces is as if it were not there.
    fn drop_replaced(&mut self) {
        let replaced: SmallVec<[&str; 4]> =
            self.reached.iter().flat_map(|reached| reached.replaces()).collect();
        self.charges
            .retain(|charge| charge.limit.name.is_empty() || !replaced.contains(&&*charge.limit.name));
        for (index, reached) in self.reached.iter_mut().enumerate() {
            if matches!(reached, Reached::Rule(_)) && !self.charges.iter().any(|c| c.descriptor == index) {
                *reached = Reached::Nothing;
            }
        }
    }
}

/// The key of a counter: the domain, the entries with `shared` patterns in the place of their values, and which of the
/// limits of that descriptor it is.
#[inline]
fn key(
    seed: &Seed,
    domain: &str,
    descriptor: &Descriptor<'_>,
    shared: &[(usize, &str)],
    ordinal: u32,
) -> Key {
    let mut fingerprint = Fingerprint::new(seed);
    fingerprint.number(ordinal);
    fingerprint.text(domain);
    for (index, entry) in descriptor.entries.iter().enumerate() {
        fingerprint.text(entry.key);
        match shared.iter().find(|(entry, _)| *entry == index) {
            // A pattern is not a value: the value `a*` of another rule must not meet the pattern `a*` of this one.
            Some((_, pattern)) => {
                fingerprint.number(u32::MAX);
                fingerprint.text(pattern);
            }
            None => fingerprint.text(entry.value),
        }
    }
    fingerprint.finish()
}
