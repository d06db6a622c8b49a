//! Sources of rules: the owner of the rules in force, and the feeds that pass declarations to it.
//!
//! A feed (the rule files, xDS, overrides, files of blocks) passes on everything it declares. The owner merges this with the last
//! declarations of the other feeds and builds the result upon the rules in force. It puts the new rules in force, or keeps the old ones and
//! reports every error.
//!
//! Invariants: the rules in force were built from the last good declarations of every feed; all that a feed passes on takes effect, or
//! nothing; if two feeds change at once, one takes effect after the other.

mod control_plane_counts;
pub mod describe;
mod feed;
mod kept;
mod load;
mod observer;
mod reload_requests;
mod rule_files;
mod status;
#[cfg(test)]
mod tests;
pub mod watch;
pub(crate) mod whole_file;

pub use control_plane_counts::{ControlPlaneCounts, Update};
pub use feed::Feed;
pub use kept::{KeptRules, KeptRulesError, LastRules};
pub use load::{load, log_warnings};
pub use observer::{RulesInForce, RulesObserver};
pub use reload_requests::ReloadRequests;
pub use rule_files::RuleFiles;
pub use status::{Attempt, FeedLoads, LoadResult, RulesStatus};

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};
use tidegate_core::{
    limit::Timestamp,
    limiter::{Limiter, RetiredRules, SharedResets},
    rules::{LoadOptions, RuleChanges, RuleErrors, Source},
    store::Seed,
    sync::Mutex,
};
use tidegate_threads::run_at_low_priority;

/// Rules with more bytes of text than this are read, built and freed when cores are otherwise idle, as this takes 0.1 s of CPU or more.
/// With less text, the rules are in force sooner if decisions saturate all cores.
const QUICKLY_BUILT_MAX: usize = 1 << 20;

/// Runs work on rules with `bytes` of text.
fn run_by_length<R: Send>(bytes: usize, work: impl FnOnce() -> R + Send) -> R {
    if bytes <= QUICKLY_BUILT_MAX {
        return work();
    }
    run_at_low_priority("rules-build", work)
}

fn bytes<'s>(sources: impl IntoIterator<Item = &'s Source>) -> usize {
    sources.into_iter().map(Source::bytes).sum()
}

/// New rules in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replacement {
    /// Number of rule sets put in force so far, including these.
    pub generation: u64,
    /// Number of these rules.
    pub rules: usize,
    /// Number of their limits, without the limits of requests.
    pub limits: usize,
    /// Their difference from the former rules.
    pub changes: RuleChanges,
}

/// The owner of the rules in force.
pub struct Config {
    /// The limiter with these rules.
    pub limiter: Arc<Limiter>,
    /// The options for reading declarations.
    pub options: LoadOptions,
    /// The last good declarations of each feed. Locked while rules are built, so that nothing else may wait for it.
    declared: Mutex<BTreeMap<Feed, Vec<Source>>>,
    /// The declarations from which the rules in force were built, in the order in which they are merged.
    in_force: Mutex<Arc<Vec<Source>>>,
    /// Replaced rules to which decisions may still refer. They are freed here, not by the last of these decisions.
    retired: Mutex<Vec<RetiredRules>>,
    status: Mutex<RulesStatus>,
    observer: OnceLock<RulesObserver>,
    /// Keeps the rules for a later start; none without a data directory.
    kept: Option<KeptRules>,
}

impl Config {
    /// The owner of a limiter's rules. They were built from these declarations of feeds.
    pub fn new(
        limiter: Arc<Limiter>,
        options: LoadOptions,
        declared: BTreeMap<Feed, Vec<Source>>,
        now: Timestamp,
    ) -> Self {
        let sources: Vec<Source> = declared.values().flatten().cloned().collect();
        let mut status = RulesStatus::default();
        status.loaded(&limiter.rules(), &sources, now);
        Self {
            limiter,
            options,
            in_force: Mutex::new(Arc::new(sources)),
            declared: Mutex::new(declared),
            retired: Mutex::new(Vec::new()),
            status: Mutex::new(status),
            observer: OnceLock::new(),
            kept: None,
        }
    }

    /// Begins without rules, because a feed will load them.
    pub fn awaiting_rules(self) -> Self {
        {
            let mut status = self.status.lock();
            status.began_without_rules = true;
            status.loads = 0;
        }
        self
    }

    /// Sets where the rules are kept for a later start.
    pub fn with_kept(self, kept: Option<KeptRules>) -> Self {
        Self { kept, ..self }
    }

    /// Notes that the rules of a feed were kept by a former process, which put them in force at `at`. `errors` are those of the feed's
    /// present rules, if any.
    pub fn began_with_kept(&self, feed: Feed, at: Timestamp, errors: Option<RuleErrors>, now: Timestamp) {
        let mut status = self.status.lock();
        status.loaded_at = at;
        status.kept.insert(feed, at);
        if let Some(errors) = errors {
            status.failed(feed, errors, now);
        }
    }

