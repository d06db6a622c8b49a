//! The rules and counters of the process: made for the first configuration that needs them, and shared by all that need them.
//!
//! Envoy makes a configuration for each listener and, on an update of a listener, a new one before it drops the former. Counters must
//! survive that: configurations with the same rule files, or with rules of the same domains in their text, share one limiter.

mod background;
mod full;
mod shared;

use crate::{
    metrics::Metrics,
    renewals::Renewals,
    settings::{Local, RuleSource},
};
use shared::{CurrentRules, HeldTicket, Shared, checked, elapsed, read};
use std::{
    path::PathBuf,
    sync::{Arc, Weak},
};
use tidegate_core::{
    clock::{Clock, SystemClock},
    limit::{Decision, GrantedSlot, Request, RequestError, RequestLimits},
    limiter::Limiter,
    rules::{RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
    sync::Mutex,
};
use tidegate_envoy_abi::{LogLevel, log};
use tidegate_threads::StoppableThread;

/// Maximum number of counters unless configured otherwise: some 60 MB of them.
const COUNTERS_MAX_DEFAULT: usize = 1_000_000;

/// The rules and counters of some configurations. Dropping the last reference ends their thread.
pub(crate) struct Limits {
    shared: Arc<Shared>,
    _background: StoppableThread,
}

/// The rules and counters of one configuration. Dropping it puts the rules of the newest other configuration in force.
pub(crate) struct ConfiguredLimits {
    limits: Arc<Limits>,
    number: u64,
}

impl ConfiguredLimits {
    /// The rules and counters.
    pub(crate) fn shared(&self) -> &Arc<Limits> {
        &self.limits
    }
}

impl Drop for ConfiguredLimits {
    fn drop(&mut self) {
        // No configuration is loaded meanwhile.
        let _all = ALL.lock();
        match self.limits.shared.remove(self.number) {
            Ok(true) => log(LogLevel::Info, "tidegate: rules of an earlier configuration are in force again"),
            Ok(false) => {}
            Err(error) => log(
                LogLevel::Error,
                &format!("tidegate: rules of a configuration that has ended are still in force: {error}"),
            ),
        }
    }
}

/// The slots of a request in flight, in counters of this process: renewed until they are released, when this is dropped.
pub(crate) struct LocalSlot {
    limits: Arc<Limits>,
    held: Arc<HeldTicket>,
    /// Number of its renewals.
    renewals: u64,
}

impl LocalSlot {
    pub(crate) fn ticket(&self) -> &str {
        &self.held.ticket
    }
}

impl Drop for LocalSlot {
    fn drop(&mut self) {
        let shared = &self.limits.shared;
        shared.renewals.remove(self.renewals);
        shared.limiter.release_slots(self.ticket(), shared.clock.now());
    }
}

/// Identity of counters.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Identity {
    Files(Vec<PathBuf>),
    Domains(Vec<String>),
}

/// All rules and counters of the process.
static ALL: Mutex<Vec<(Identity, Weak<Limits>)>> = Mutex::new(Vec::new());

/// The maximum number of counters of a configuration.
fn counters_max(local: &Local) -> usize {
    local.counters_max.unwrap_or(COUNTERS_MAX_DEFAULT)
}

/// The line about a configuration whose maximum has no effect, because its counters exist already.
fn ignored_maximum(local: &Local, in_force: usize) -> Option<String> {
    let configured = counters_max(local);
    let line = || {
        format!(
            "tidegate: a maximum of {configured} counters has no effect: configurations with the same rules share counters, and the first of \
             them has set the maximum to {in_force}; set the same in all, and restart Envoy to change it"
        )
    };
    (configured != in_force).then(line)
}

