//! Replacing the rules in force, and freeing the numbers of unused limits.
//!
//! New rules are built upon those in force, so that counters keep their meaning. [`NextRules`] can be made in no other way, and at most one
//! [`RuleUpdate`] exists at a time: two sources of rules cannot overtake each other.

use super::{
    in_force::{InForce, Limiter, Pinned},
    keys::Seeds,
    shared_resets::SharedResets,
};
use crate::{
    rules::{LimitIdentity, LoadOptions, RuleErrors, RuleSet, Source},
    store::Seed,
    sync::{ArcSwap, MutexGuard, guard},
};
use std::{collections::HashSet, sync::Arc};

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

/// Replaced rules. Decisions that began under them may still refer to them: if this is dropped first, the last such decision frees the
/// memory.
#[must_use = "the last decision under these rules would free their memory"]
pub struct RetiredRules(pub(super) Arc<InForce>);

impl Limiter {
    /// Replaced rules, for decisions that began under them.
    pub fn pin_retired(&self, rules: &RetiredRules) -> Pinned<'_> {
        Pinned { in_force: guard(Arc::clone(&rules.0)), limiter: self }
    }

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

    /// Drops the counters of bans that the rules in force do not have, a few pages under each lock; returns how many. A start with counters
    /// of a former process must call it once all of its rules are in force, and before the first decision: rules that have a ban again later
    /// would else read the counters of the former ban as their own.
    pub fn drop_ended_bans(&self) -> usize {
        let _exclusive = self.updating.lock();
        self.rules().limits().end_restored_bans();
        self.remove_ended_bans()
    }

    /// As [`Self::drop_ended_bans`]. Within a process such counters count for nothing, because a later ban of the same limit has another
    /// epoch. But epochs restart with each process, and the next process would read counters of a snapshot as its own. Rules must not be
    /// replaced meanwhile: numbers of limits keep their meaning.
    fn remove_ended_bans(&self) -> usize {
        let (rules, mut ended) = (self.rules(), HashSet::new());
        let in_force: HashSet<&LimitIdentity> = rules.bans().collect();
        for (id, info) in rules.limits().to_vec() {
            if info.algorithm.is_ban() && !in_force.contains(&info.identity) {
                ended.insert(id);
            }
        }
        match ended.is_empty() {
            true => 0,
            false => self.store.remove_where(|_, counter| ended.contains(&counter.limit())),
        }
    }

    /// Adds resets from before its start.
    pub fn with_shared_resets(mut self, resets: SharedResets) -> Self {
        let former = Arc::clone(&self.in_force.load());
        self.in_force = ArcSwap::from_pointee(former.with_keys(former.keys.seeds(), &Arc::new(resets)));
        self
    }

    /// Puts a secret of the keys in a shared store, and resets, in force; none if they already are. Rules and generation do not change.
    pub fn put_shared_keys(&self, seed: Seed, resets: SharedResets) -> Option<RetiredRules> {
        // Without the lock, since a change of the rules holds it for as long as it reads them.
        let in_force = Arc::clone(&self.in_force.load());
        if **in_force.keys.resets() == resets && in_force.keys.seeds().shared == seed {
            return None;
        }
        let _exclusive = self.updating.lock();
        let former = Arc::clone(&self.in_force.load());
        let seeds = Seeds { local: former.keys.seeds().local.clone(), shared: seed };
        self.in_force.store(Arc::new(former.with_keys(&seeds, &Arc::new(resets))));
        Some(RetiredRules(former))
    }
}

impl<'l> RuleUpdate<'l> {
    /// The rules in force.
    pub fn former(&self) -> &RuleSet {
        &self.former.rules
    }

    /// Builds the next rules from those in force, with these overrides and blocks, or returns every error in them. Does not read the rules
    /// again.
    pub fn build_overlays(
        self,
        overlays: &[Source],
        options: &LoadOptions,
    ) -> Result<NextRules<'l>, RuleErrors> {
        let rules = self.former.rules.successor_with_overlays(overlays, options)?;
        let next = InForce::after(&self.former, rules);
        Ok(NextRules { update: self, next })
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

    /// Puts the rules in force for all decisions that begin from now on. Bans that they do not have end.
    pub fn put_in_force(self) -> RetiredRules {
        let RuleUpdate { limiter, former, _exclusive } = self.update;
        let next = Arc::clone(&self.next.rules);
        limiter.in_force.store(Arc::new(self.next));
        limiter.call_waiting();
        // Most updates leave all bans. Comparing 10,000 takes 1 ms, hashing them 9 ms and more.
        if !former.rules.bans().eq(next.bans()) {
            let in_force: HashSet<&LimitIdentity> = next.bans().collect();
            if former.rules.bans().any(|ban| !in_force.contains(ban)) {
                limiter.remove_ended_bans();
            }
        }
        RetiredRules(former)
    }
}

impl RetiredRules {
    /// Whether decisions no longer refer to them.
    pub fn are_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
