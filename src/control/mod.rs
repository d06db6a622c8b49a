//! Operations on a running server: who may call them, rates of limits, and resets.
//!
//! Invariant: nothing here decides a client's request; what changes decisions passes through the owner of the rules or the
//! limiter.

mod access;
mod rates;

pub use access::{Access, Caller, Denied, Reach, Role};
pub use rates::{HitCounts, RateHistory, Rates};

use crate::{
    clock::Clock,
    config::Config,
    limit::{SeriesId, Timestamp},
    limiter::Limiter,
    service::{Outcome, RateLimitService},
    telemetry::Sources,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

/// Settings of the control API.
#[derive(Clone, Debug)]
pub struct ControlSettings {
    /// Where callers may be.
    pub reach: Reach,
}

/// The server as operators see it. It has no rules until [`Control::start`].
pub struct Control {
    service: RateLimitService,
    clock: Arc<dyn Clock>,
    started: Timestamp,
    access: Access,
    sources: OnceLock<Sources>,
    rates: Mutex<RateHistory>,
}

impl Control {
    /// The control of a server that starts.
    pub fn new(settings: &ControlSettings, service: RateLimitService, clock: Arc<dyn Clock>) -> Self {
        let started = clock.now();
        Self {
            service,
            started,
            access: Access::new(settings.reach),
            clock,
            sources: OnceLock::new(),
            rates: Mutex::default(),
        }
    }

    /// Operates on these from now on. Only the first call has an effect.
    pub fn start(&self, sources: Sources) {
        let _ = self.sources.set(sources);
    }

    /// Who may call what.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// What figures are read from; none until the counters are restored.
    pub fn sources(&self) -> Option<&Sources> {
        self.sources.get()
    }

    /// The owner of the rules; none until the counters are restored.
    pub fn config(&self) -> Option<&Arc<Config>> {
        self.sources.get().map(|sources| &sources.config)
    }

    /// The counters; none until they are restored.
    pub fn limiter(&self) -> Option<&Arc<Limiter>> {
        self.sources.get().map(|sources| &sources.limiter)
    }

    /// The service that decides.
    pub fn service(&self) -> &RateLimitService {
        &self.service
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The start of the server.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// The hits of every limit in force since the start, by series.
    pub fn hits(&self) -> HashMap<SeriesId, HitCounts> {
        let Some(limiter) = self.limiter() else { return HashMap::new() };
        let counts = self.service.meters().limits();
        let (rules, reader) = (limiter.rules(), counts.reader());
        let hits_of = |counts: &crate::service::Counts| HitCounts {
            admitted: counts.hits(Outcome::Admitted) + counts.hits(Outcome::Queued),
            denied: counts.hits(Outcome::Denied),
            shadow_denied: counts.hits(Outcome::ShadowDenied),
        };
        let series = rules.rule_limits().map(|(_, limit)| limit.series);
        let mut hits: HashMap<SeriesId, HitCounts> =
            series.map(|series| (series, hits_of(&reader.counts(series)))).collect();
        for ((series, _), counts) in counts.by_values(|_| true).0 {
            let sum = hits.entry(series).or_default();
            *sum = sum.plus(hits_of(&counts));
        }
        hits
    }

    /// The rates of every limit in force; none before a second reading.
    pub fn rates(&self) -> Option<Rates> {
        let (now, hits) = (self.now(), self.hits());
        self.rates.lock().read(now, hits)
    }
}
