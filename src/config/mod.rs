//! Where rules come from: the one owner of the rules in force, and the feeds that hand it declarations.
//!
//! A feed (the rule files, xDS, overrides) hands over everything it declares. The owner merges that with what the other
//! feeds declared last, builds it upon the rules in force, and puts the result in force, or leaves the rules as they are
//! and reports every error.
//!
//! Invariants: the rules in force were built from the last good declarations of every feed; all or nothing of what a feed
//! hands over takes effect; two feeds at once take effect one after the other.

pub mod describe;
mod rule_files;
mod status;
#[cfg(test)]
mod tests;
pub mod watch;

pub use rule_files::{ReloadRequests, RuleFiles};
pub use status::{Attempt, LoadResult, RulesStatus};

use crate::{
    limit::Timestamp,
    limiter::{Limiter, RetiredRules},
    rules::{LoadOptions, RuleChanges, RuleErrors, Source},
    sync::Mutex,
};
use std::{collections::BTreeMap, sync::Arc};

/// Where declarations come from. They are merged in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Feed {
    /// Rule files.
    Files,
    /// Resources of an xDS server.
    Xds,
    /// Overrides set at run time.
    Overrides,
}

impl Feed {
    /// The name in logs and in `GET /rules/status`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Xds => "xds",
            Self::Overrides => "overrides",
        }
    }
}

/// The owner of the rules in force.
pub struct Config {
    limiter: Arc<Limiter>,
    options: LoadOptions,
    state: Mutex<State>,
}

struct State {
    /// The last good declarations of each feed.
    declared: BTreeMap<Feed, Vec<Source>>,
    /// Replaced rules to which decisions may still refer. They are freed here, not by the last of those decisions.
    retired: Vec<RetiredRules>,
    status: RulesStatus,
}

impl Config {
    /// The owner of a limiter's rules, which were built from these declarations of one feed.
    pub fn new(
        limiter: Arc<Limiter>,
        options: LoadOptions,
        feed: Feed,
        sources: Vec<Source>,
        now: Timestamp,
    ) -> Self {
        let declared = BTreeMap::from([(feed, sources)]);
        let mut status = RulesStatus::default();
        status.loaded(&limiter.rules(), all_of(&declared), now);
        let state = Mutex::new(State { declared, retired: Vec::new(), status });
        Self { limiter, options, state }
    }

    /// Puts the declarations of one feed in the place of those it handed over before; returns what changed. After an
    /// error everything stays as it was.
    pub fn replace(
        &self,
        feed: Feed,
        sources: Vec<Source>,
        now: Timestamp,
    ) -> Result<RuleChanges, Arc<RuleErrors>> {
        let state = &mut *self.state.lock();
        if state.declared.get(&feed) == Some(&sources) {
            state.status.unchanged(feed, now);
            return Ok(RuleChanges::default());
        }
        let mut declared = state.declared.clone();
        declared.insert(feed, sources);
        let all: Vec<Source> = all_of(&declared).cloned().collect();
        let next = match self.limiter.update_rules().build(&all, &self.options) {
            Ok(next) => next,
            Err(errors) => return Err(state.status.failed(feed, errors, now)),
        };
        let changes = RuleChanges::between(next.former(), next.rules());
        state.retired.push(next.put_in_force());
        state.declared = declared;
        state.status.loaded(&self.limiter.rules(), all_of(&state.declared), now);
        state.status.replaced(feed, now);
        Ok(changes)
    }

    /// Notes that a feed could not hand over its declarations: the rules stay.
    pub fn failed(&self, feed: Feed, errors: RuleErrors, now: Timestamp) -> Arc<RuleErrors> {
        self.state.lock().status.failed(feed, errors, now)
    }

    /// Frees replaced rules that no decision refers to any more, and the numbers of limits that nothing uses. To be called
    /// now and then by a thread that makes no decisions. Returns whether there may be more to free soon.
    pub fn free_unused(&self) -> bool {
        let (unused, more) = {
            let state = &mut *self.state.lock();
            let (unused, used): (Vec<_>, Vec<_>) =
                std::mem::take(&mut state.retired).into_iter().partition(RetiredRules::are_unused);
            state.retired = used;
            (unused, !state.retired.is_empty())
        };
        drop(unused);
        self.limiter.collect_limits();
        more
    }

    /// What is in force, and how the last attempts to change it ended.
    pub fn status(&self) -> RulesStatus {
        self.state.lock().status.clone()
    }

    /// The last good declarations of all feeds, in the order in which they are merged.
    pub fn sources(&self) -> Vec<Source> {
        all_of(&self.state.lock().declared).cloned().collect()
    }

    /// The limiter whose rules these are.
    pub fn limiter(&self) -> &Arc<Limiter> {
        &self.limiter
    }
}

fn all_of(declared: &BTreeMap<Feed, Vec<Source>>) -> impl Iterator<Item = &Source> {
    declared.values().flatten()
}
