//! The redaction of each key of a domain.

use crate::rules::{
    Redaction,
    grammar::{Declared, DeclaredKey},
    pattern::Pattern,
};
use std::collections::BTreeMap;

/// The redaction that the descriptors of one domain declare for their keys.
///
/// A key has one redaction in a domain, the strictest that any of its descriptors declares: a value must not be logged
/// plainly because the request that has it matches another descriptor, or none.
#[derive(Clone, Debug, Default)]
pub(super) struct Redactions {
    exact: BTreeMap<Box<str>, Redaction>,
    wildcards: Vec<(Pattern, Redaction)>,
}

impl Redactions {
    pub(super) fn new(declared: &[Declared]) -> Self {
        let mut redactions = Self::default();
        redactions.add(declared);
        redactions
    }

    fn add(&mut self, declared: &[Declared]) {
        for Declared { key, redaction, below, .. } in declared {
            match (key, *redaction) {
                (_, None) => {}
                (DeclaredKey::Exact(key), Some(redaction)) => {
                    let strictest = self.exact.entry(key.clone()).or_insert(redaction);
                    *strictest = redaction.max(*strictest);
                }
                (DeclaredKey::Wildcard(pattern), Some(redaction)) => {
                    self.wildcards.push((pattern.clone(), redaction));
                }
            }
            self.add(below);
        }
    }

    /// Whether the values of some key are not written as they are.
    pub(super) fn redact(&self) -> bool {
        let wildcards = self.wildcards.iter().map(|(_, redaction)| redaction);
        self.exact.values().chain(wildcards).any(|redaction| *redaction != Redaction::Plain)
    }

    /// None if no descriptor of the key declares one.
    pub(super) fn of(&self, key: &str) -> Option<Redaction> {
        let exact = self.exact.get(key).copied();
        let matching = self.wildcards.iter().filter(|(pattern, _)| pattern.matches(key));
        exact.into_iter().chain(matching.map(|(_, redaction)| *redaction)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{LoadOptions, RuleSet, Source};

    #[test]
    fn the_strictest_redaction_of_a_key_holds_in_the_whole_domain() {
        let text = "
domain: d
descriptors:
  - { key: email, value: a, log: hash, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: email, log: plain }
  - { key: tier, log: plain, descriptors: [{ key: email, log: omit }, { key: id }] }
  - { key: x-*, log: hash }
";
        let rules = RuleSet::parse(&[Source::file("r.yaml", text)], &LoadOptions::default()).expect("valid");
        let of = |key: &str| rules.domain("d").expect("declared").redaction(key);
        assert_eq!(of("email"), Some(Redaction::Omit));
        assert_eq!(of("tier"), Some(Redaction::Plain));
        assert_eq!(of("x-forwarded-for"), Some(Redaction::Hash));
        assert_eq!((of("id"), of("other")), (None, None));
        assert!(rules.domain("d").expect("declared").redacts_values());
    }
}
