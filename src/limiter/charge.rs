//! What a request asks of which counters.

use super::keys::Keys;
use crate::{
    limit::{CurrentLimit, Descriptor, Hits, Request, Reset, RuleInfo},
    rules::{Charge as ChargeRule, DomainRules, Rule, RuleLimit},
    store::Key,
};
use smallvec::SmallVec;
use std::ops::Deref;

/// So many charges of a request, and whatever there is one of for each, are kept without allocating.
pub(super) const INLINE: usize = 4;

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

    /// What answers can say of the rule whose limits these are.
    pub(super) fn rule_info(self) -> Option<&'r RuleInfo> {
        if let Self::Rule(rule) = self { Some(&rule.info) } else { None }
    }

    /// Whether it denies only together with every other quota rule.
    pub(super) fn is_quota(self) -> bool {
        matches!(self, Self::Rule(rule) if rule.info.quota)
    }
}

/// A descriptor's place in the rules, and what became of it.
#[derive(Clone, Copy)]
pub(super) struct DescriptorPlan<'r> {
    /// What it reached.
    pub(super) reached: Reached<'r>,
    /// How many charges it has; they are neighbours.
    pub(super) charges: u32,
    /// Whether a limit of it does not admit; whatever shadow or quota make of it.
    pub(super) is_over: bool,
}

/// The limit of a charge: a rule's, or the request's own.
pub(super) enum ChargeLimit<'r> {
    /// A rule's.
    Rule(&'r RuleLimit),
    /// The request's own; boxed, since it is rare and large.
    Override(Box<RuleLimit>),
}

impl Deref for ChargeLimit<'_> {
    type Target = RuleLimit;

    #[inline]
    fn deref(&self) -> &RuleLimit {
        match self {
            Self::Rule(limit) => limit,
            Self::Override(limit) => limit,
        }
    }
}

/// The hits that one descriptor asks of one counter.
pub(super) struct Charge<'r> {
    /// The counter.
    pub(super) key: Key,
    /// What limits it.
    pub(super) limit: ChargeLimit<'r>,
    /// What is asked.
    pub(super) hits: Hits,
    /// Index of the descriptor in the request.
    pub(super) descriptor: u32,
    /// What its counter says to it.
    pub(super) outcome: Outcome,
    /// After the decision: hits that would be admitted then; none if there is no room for the counter.
    pub(super) remaining: u64,
    /// After the decision: when that changes. None if nobody knows.
    pub(super) reset: Option<Reset>,
}

/// Hits asked of one counter, summed over its charges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HitSum {
    pub(super) taken: u64,
    pub(super) given: u64,
}

impl HitSum {
    pub(super) const NOTHING: Self = Self { taken: 0, given: 0 };

    #[inline]
    pub(super) fn add(&mut self, hits: Hits) {
        match hits {
            Hits::Take(hits) => self.taken = self.taken.saturating_add(hits.get()),
            Hits::GiveBack(hits) => self.given = self.given.saturating_add(hits.get()),
            Hits::Peek => {}
        }
    }
}

/// What a counter says to a charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The hits fit. Until it is evaluated, a charge is taken to.
    Admitted,
    /// They do not.
    Over,
    /// They might, but there is no room to make the counter.
    NoRoom,
}

impl<'r> Charge<'r> {
    fn new(key: Key, limit: ChargeLimit<'r>, hits: Hits, descriptor: u32) -> Self {
        Self { key, limit, hits, descriptor, outcome: Outcome::Admitted, remaining: 0, reset: None }
    }

    /// Whether hits are counted even when the request is denied.
    pub(super) fn is_always(&self) -> bool {
        self.limit.charge == ChargeRule::Always
    }

    /// The limit as a status reports it.
    pub(super) fn current(&self) -> CurrentLimit<'r> {
        match &self.limit {
            ChargeLimit::Rule(limit) => limit.current(),
            ChargeLimit::Override(limit) => {
                CurrentLimit { name: "", requests: limit.requests, window: limit.window, unit: limit.unit }
            }
        }
    }
}

/// A request laid out for deciding.
pub(super) struct Plan<'r> {
    /// One for each descriptor.
    pub(super) asking: SmallVec<[DescriptorPlan<'r>; INLINE]>,
    /// In the order of the request; those of one descriptor in the order of its rule.
    pub(super) charges: SmallVec<[Charge<'r>; INLINE]>,
    /// Indices of charges, sorted by key and so by shard: charges of one counter are neighbours, in the order of the
    /// request.
    pub(super) by_key: SmallVec<[u32; INLINE]>,
}

impl<'r> Plan<'r> {
    /// Finds the limits of every descriptor.
    #[inline]
    pub(super) fn new(domain: &'r DomainRules, keys: &Keys, request: &Request<'_>) -> Self {
        let mut plan = Self { asking: SmallVec::new(), charges: SmallVec::new(), by_key: SmallVec::new() };
        for (descriptor, index) in request.descriptors().iter().zip(0..) {
            let before = plan.charges.len();
            let reached = plan.reach(domain, keys, index, descriptor);
            let charges = (plan.charges.len() - before) as u32;
            plan.asking.push(DescriptorPlan { reached, charges, is_over: false });
        }
        if domain.has_replaces() {
            plan.drop_replaced();
        }
        plan.by_key.extend(0..plan.charges.len() as u32);
        if plan.charges.len() > 1 {
            let charges = &plan.charges;
            plan.by_key.sort_by_key(|&index| charges[index as usize].key);
        }
        plan
    }

    #[inline]
    fn reach(
        &mut self,
        domain: &'r DomainRules,
        keys: &Keys,
        index: u32,
        descriptor: &Descriptor<'_>,
    ) -> Reached<'r> {
        let hits = descriptor.hits;
        if let Some(own) = descriptor.limit {
            let limit = Box::new(domain.override_limit(own));
            let key = keys.key(domain, &limit, &descriptor.entries, &[]);
            self.charges.push(Charge::new(key, ChargeLimit::Override(limit), hits, index));
            return Reached::Override;
        }
        let Some(found) = domain.find(&descriptor.entries) else { return Reached::Nothing };
        if found.rule.unlimited {
            return Reached::Unlimited(found.rule);
        }
        for limit in &found.rule.limits {
            let key = keys.key(domain, limit, &descriptor.entries, &found.shared);
            self.charges.push(Charge::new(key, ChargeLimit::Rule(limit), hits, index));
        }
        if found.rule.limits.is_empty() { Reached::Nothing } else { Reached::Rule(found.rule) }
    }

    /// A limit whose name another matched rule replaces is as if it were not there.
    fn drop_replaced(&mut self) {
        let replaced: SmallVec<[&str; 4]> =
            self.asking.iter().flat_map(|asking| asking.reached.replaces()).collect();
        let asking = &mut self.asking;
        self.charges.retain(|charge| {
            let keep = charge.limit.name.is_empty() || !replaced.contains(&&*charge.limit.name);
            let asking = &mut asking[charge.descriptor as usize];
            asking.charges -= u32::from(!keep);
            if asking.charges == 0 {
                asking.reached = Reached::Nothing;
            }
            keep
        });
    }
}
