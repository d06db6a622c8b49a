//! The collected results of a check: the descriptors that are sent, with their limits, and the findings.

use super::{
    charges::Charges,
    finding::Findings,
    reach::{Reach, Shape},
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tidegate_core::{
    limit::RequestLimit,
    rules::{DomainRules, Origin, RuleSet},
};

/// Facts common to the descriptors of a route.
pub(super) struct Shapes<'a, 'b> {
    pub(super) domain: &'a str,
    pub(super) place: &'b str,
}

/// A descriptor that an entry of `rate_limits` sends.
#[derive(Debug)]
pub struct SentDescriptor<'r> {
    /// Place of the entry.
    pub at: Origin,
    /// The domain of the calls.
    pub domain: String,
    /// Its entries.
    pub descriptor: String,
    /// Whether it is sent at the end of requests.
    pub is_at_end: bool,
    /// The routes that send it: `listener/virtual host/route`.
    pub places: Vec<String>,
    /// The limits that it reaches.
    pub reach: Reach<'r>,
}

/// Collects what a configuration sends.
pub(super) struct Collected<'r> {
    pub(super) rules: &'r RuleSet,
    pub(super) findings: Findings,
    pub(super) sent: Vec<SentDescriptor<'r>>,
    /// Indices of `sent`.
    known: HashMap<(Origin, String, String), usize>,
    /// The limits of the descriptors of each domain.
    reaches: HashMap<(String, String), Reach<'r>>,
    /// The descriptors of each domain that is sent.
    pub(super) shapes: BTreeMap<String, Vec<Shape>>,
    /// The descriptors with a limit, by the effect of their hits.
    pub(super) charges: Charges,
    /// The domains with descriptors that are unknown.
    pub(super) incomplete: BTreeSet<String>,
    /// Whether a filter has a configuration that is not read here, and so possibly a domain.
    pub(super) has_unread: bool,
}

impl<'r> Collected<'r> {
    pub(super) fn new(rules: &'r RuleSet) -> Self {
        Self {
            rules,
            findings: Findings::default(),
            sent: Vec::new(),
            known: HashMap::new(),
            reaches: HashMap::new(),
            shapes: BTreeMap::new(),
            charges: Charges::default(),
            incomplete: BTreeSet::new(),
            has_unread: false,
        }
    }

    /// Returns the limits of a descriptor, and notes that it is sent, possibly with a limit.
    pub(super) fn add(
        &mut self,
        shapes: &Shapes<'_, '_>,
        shape: &Shape,
        at: Origin,
        is_at_end: bool,
        limit: Option<RequestLimit>,
    ) -> Reach<'r> {
        let descriptor = shape.to_string();
        let domain = shapes.domain.to_owned();
        let reach = match self.reaches.get(&(domain.clone(), descriptor.clone())) {
            Some(reach) => reach.clone(),
            None => {
                let reach = match self.rules.domain(&domain) {
                    Some(rules) => shape.reach(rules),
                    None => Reach::Nothing(format!("the rules have no domain {domain:?}")),
                };
                self.reaches.insert((domain.clone(), descriptor.clone()), reach.clone());
                self.shapes.entry(domain.clone()).or_default().push(shape.clone());
                reach
            }
        };
        // Conditional limits apply whatever the request sends.
        let has_rules = |rules: &DomainRules| rules.conditional().is_none() && !shape.is_ticket();
        let reach = match limit.filter(|_| self.rules.domain(&domain).is_some_and(has_rules)) {
            Some(limit) => Reach::OfRequest(limit),
            None => reach,
        };
        let places = vec![shapes.place.to_owned()];
        self.note(SentDescriptor { at, domain, descriptor, is_at_end, places, reach: reach.clone() });
        reach
    }

    /// Notes a descriptor, at one place.
    pub(super) fn note(&mut self, sent: SentDescriptor<'r>) {
        let key = (sent.at.clone(), sent.domain.clone(), sent.descriptor.clone());
        let index = *self.known.entry(key).or_insert(self.sent.len());
        match self.sent.get_mut(index) {
            Some(known) if known.places.contains(&sent.places[0]) => {}
            Some(known) => known.places.extend(sent.places),
            None => self.sent.push(sent),
        }
    }
}