    /// Keeps the rules in force for a later start, if they are the present rules of the feeds.
    fn keep(&self, now: Timestamp) {
        let Some(kept) = &self.kept else { return };
        let is_of_feeds = {
            let status = self.status.lock();
            status.failing.is_empty() && status.kept.is_empty()
        };
        if is_of_feeds {
            kept.keep(self.sources(), now);
        }
    }

    /// Replaces the last declarations of one feed. Returns what was put in force; none if they are the same. After an error, nothing has
    /// changed.
    pub fn replace(
        &self,
        feed: Feed,
        sources: Vec<Source>,
        now: Timestamp,
    ) -> Result<Option<Replacement>, Arc<RuleErrors>> {
        run_by_length(bytes(&sources).max(self.bytes()), || self.replace_here(feed, sources, now))
    }

    fn replace_here(
        &self,
        feed: Feed,
        sources: Vec<Source>,
        now: Timestamp,
    ) -> Result<Option<Replacement>, Arc<RuleErrors>> {
        let mut declared = self.declared.lock();
        if declared.get(&feed) == Some(&sources) {
            self.status.lock().unchanged(feed, now);
            return Ok(None);
        }
        let former = declared.insert(feed, sources);
        let all: Vec<Source> = declared.values().flatten().cloned().collect();
        let update = self.limiter.update_rules();
        let next = match feed {
            Feed::Files | Feed::Xds => update.build(&all, &self.options),
            // The rules in force already contain the declarations of the other feeds.
            Feed::Overrides | Feed::Blocks => {
                let overlays = all.partition_point(|source| !source.id.is_overlay());
                update.build_overlays(&all[overlays..], &self.options)
            }
        };
        let next = match next {
            Ok(next) => next,
            Err(errors) => {
                match former {
                    Some(former) => _ = declared.insert(feed, former),
                    None => _ = declared.remove(&feed),
                }
                return Err(self.status.lock().failed(feed, errors, now));
            }
        };
        let changes = RuleChanges::between(next.former(), next.rules());
        let mut status = self.status();
        status.loaded(next.rules(), &all, now);
        let (generation, rules, limits) = (status.generation, status.rules, status.limits);
        self.announce(next.generation(), &all, now);
        let retired = next.put_in_force();
        self.retired.lock().push(retired);
        *self.in_force.lock() = Arc::new(all);
        // Meanwhile, only a feed that could not pass on its declarations may have noted a failure.
        let mut current = self.status.lock();
        status.failed = current.failed;
        status.by_feed.clone_from(&current.by_feed);
        status.failing.clone_from(&current.failing);
        *current = status;
        current.replaced(feed, now);
        Ok(Some(Replacement { generation, rules, limits, changes }))
    }

    /// Passes the rules in force to an observer, and from now on all rules that replace them. Only the first call has an effect.
    pub fn observe(&self, observer: RulesObserver, now: Timestamp) {
        // While this is locked, no rules are replaced.
        let _declared = self.declared.lock();
        if self.observer.set(observer).is_ok() {
            self.announce(self.limiter.pin().generation(), &self.sources(), now);
        }
    }

    fn announce(&self, generation: u64, sources: &[Source], at: Timestamp) {
        if let Some(observer) = self.observer.get() {
            let (number, options) = (self.limiter.store().next_number(), &self.options);
            observer(RulesInForce { generation, number, at, options, sources });
        }
    }

    /// Notes that a feed could not pass on its declarations. The rules stay.
    pub fn failed(&self, feed: Feed, errors: RuleErrors, now: Timestamp) -> Arc<RuleErrors> {
        self.status.lock().failed(feed, errors, now)
    }

    /// Puts the secret of the keys in a shared store in force, and the resets of rules with counters there. The rules stay as they are.
    pub fn put_shared_keys(&self, seed: Seed, resets: SharedResets) {
        let retired = self.limiter.put_shared_keys(seed, resets);
        self.retired.lock().extend(retired);
    }

    /// Frees replaced rules to which no decision refers any more, and numbers of unused limits. Call it now and then from a thread that
    /// makes no decisions. Returns whether there may be more to free soon.
    pub fn free_unused(&self) -> bool {
        let (unused, used): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *self.retired.lock()).into_iter().partition(RetiredRules::are_unused);
        if !unused.is_empty() {
            run_by_length(self.bytes(), || drop(unused));
        }
        let more = {
            let mut retired = self.retired.lock();
            retired.extend(used);
            !retired.is_empty()
        };
        self.limiter.collect_limits();
        more
    }

    /// The rules in force, and the results of the last attempts to change them.
    pub fn status(&self) -> RulesStatus {
        self.status.lock().clone()
    }

    /// The declarations from which the rules in force were built, in the order in which they are merged.
    pub fn sources(&self) -> Arc<Vec<Source>> {
        Arc::clone(&self.in_force.lock())
    }

    /// Length of their texts.
    fn bytes(&self) -> usize {
        bytes(&*self.sources())
    }
}
