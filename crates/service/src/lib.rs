//! The application: readiness, the clock, the limiter, response options and figures of decisions in one place.
//!
//! Every protocol calls [`RateLimitService`]; nothing else decides a request of a client. Deciding does no IO, awaits nothing and does not
//! allocate. The exception is [`RateLimitService::decide`], which awaits the release of a queued request.

mod additions;
mod cancelled;
mod client_headers;
mod deciding;
mod dynamic_metadata;
mod event;
mod granting;
mod grants;
mod key_path_counts;
mod lease_callers;
mod limit_counts;
mod limitador_counts;
mod meters;
mod queued;
mod quotas;
mod readiness;
mod recording;
mod reference_counts;
mod refusals;
mod remote;
mod response_options;
mod shared_counters;
mod trace_context;

pub use client_headers::{PlainHeaders, ReferenceHeaders, ResponseHeaders, RetryAfter, StructuredHeaders};
pub use deciding::Dispatch;
pub use event::{AssignmentEvent, CallOrigin, Cancellation, DecisionReader, Event, sampled_values};
pub use granting::{CounterId, GrantRules, GrantableCounters};
pub use grants::Grants;
pub use key_path_counts::{CountedKeyPath, KEY_PATHS_MAX, KeyPathCounts};
pub use lease_callers::{LeaseCaller, LeaseNode};
pub use limit_counts::{CountsReader, LimitCountSettings, LimitCounts, OTHER_VALUES, Outcome, OutcomeCounts};
pub use limitador_counts::{
    LimitadorCalls, LimitadorCounts, LimitadorLabels, LimitadorSeries, LimitadorSettings,
};
pub use meters::{CodeCounts, DecisionEvent, MeterSettings, Meters, REFUSAL_LOG_INTERVAL};
pub use quotas::{
    Assignment, BlanketCounts, BucketFilter, BucketName, BucketReport, QuotaBucket, QuotaFigures, QuotaList,
    QuotaPeer, QuotaQuery, QuotaStart, QuotaStream, QuotaSubscriber, Quotas, Receipt, SentAssignment,
    StreamEnd,
};
pub use readiness::NotReady;
pub use reference_counts::{ReferenceCounts, ReferenceHits};
pub use refusals::{HttpRefusal, Refusal};
pub use response_options::{Additions, ResponseOptions};
pub use trace_context::{Propagators, TraceContext, UnknownPropagator};

use std::{
    hash::RandomState,
    sync::{Arc, OnceLock, atomic::AtomicBool},
};
use tidegate_core::{clock::Clock, limit::RequestLimits, limiter::Limiter};
use tidegate_shared::store::SharedStore;

/// Decides requests. Clones share everything.
#[derive(Clone)]
pub struct RateLimitService {
    /// Empty until the counters are restored.
    limiter: Arc<OnceLock<Arc<Limiter>>>,
    /// Whether only rules are missing: the counters are restored.
    awaits_rules: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
    request_limits: RequestLimits,
    /// None if no option is set, so that a decision checks only this pointer.
    options: Option<Arc<ResponseOptions>>,
    /// Makes the random numbers for jitter.
    chances: RandomState,
    meters: Arc<Meters>,
    /// Readers that need the trace context of the call.
    readers: Arc<[Arc<dyn DecisionReader>]>,
    /// Also reads decisions, but needs no trace contexts.
    observer: Option<Arc<dyn DecisionReader>>,
    /// Whether there are readers or an observer.
    is_read: bool,
    /// The formats in which trace contexts are read.
    propagators: Propagators,
    /// The store of shared counters, if there is one.
    shared: Option<Arc<SharedStore>>,
    /// None if the service grants no leases.
    grants: Option<Grants>,
    /// The clients that enforce limits by themselves.
    quotas: Quotas,
}

impl RateLimitService {
    /// A service that is ready.
    pub fn new(limiter: Arc<Limiter>, clock: Arc<dyn Clock>, request_limits: RequestLimits) -> Self {
        let service = Self::restoring(clock, request_limits);
        service.set_ready(limiter);
        service
    }

    /// A service whose counters are being restored: it is [`NotReady`] until [`Self::set_ready`].
    pub fn restoring(clock: Arc<dyn Clock>, request_limits: RequestLimits) -> Self {
        Self {
            limiter: Arc::default(),
            awaits_rules: Arc::default(),
            clock,
            request_limits,
            options: None,
            chances: RandomState::new(),
            meters: Arc::default(),
            readers: Arc::new([]),
            observer: None,
            is_read: false,
            propagators: Propagators::default(),
            shared: None,
            grants: None,
            quotas: Quotas::default(),
        }
    }

    /// Sets options for its responses.
    pub fn with_response_options(self, options: ResponseOptions) -> Self {
        let options = (options != ResponseOptions::default()).then(|| Arc::new(options));
        Self { options, ..self }
    }

    /// Adds readers of its decisions.
    pub fn with_readers(self, readers: Vec<Arc<dyn DecisionReader>>) -> Self {
        let is_read = self.is_read || !readers.is_empty();
        Self { readers: readers.into(), is_read, ..self }
    }

    /// Adds an observer of its decisions. No trace contexts are read for it.
    pub fn with_observer(self, observer: Arc<dyn DecisionReader>) -> Self {
        Self { observer: Some(observer), is_read: true, ..self }
    }

    /// Sets the formats in which it reads trace contexts.
    pub fn with_propagators(self, propagators: Propagators) -> Self {
        Self { propagators, ..self }
    }

    /// Sets the store that decides requests to domains with shared counters.
    pub fn with_shared_store(self, shared: Option<Arc<SharedStore>>) -> Self {
        Self { shared, ..self }
    }

    /// The store of shared counters, if there is one.
    pub fn shared_store(&self) -> Option<&Arc<SharedStore>> {
        self.shared.as_ref()
    }

    /// The clients that enforce limits by themselves.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Sets the settings of its figures.
    pub fn with_meters(self, settings: MeterSettings) -> Self {
        Self { meters: Arc::new(Meters::new(settings)), ..self }
    }

    /// The figures, for metrics.
    pub fn meters(&self) -> &Arc<Meters> {
        &self.meters
    }

    /// The clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The largest request that is decided.
    pub fn request_limits(&self) -> &RequestLimits {
        &self.request_limits
    }

    /// Whether the domain has rules for descriptors. Limits with conditions are not such rules.
    pub fn has_descriptor_rules(&self, domain: &str) -> bool {
        let rules = self.limiter.get().map(|limiter| limiter.rules());
        rules.is_some_and(|rules| rules.domain(domain).is_some_and(|domain| domain.conditional().is_none()))
    }
}
