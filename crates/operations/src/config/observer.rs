//! The observer of rules that are put in force.

use tidegate_core::{
    limit::Timestamp,
    rules::{LoadOptions, Source},
};

/// Rules that are about to be put in force.
#[derive(Clone, Copy, Debug)]
pub struct RulesInForce<'c> {
    /// See [`NextRules::generation`](tidegate_core::limiter::NextRules::generation).
    pub generation: u64,
    /// Their number among the numbers of decisions, lower than that of each decision under them: see
    /// [`Store::next_number`](tidegate_core::store::Store::next_number).
    pub number: u64,
    /// The time.
    pub at: Timestamp,
    /// The interpretation of the documents.
    pub options: &'c LoadOptions,
    /// The documents, in the order in which they are merged.
    pub sources: &'c [Source],
}

/// Observes rules that are put in force, before the first decision under them. No other rules can be put in force during the call: it must
/// not block.
pub type RulesObserver = Box<dyn Fn(RulesInForce<'_>) + Send + Sync>;
