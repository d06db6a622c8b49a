//! The rules in force and the attempts to change them, for logs, metrics and `GET /rules/status`.

use super::feed::Feed;
use std::{collections::BTreeMap, sync::Arc};
use tidegate_core::{
    limit::Timestamp,
    rules::{RuleErrors, RuleSet, Source, SourceId},
};

/// The rules in force, and the results of attempts to change them.
#[derive(Clone, Debug, Default)]
pub struct RulesStatus {
    /// Number of rule sets put in force, including the first.
    pub generation: u64,
    /// Whether the first rule set was empty, because rules were awaited.
    pub began_without_rules: bool,
    /// Successful loads of rules.
    pub loads: u64,
    /// Time of the last successful load.
    pub loaded_at: Timestamp,
    /// The documents from which they were built.
    pub sources: Arc<[SourceId]>,
    /// Domains in force.
    pub domains: usize,
    /// Rules in force.
    pub rules: usize,
    /// Limits in force, without the limits of requests.
    pub limits: usize,
    /// Feeds that put rules in force after the first load.
    pub feeds: Vec<Feed>,
    /// Loads of each feed after the first load.
    pub by_feed: BTreeMap<Feed, FeedLoads>,
    /// Attempts after the first load that put rules in force.
    pub succeeded: u64,
    /// Attempts that found nothing changed.
    pub unchanged: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// The last attempt to change the rules; none before the first.
    pub last: Option<Attempt>,
    /// Errors by feed, if its last attempt failed: the rules in force are not the feed's present rules.
    pub failing: BTreeMap<Feed, Arc<RuleErrors>>,
    /// The feeds whose rules in force were kept by a former process, with the time at which that process put them in force.
    pub kept: BTreeMap<Feed, Timestamp>,
}

/// Loads of one feed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FeedLoads {
    /// Generation of the rules that it put in force last; 0 if there are none.
    pub generation: u64,
    /// Its attempts that failed.
    pub failed: u64,
}

/// One attempt to change the rules.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The feed whose declarations changed, or may have changed.
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
    /// The declarations are the same as in force.
    Unchanged,
    /// The rules stay, because of these errors.
    Failed(Arc<RuleErrors>),
}

impl RulesStatus {
    pub(super) fn loaded(&mut self, rules: &RuleSet, sources: &[Source], now: Timestamp) {
        self.generation += 1;
        self.loads += 1;
        self.loaded_at = now;
        self.sources = sources.iter().map(|source| source.id.clone()).collect();
        self.domains = rules.domains().count();
        self.rules = rules.domains().map(|domain| domain.rules_unsorted().len()).sum();
        self.limits = rules.rule_limits_unsorted().count();
    }

    /// Whether the first rules of this feed are awaited.
    pub(super) fn is_awaiting(&self, feed: Feed) -> bool {
        self.began_without_rules && !self.feeds.contains(&feed)
    }

    /// Whether the rules in force are those of all feeds.
    pub fn is_last_load_successful(&self) -> bool {
        self.failing.is_empty()
    }

    /// Notes that the rules of a feed in force are its present rules.
    fn caught_up(&mut self, feed: Feed) {
        self.failing.remove(&feed);
        self.kept.remove(&feed);
    }

    pub(super) fn replaced(&mut self, feed: Feed, now: Timestamp) {
        self.caught_up(feed);
        self.succeeded += 1;
        self.by_feed.entry(feed).or_default().generation = self.generation;
        if !self.feeds.contains(&feed) {
            self.feeds.push(feed);
        }
        self.last = Some(Attempt { feed, at: now, result: LoadResult::Loaded });
    }

    pub(super) fn unchanged(&mut self, feed: Feed, now: Timestamp) {
        self.caught_up(feed);
        self.unchanged += 1;
        // If rules are awaited, a directory without files also counts as a load, of no rules.
        if self.is_awaiting(feed) {
            self.loads += 1;
            self.feeds.push(feed);
        }
        self.last = Some(Attempt { feed, at: now, result: LoadResult::Unchanged });
    }

    pub(super) fn failed(&mut self, feed: Feed, errors: RuleErrors, now: Timestamp) -> Arc<RuleErrors> {
        self.failed += 1;
        self.by_feed.entry(feed).or_default().failed += 1;
        let errors = Arc::new(errors);
        if feed.stays_behind() {
            self.failing.insert(feed, Arc::clone(&errors));
        }
        self.last = Some(Attempt { feed, at: now, result: LoadResult::Failed(Arc::clone(&errors)) });
        errors
    }
}
