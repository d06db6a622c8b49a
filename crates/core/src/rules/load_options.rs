//! Options for reading rule files.

use super::{Semantics, grammar::DefaultAlgorithm, series::SERIES_MAX_DEFAULT};

/// Options for reading rule files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadOptions {
    /// `Reference`: rules default to the fixed windows of the reference server, and charge everything; resets are always as in the
    /// reference server.
    pub semantics: Semantics,
    /// The algorithm of rules that name none; by default that of the semantics. Limits sent with requests do not follow it.
    pub default_algorithm: Option<DefaultAlgorithm>,
    /// Several files may add to one domain. Without it, a domain in two files is an error.
    pub merge_domains: bool,
    /// Counters are in a shared store, except those of domains with `counters: local`: rules that it cannot count are errors.
    pub shared_counters: bool,
    /// Counters in the store are leased, as quotas of RLQS are.
    pub leases: bool,
    /// Names of limits that have a series of their own in metrics.
    pub series_max: usize,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            semantics: Semantics::default(),
            default_algorithm: None,
            merge_domains: false,
            shared_counters: false,
            leases: true,
            series_max: SERIES_MAX_DEFAULT,
        }
    }
}
