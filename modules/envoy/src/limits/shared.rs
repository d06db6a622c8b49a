//! State shared by decisions and the background thread, and the rules in force.

use crate::{
    metrics::{HeldCounts, Metrics},
    renewals::Renewals,
    settings::RuleSource,
};
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tidegate_core::{
    algorithm::Concurrency,
    clock::{SystemClock, since_boot},
    limit::RequestLimits,
    limiter::Limiter,
    rules::{self, LoadOptions, Rule, RuleLimit, RuleSet, Source},
    sync::Mutex,
};
use tidegate_shared::lease::Monotonic;

/// State shared by decisions and the background thread.
pub(super) struct Shared {
    pub(super) limiter: Limiter,
    pub(super) clock: SystemClock,
    pub(super) request_limits: RequestLimits,
    /// Figures to publish.
    pub(super) metrics: Mutex<Vec<Weak<Metrics>>>,
    /// Slots and reservations of all configurations that are already in the figures.
    pub(super) held: Mutex<HeldCounts>,
    /// Tickets of requests in progress.
    pub(super) renewals: Renewals<Arc<HeldTicket>>,
    pub(super) rules: Mutex<CurrentRules>,
}

/// A ticket that is renewed while its request goes on.
pub(super) struct HeldTicket {
    pub(super) ticket: Box<str>,
    /// Time for which it is held.
    pub(super) hold: Duration,
}

/// The clock by which tickets are due.
pub(super) fn elapsed() -> Monotonic {
    Monotonic::from_nanos(since_boot())
}

/// The source of the rules in force, and the sources of the configurations that exist.
pub(super) struct CurrentRules {
    pub(super) source: RuleSource,
    pub(super) read: Vec<Source>,
    /// By the numbers of the configurations, which ascend in the order of loading.
    configured: Vec<(u64, RuleSource)>,
}

impl CurrentRules {
    /// The rules of a first configuration.
    pub(super) fn new(source: RuleSource, read: Vec<Source>) -> Self {
        Self { source, read, configured: Vec::new() }
    }

    /// Adds a configuration. Returns its number.
    pub(super) fn add(&mut self, source: RuleSource) -> u64 {
        let number = self.configured.last().map_or(0, |(last, _)| last + 1);
        self.configured.push((number, source));
        number
    }

    /// Removes a configuration. If it was the newest, returns the source of the newest that remains.
    fn remove(&mut self, number: u64) -> Option<RuleSource> {
        let was_newest = self.configured.last().is_some_and(|(last, _)| *last == number);
        self.configured.retain(|(own, _)| *own != number);
        self.configured.last().filter(|_| was_newest).map(|(_, source)| source.clone())
    }
}

impl Shared {
    /// Puts checked rules in force, unless they are already.
    pub(super) fn put_in_force(&self, source: RuleSource, sources: Vec<Source>) -> Result<bool, String> {
        let mut current = self.rules.lock();
        if current.read == sources {
            return Ok(false);
        }
        let next =
            self.limiter.update_rules().build(&sources, &options()).map_err(|errors| errors.to_string())?;
        drop(next.put_in_force());
        (current.source, current.read) = (source, sources);
        Ok(true)
    }

    /// Removes a configuration. If it was the newest, the text of the newest remaining configuration is in force from now on: Envoy may
    /// have rejected the newest for another filter. Returns whether these are other rules.
    pub(super) fn remove(&self, number: u64) -> Result<bool, String> {
        let newest = self.rules.lock().remove(number);
        match newest {
            Some(text @ RuleSource::Text(_)) => {
                let sources = read(&text)?;
                self.put_in_force(text, sources)
            }
            // Files are common to all.
            Some(RuleSource::Files(_)) | None => Ok(false),
        }
    }
}

pub(super) fn read(source: &RuleSource) -> Result<Vec<Source>, String> {
    match source {
        RuleSource::Files(paths) => rules::read(paths).map_err(|errors| errors.to_string()),
        RuleSource::Text(text) => Ok(vec![Source::file("tidegate.rules", text.clone())]),
    }
}

/// The rules of sources, unless a module cannot apply them.
pub(super) fn checked(sources: &[Source]) -> Result<RuleSet, String> {
    let rules = RuleSet::parse(sources, &options()).map_err(|errors| errors.to_string())?;
    let holding = rules.domains().find(|domain| domain.rules_unsorted().into_iter().any(holds_requests));
    if let Some(domain) = holding.map(|domain| domain.name()) {
        return Err(format!(
            "domain {domain}: a rule has `max_wait`, but a module does not hold requests; remove it, or use a server"
        ));
    }
    Ok(rules)
}

/// Whether a rule holds requests until they fit. The default wait for a slot does not count: it covers ends that arrive late over a
/// network, which the filter sees at once.
fn holds_requests(rule: &Rule) -> bool {
    let is_longer = |limit: &RuleLimit| {
        let queue = limit.algorithm.slot_queue();
        queue.is_some_and(|queue| queue.wait_max > Concurrency::WAIT_DEFAULT)
    };
    rule.may_queue() || rule.waits_for_slots() && rule.limits.iter().any(is_longer)
}

fn options() -> LoadOptions {
    LoadOptions { merge_domains: true, ..LoadOptions::default() }
}
