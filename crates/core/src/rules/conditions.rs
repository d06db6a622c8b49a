//! Limits of a domain that apply by conditions: those of a LIMITS_FILE, in the form of Limitador's.
//!
//! Every limit applies whose conditions hold and whose variables all have values; each list of values has a counter of its own. The
//! limits are not a tree: several may apply to one request, whatever the order of its entries.
//!
//! A limit with a condition of the form `descriptors[N]["KEY"] == "VALUE"` is found by the hash of that entry. Its other conditions, and
//! limits without such a condition, are evaluated for each request.

use super::{
    Rule, RuleLimit,
    error::Problems,
    expressions::{Requested, names_of},
};
use crate::limit::Descriptor;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::{borrow::Cow, hash::BuildHasher as _, sync::Arc};
use tidegate_cel::{Descriptors, Expression, LimitNames, RequiredEntry};

/// A limit with its conditions.
#[derive(Clone, PartialEq, Debug)]
pub struct ConditionalLimit {
    /// A rule with this limit alone. Its path is made of window, conditions and variables, and is therefore its identity.
    pub rule: Rule,
    /// All must hold.
    pub conditions: Box<[Expression]>,
    /// All must have values; sorted by their texts.
    pub variables: Box<[Expression]>,
    /// Its `id`.
    pub id: Option<Box<str>>,
}

/// The limits of a domain that apply by conditions.
#[derive(Clone, PartialEq, Debug)]
pub struct ConditionalLimits {
    limits: Box<[ConditionalLimit]>,
    /// Indices of limits, by the hash of an entry that each requires. Another entry may have the same hash: all conditions are
    /// evaluated.
    by_entry: HashMap<u64, SmallVec<[u32; 2]>, FixedState>,
    /// Indices of all other limits.
    others: Box<[u32]>,
}

/// Values of variables.
type VariableValues<'d> = SmallVec<[Cow<'d, str>; 4]>;

impl ConditionalLimit {
    /// The only limit of the rule.
    pub fn limit(&self) -> &RuleLimit {
        &self.rule.limits[0]
    }

    fn names(&self) -> LimitNames<'_> {
        LimitNames { id: self.id.as_deref(), ..names_of(&self.limit().name) }
    }

    /// The values of its variables if it applies.
    fn values<'d>(&'d self, descriptors: &dyn Descriptors<'d>) -> Option<VariableValues<'d>> {
        let names = self.names();
        if !self.conditions.iter().all(|condition| condition.holds(descriptors, names)) {
            return None;
        }
        self.variables.iter().map(|variable| variable.text(descriptors, names)).collect()
    }
}

impl ConditionalLimits {
    /// The limits in the order of the files; none if there are none. Limits that differ in neither window, conditions nor variables are
    /// reported.
    pub(super) fn compile(limits: Vec<ConditionalLimit>, problems: &Problems) -> Option<Box<Self>> {
        if limits.is_empty() {
            return None;
        }
        let mut paths: HashMap<Arc<str>, usize, FixedState> = HashMap::default();
        let mut by_entry: HashMap<u64, SmallVec<[u32; 2]>, FixedState> = HashMap::default();
        let mut others = Vec::new();
        for (index, limit) in limits.iter().enumerate() {
            if let Some(first) = paths.insert(Arc::clone(&limit.rule.info.path), index) {
                let first = &limits[first].rule.origin;
                let message =
                    format!("the same seconds, conditions and variables as at {first}; keep one of the two");
                problems.at(&limit.rule.origin, "", message);
            }
            match limit.conditions.iter().find_map(Expression::required_entry) {
                Some(entry) => by_entry.entry(hash(entry)).or_default().push(index as u32),
                None => others.push(index as u32),
            }
        }
        Some(Box::new(Self { limits: limits.into(), by_entry, others: others.into() }))
    }

    /// Every limit, in the order of the files.
    pub fn iter(&self) -> std::slice::Iter<'_, ConditionalLimit> {
        self.limits.iter()
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, ConditionalLimit> {
        self.limits.iter_mut()
    }

    /// The rule of one of these limits.
    pub(crate) fn rule_of(&self, limit: &RuleLimit) -> Option<&Rule> {
        let of = |one: &&ConditionalLimit| one.limit().id == limit.id && one.limit().index == limit.index;
        self.limits.iter().find(of).map(|found| &found.rule)
    }

    /// Calls `apply` with every limit that applies to a request with these descriptors, in the order of the files, and the values of its
    /// variables.
    pub fn for_request<'r>(
        &'r self,
        descriptors: &[Descriptor<'_>],
        mut apply: impl FnMut(&'r ConditionalLimit, &[Cow<'_, str>]),
    ) {
        let descriptors = Requested(descriptors);
        let mut candidates: SmallVec<[u32; 16]> = SmallVec::from_slice(&self.others);
        if !self.by_entry.is_empty() {
            for descriptor in 0..descriptors.len() {
                for entry in 0..descriptors.entries(descriptor) {
                    let (key, value) = descriptors.entry(descriptor, entry);
                    let found = self.by_entry.get(&hash(RequiredEntry { descriptor, key, value }));
                    candidates.extend(found.into_iter().flatten().copied());
                }
            }
            candidates.sort_unstable();
            // An entry may be repeated.
            candidates.dedup();
        }
        for &candidate in &candidates {
            let limit = &self.limits[candidate as usize];
            if let Some(values) = limit.values(&descriptors) {
                apply(limit, &values);
            }
        }
    }
}

fn hash(entry: RequiredEntry<'_>) -> u64 {
    // Secret keys are in vain here: a collision costs the evaluation of one condition.
    FixedState::with_seed(0).hash_one(entry)
}
