//! Deciding: rules, counters, a request and a time in; a decision out. No IO, no clock, no error.
//!
//! What always holds:
//!
//! - A request is charged as a whole or not at all: what a denied request asked for is still there, in its own counters
//!   and in those of its siblings. Only a rule that says `charge: always` counts a denied request.
//! - Descriptors that share a counter are decided by the sum of their hits.
//! - Never more hits are admitted than the algorithm allows, by any number of threads: all counters of a request are
//!   locked while it is decided.

mod charge;
mod counters;
mod decide;
mod status;
#[cfg(test)]
mod tests;

use crate::{
    limit::{Decision, Request, Timestamp},
    rules::RuleSet,
    store::{Store, StoreSettings},
};
use arc_swap::{ArcSwap, Guard};
use std::sync::Arc;

/// The rules in force and the counters.
pub struct Limiter {
    rules: ArcSwap<RuleSet>,
    store: Store,
    global_shadow: bool,
}

/// The limiter with the rules of one moment: a decision refers to them.
pub struct Pinned<'l> {
    rules: Guard<Arc<RuleSet>>,
    limiter: &'l Limiter,
}

impl Limiter {
    /// A limiter without counters. With `global_shadow` every request is admitted, and the statuses say what would have
    /// been denied.
    pub fn new(rules: RuleSet, store: StoreSettings, global_shadow: bool) -> Self {
        Self { rules: ArcSwap::from_pointee(rules), store: Store::new(store), global_shadow }
    }

    /// The rules as they are now, for one or more decisions.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        Pinned { rules: self.rules.load(), limiter: self }
    }

    /// Puts new rules in force. They must have been built upon those in force, so that counters keep their meaning.
    pub fn replace_rules(&self, rules: RuleSet) {
        self.rules.store(Arc::new(rules));
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.load_full()
    }

    /// The counters.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl Pinned<'_> {
    /// Decides one request, and charges it if it is admitted.
    #[inline]
    pub fn decide(&self, request: &Request<'_>, now: Timestamp) -> Decision<'_> {
        decide::decide(&self.rules, &self.limiter.store, self.limiter.global_shadow, request, now)
    }
}
