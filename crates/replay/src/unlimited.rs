//! Descriptors of a replay without a limit: the domain and the keys of each.

use smol_str::SmolStr;
use tidegate_core::limit::Request;

/// The most paths of keys that are kept.
const PATHS_MAX: usize = 64;

/// Descriptors without a limit, by domain and keys.
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

    /// The paths of a domain, in the form of rules without values.
    pub(super) fn of_domain(&self, domain: &str) -> Vec<String> {
        let of_domain = self.0.iter().filter(|(of, _)| of == domain);
        of_domain.map(|(_, keys)| keys.join(" → ")).collect()
    }
}
