//! Explanations of how the rules apply to a request, for people and tools.
//!
//! Invariant: an explanation agrees with the decisions of the limiter (`tests/it/explain.rs`).

use super::{ConditionalLimits, DomainRules, Explanation, Outcome, Rule, RuleLimit};
use crate::limit::{Descriptor, LimitId};
use std::borrow::Cow;

/// Application of the rules to one descriptor of a request.
#[derive(Clone, PartialEq, Debug)]
pub struct Applied<'r> {
    /// The rule of the descriptor and how it was found; none if the request's own limit applies instead.
    pub matching: Option<Explanation<'r>>,
    /// The limits of the rule, or the request's own.
    pub limits: Vec<AppliedLimit<'r>>,
}

/// A limit of a descriptor.
#[derive(Clone, PartialEq, Debug)]
pub struct AppliedLimit<'r> {
    /// The limit.
    pub limit: Cow<'r, RuleLimit>,
    /// The rule that replaces it in this request: then it does not apply, and counts nothing.
    pub replaced_by: Option<&'r Rule>,
    /// Whether its `when` does not hold for this request: likewise.
    pub is_unmet: bool,
}

impl<'r> AppliedLimit<'r> {
    /// A limit that applies.
    fn new(limit: Cow<'r, RuleLimit>) -> Self {
        Self { limit, replaced_by: None, is_unmet: false }
    }
}

impl<'r> Applied<'r> {
    /// A descriptor with this outcome after these steps.
    fn new(matching: Explanation<'r>) -> Self {
        let limits: Vec<&RuleLimit> = match &matching.outcome {
            Outcome::Reached(rule) if !rule.unlimited => rule.limits.iter().collect(),
            Outcome::Conditional(limits) => limits.iter().map(|limit| limit.limit()).collect(),
            _ => Vec::new(),
        };
        let limits = limits.into_iter().map(|limit| AppliedLimit::new(Cow::Borrowed(limit))).collect();
        Self { matching: Some(matching), limits }
    }

    /// The rule of the descriptor, if it has one.
    pub fn rule(&self) -> Option<&'r Rule> {
        match &self.matching.as_ref()?.outcome {
            Outcome::Reached(rule) => Some(rule),
            Outcome::Conditional(limits) => limits.first().map(|limit| &limit.rule),
            _ => None,
        }
    }

    /// The limits that apply.
    pub fn in_force(&self) -> impl Iterator<Item = &RuleLimit> {
        let applies = |limit: &&AppliedLimit<'_>| limit.replaced_by.is_none() && !limit.is_unmet;
        self.limits.iter().filter(applies).map(|limit| &*limit.limit)
    }

    /// Whether a limit applies, whatever is done when it is exceeded.
    pub fn is_limited(&self) -> bool {
        self.in_force().next().is_some() || self.is_with_request()
    }

    /// Whether another descriptor has its limits, which are those of the whole request.
    fn is_with_request(&self) -> bool {
        self.matching.as_ref().is_some_and(|matching| matching.outcome == Outcome::WithRequest)
    }

    /// Whether exceeding a limit is counted and reported, but denies nothing.
    pub fn is_shadow(&self) -> bool {
        self.is_limited() && self.rule().is_some_and(|rule| rule.shadow)
    }

    /// Whether it denies only if every other quota descriptor of the request is over its limit too.
    pub fn is_quota(&self) -> bool {
        self.is_limited() && self.rule().is_some_and(|rule| rule.info.quota)
    }
}

impl DomainRules {
    /// Applies the rules to a request with these descriptors, whatever their hits, and explains each step.
    pub fn explain_request(&self, descriptors: &[Descriptor<'_>]) -> Vec<Applied<'_>> {
        if let Some(limits) = self.conditional() {
            return self.explain_conditional(limits, descriptors);
        }
        let mut all: Vec<Applied<'_>> = descriptors.iter().map(|one| self.apply(one)).collect();
        for limit in all.iter_mut().flat_map(|applied| &mut applied.limits) {
            limit.is_unmet = !limit.limit.applies(descriptors);
        }
        let is_in_force = |applied: &&Applied<'_>| {
            applied.limits.is_empty() || applied.limits.iter().any(|limit| !limit.is_unmet)
        };
        // Each with the limits whose conditions do not hold: these replace none.
        let rules = all.iter().filter(is_in_force).filter_map(|applied| {
            let unmet = applied.limits.iter().filter(|limit| limit.is_unmet).map(|limit| limit.limit.id);
            Some((applied.rule()?, unmet.collect()))
        });
        let rules: Vec<(&Rule, Vec<LimitId>)> = rules.collect();
        for limit in all.iter_mut().flat_map(|applied| &mut applied.limits) {
            let name = &limit.limit.name;
            let replaces = |(rule, unmet): &(&Rule, Vec<LimitId>)| {
                rule.replaced(|limit| !unmet.contains(&limit.id)).any(|replaced| *replaced == **name)
            };
            let by = rules.iter().find(|&rule| replaces(rule)).filter(|_| !name.is_empty());
            limit.replaced_by = by.map(|(rule, _)| *rule);
        }
        all
    }

    /// Limits that apply by conditions belong to the first descriptor without an override or a block.
    fn explain_conditional<'r>(
        &'r self,
        limits: &'r ConditionalLimits,
        descriptors: &[Descriptor<'_>],
    ) -> Vec<Applied<'r>> {
        let mut of_request = Vec::new();
        limits.for_request(descriptors, |limit, _| of_request.push(limit));
        let of_others =
            if of_request.is_empty() { Outcome::Conditional(Vec::new()) } else { Outcome::WithRequest };
        let mut of_request = Some(Outcome::Conditional(of_request));
        let outcome = |descriptor: &Descriptor<'_>| match self.overlaid(&descriptor.entries) {
            Some(rule) => Outcome::Reached(rule),
            None => of_request.take().unwrap_or_else(|| of_others.clone()),
        };
        let outcomes = descriptors.iter().map(outcome);
        outcomes.map(|outcome| Applied::new(Explanation { steps: Vec::new(), outcome })).collect()
    }

    fn apply(&self, descriptor: &Descriptor<'_>) -> Applied<'_> {
        match descriptor.limit {
            Some(own) if self.overlaid(&descriptor.entries).is_none() => {
                let limit = Cow::Owned(self.own_limit(own, &descriptor.entries));
                Applied { matching: None, limits: vec![AppliedLimit::new(limit)] }
            }
            _ => Applied::new(self.explain(&descriptor.entries)),
        }
    }
}
