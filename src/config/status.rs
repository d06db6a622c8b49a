//! The rules in force and the attempts to change them, for logs, metrics and `GET /rules/status`.

use super::Feed;
use crate::{
    limit::Timestamp,
    rules::{RuleErrors, RuleSet, Source, SourceId},
};
use std::sync::Arc;

/// The rules in force, and the results of attempts to change them.
#[derive(Clone, Debug, Default)]
pub struct RulesStatus {
    /// Number of rule sets put in force, including the first.
    pub generation: u64,
    /// Time of the last of them.
    pub loaded_at: Timestamp,
    /// The documents that they were built from.
    pub sources: Arc<[SourceId]>,
    /// Domains in force.
    pub domains: usize,
    /// Rules in force.
    pub rules: usize,
    /// Limits in force, those of requests not counted.
    pub limits: usize,
    /// Feeds that put rules in force after the first load.
    pub feeds: Vec<Feed>,
    /// Attempts after the first load that put rules in force.
    pub succeeded: u64,
    /// Attempts that found nothing changed.
    pub unchanged: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// The last attempt to change the rules; none before the first.
    pub last: Option<Attempt>,
}

/// One attempt to change the rules.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The feed with declarations that changed, or may have changed.
    pub feed: Feed,
    /// Time of its end.
    pub at: Timestamp,
    /// Its result.
    pub result: LoadResult,
}

/// Result of an attempt.
#[derive(Clone, Debug)]
pub enum LoadResult {
    /// Other rules are in force.
    Loaded,
    /// The declarations are those in force.
    Unchanged,
    /// The rules stay, because of these errors.
    Failed(Arc<RuleErrors>),
}

impl RulesStatus {
    pub(super) fn loaded(&mut self, rules: &RuleSet, sources: &[Source], now: Timestamp) {
        self.generation += 1;
        self.loaded_at = now;
        self.sources = sources.iter().map(|source| source.id.clone()).collect();
        self.domains = rules.domains().count();
        self.rules = rules.domains().map(|domain| domain.rules_unsorted().len()).sum();
        self.limits = rules.rule_limits_unsorted().count();
    }

    pub(super) fn replaced(&mut self, feed: Feed, now: Timestamp) {
        self.succeeded += 1;
        if !self.feeds.contains(&feed) {
            self.feeds.push(feed);
        }
        self.last = Some(Attempt { feed, at: now, result: LoadResult::Loaded });
    }

    pub(super) fn unchanged(&mut self, feed: Feed, now: Timestamp) {
        self.unchanged += 1;
        self.last = Some(Attempt { feed, at: now, result: LoadResult::Unchanged });
    }

    pub(super) fn failed(&mut self, feed: Feed, errors: RuleErrors, now: Timestamp) -> Arc<RuleErrors> {
        self.failed += 1;
        let errors = Arc::new(errors);
        self.last = Some(Attempt { feed, at: now, result: LoadResult::Failed(Arc::clone(&errors)) });
        errors
    }
}