impl Limits {
    /// The rules and counters for a configuration: existing, with its rules put in force, or new.
    pub(crate) fn of(local: &Local) -> Result<ConfiguredLimits, String> {
        let sources = read(&local.rules)?;
        // Also for an existing limiter: rules that a module refuses must not be put in force.
        let rules = checked(&sources)?;
        let identity = match &local.rules {
            RuleSource::Files(paths) => Identity::Files(paths.clone()),
            RuleSource::Text(_) => {
                let mut domains: Vec<String> =
                    rules.domains().map(|domain| domain.name().to_owned()).collect();
                domains.sort();
                Identity::Domains(domains)
            }
        };
        let mut all = ALL.lock();
        all.retain(|(_, limits)| limits.strong_count() > 0);
        let existing = all.iter().find(|(own, _)| *own == identity).and_then(|(_, limits)| limits.upgrade());
        if let Some(limits) = existing {
            if let Some(line) = ignored_maximum(local, limits.shared.limiter.store().counters_max()) {
                log(LogLevel::Warn, &line);
            }
            if limits.shared.put_in_force(sources)? {
                log(LogLevel::Info, "tidegate: rules of a new configuration replace those in force");
            }
            return Ok(limits.configured(local));
        }
        let limits = Arc::new(Self::new(local, rules, sources)?);
        all.push((identity, Arc::downgrade(&limits)));
        Ok(limits.configured(local))
    }

    fn new(local: &Local, rules: RuleSet, sources: Vec<Source>) -> Result<Self, String> {
        let store = StoreSettings {
            seed: Seed::random().map_err(|error| format!("no random numbers: {error}"))?,
            counters_max: counters_max(local),
            on_full: OnFull::Deny,
        };
        let shared = Arc::new(Shared {
            limiter: Limiter::new(rules, store, false),
            clock: SystemClock::new(),
            request_limits: RequestLimits::default(),
            metrics: Mutex::default(),
            held: Mutex::default(),
            renewals: Renewals::default(),
            rules: Mutex::new(CurrentRules::new(sources)),
        });
        let background = background::start(&shared).map_err(|error| error.to_string())?;
        Ok(Self { shared, _background: background })
    }

    fn configured(self: Arc<Self>, local: &Local) -> ConfiguredLimits {
        let number = self.shared.rules.lock().add(local.rules.clone());
        ConfiguredLimits { limits: self, number }
    }

    /// Publishes these figures from now on, while they exist.
    pub(crate) fn publish(&self, metrics: &Arc<Metrics>) {
        self.shared.metrics.lock().push(Arc::downgrade(metrics));
    }

    /// Decides a request. The error is why it is malformed; a server would return a status other than OK.
    pub(crate) fn decide<T>(
        &self,
        request: &Request<'_>,
        use_decision: impl FnOnce(&Decision<'_>) -> T,
    ) -> Result<T, RequestError> {
        request.check(&self.shared.request_limits)?;
        let pinned = self.shared.limiter.pin();
        let decision = pinned.decide(request, self.shared.clock.now());
        Ok(use_decision(&decision))
    }

    /// The slots of an admitted request, which are renewed from now on.
    pub(crate) fn hold(self: &Arc<Self>, slot: &GrantedSlot) -> LocalSlot {
        let held = Arc::new(HeldTicket { ticket: slot.ticket.clone(), hold: slot.hold });
        let renewals = self.shared.renewals.insert(slot.hold, Arc::clone(&held), elapsed());
        LocalSlot { limits: Arc::clone(self), held, renewals }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_that_differs_from_that_of_the_existing_counters_is_logged() {
        let local = |counters_max| Local { counters_max, ..Local::default() };
        let line = ignored_maximum(&local(Some(7)), 100).unwrap();
        assert!(line.contains("a maximum of 7 counters has no effect") && line.contains("to 100;"), "{line}");
        assert!(ignored_maximum(&local(None), 100).unwrap().contains("a maximum of 1000000 counters"));
        assert_eq!(ignored_maximum(&local(Some(100)), 100), None);
        assert_eq!(ignored_maximum(&local(None), COUNTERS_MAX_DEFAULT), None);
    }
}
