//! Replacing the rules in force, and freeing the numbers of limits that nothing uses any more.
//!
//! New rules are built upon those in force, so that counters keep their meaning. [`NextRules`] can be made in no other
//! way, and while one [`RuleUpdate`] exists no other one does: two sources of rules cannot overtake each other.

use super::{InForce, Limiter};
use crate::{
    rules::{LoadOptions, RuleErrors, RuleSet, Source},
    sync::MutexGuard,
};
use std::sync::Arc;

/// The exclusive right to replace the rules in force.
pub struct RuleUpdate<'l> {
    limiter: &'l Limiter,
    former: Arc<InForce>,
    _exclusive: MutexGuard<'l, ()>,
}

/// Rules built upon those in force, ready to replace them.
pub struct NextRules<'l> {
    update: RuleUpdate<'l>,
    next: InForce,
}

/// Rules that were replaced. Decisions that began under them may still refer to them; dropping this earlier than they do
/// leaves it to the last of them to free the memory.
#[must_use = "the last decision under these rules would free their memory"]
pub struct RetiredRules(pub(super) Arc<InForce>);

impl Limiter {
    /// Begins to replace the rules; waits until no other update exists.
    pub fn update_rules(&self) -> RuleUpdate<'_> {
        let exclusive = self.updating.lock();
        RuleUpdate { limiter: self, former: Arc::clone(&self.in_force.load()), _exclusive: exclusive }
    }

    /// Frees the numbers of limits that neither rules nor counters refer to, and returns how many; none if a snapshot is
    /// being written, or [too little](crate::rules::LimitTable::is_collection_due) has changed. Reads every counter, a
    /// few pages under each lock.
    pub fn collect_limits(&self) -> Option<usize> {
        let rules = self.rules();
        if !rules.limits().is_collection_due() {
            return None;
        }
        rules.limits().collect(|mark| {
            self.store.visit_limits(mark);
            self.queues.lock().visit_limits(mark);
        })
    }
}

impl<'l> RuleUpdate<'l> {
    /// The rules in force.
    pub fn former(&self) -> &RuleSet {
        &self.former.rules
    }

    /// Builds the next rules, or returns every error in their sources.
    pub fn build(self, sources: &[Source], options: &LoadOptions) -> Result<NextRules<'l>, RuleErrors> {
        let rules = self.former.rules.successor(sources, options)?;
        let next = InForce::after(&self.former, rules);
        Ok(NextRules { update: self, next })
    }
}

impl NextRules<'_> {
    /// The rules in force.
    pub fn former(&self) -> &RuleSet {
        self.update.former()
    }

    /// The rules that will be in force.
    pub fn rules(&self) -> &RuleSet {
        &self.next.rules
    }

    /// Number of the rules that will be in force: 1 for the first of a limiter, and one more for each that replaces them.
    pub fn generation(&self) -> u64 {
        self.next.generation
    }

    /// Puts the rules in force: decisions that begin from now on are made under them.
    pub fn put_in_force(self) -> RetiredRules {
        let RuleUpdate { limiter, former, _exclusive } = self.update;
        limiter.in_force.store(Arc::new(self.next));
        limiter.call_waiting();
        RetiredRules(former)
    }
}

impl RetiredRules {
    /// Whether no decision refers to them any more.
    pub fn are_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
