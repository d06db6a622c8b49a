//! Descriptors of a replay to which no limit applied: the domain and the keys of each.

use smol_str::SmolStr;
use tidegate_core::limit::Request;

/// Paths of keys that are kept.
const PATHS_MAX: usize = 64;

/// Descriptors to which no limit applied, by domain and keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Unlimited(Vec<(SmolStr, Vec<SmolStr>)>);

impl Unlimited {
    /// Notes a descriptor, by its index.
    pub(super) fn note(&mut self, request: &Request<'_>, descriptor: usize) {
        let entries = &request.descriptors()[descriptor].entries;
        let is_same = |(domain, keys): &(SmolStr, Vec<SmolStr>)| {
            domain == request.domain() && keys.iter().eq(entries.iter().map(|entry| entry.key))
        };
        if self.0.len() < PATHS_MAX && !self.0.iter().any(is_same) {
            self.0.push((request.domain().into(), entries.iter().map(|entry| entry.key.into()).collect()));
        }
    }

    /// The paths of a domain, as rules without values have them.
    pub(super) fn of_domain(&self, domain: &str) -> Vec<String> {
        let of_domain = self.0.iter().filter(|(of, _)| of == domain);
        of_domain.map(|(_, keys)| keys.join(" → ")).collect()
    }
}
