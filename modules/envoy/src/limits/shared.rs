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

/// The rules in force, and the configurations that exist.
pub(super) struct CurrentRules {
    pub(super) read: Vec<Source>,
    /// Numbers of the configurations and sources of their rules, in the order of loading. The rules of the last are in force.
    configured: Vec<(u64, RuleSource)>,
}

impl CurrentRules {
    /// The rules of a first configuration.
    pub(super) fn new(read: Vec<Source>) -> Self {
        Self { read, configured: Vec::new() }
    }

    /// The source of the rules in force.
    pub(super) fn source(&self) -> Option<&RuleSource> {
        self.configured.last().map(|(_, source)| source)
    }

    /// Adds a configuration. Returns its number.
    pub(super) fn add(&mut self, source: RuleSource) -> u64 {
        let number = self.configured.last().map_or(0, |(last, _)| last + 1);
        self.configured.push((number, source));
        number
    }
}

impl Shared {
    /// Puts checked rules in force, unless they are already.
    pub(super) fn put_in_force(&self, sources: Vec<Source>) -> Result<bool, String> {
        let mut current = self.rules.lock();
        if current.read == sources {
            return Ok(false);
        }
        let next =
            self.limiter.update_rules().build(&sources, &options()).map_err(|errors| errors.to_string())?;
        drop(next.put_in_force());
        current.read = sources;
        Ok(true)
    }

    /// Removes a configuration. The text of the newest that remains is in force from now on: Envoy may have rejected a newer one for another
    /// filter. Returns whether these are other rules than before.
    pub(super) fn remove(&self, number: u64) -> Result<bool, String> {
        let newest = {
            let mut rules = self.rules.lock();
            rules.configured.retain(|(own, _)| *own != number);
            rules.source().cloned()
        };
        match newest {
            Some(text @ RuleSource::Text(_)) => self.put_in_force(read(&text)?),
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
