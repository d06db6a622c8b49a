//! The application: readiness, the clock, the limiter, response options and figures of decisions in one place.
//!
//! Every protocol calls [`RateLimitService`]; nothing else decides a request of a client. Deciding does no IO, awaits
//! nothing and does not allocate, except that [`RateLimitService::decide`] awaits the end of a queued request's wait.

mod cancelled;
mod client_headers;
mod dynamic_metadata;
mod event;
mod granting;
mod grants;
mod lease_callers;
mod limit_counts;
mod limitador_counts;
mod meters;
mod queued;
mod quotas;
mod reference_counts;
mod refusals;
mod remote;
mod response_options;
mod shared_counters;
mod trace_context;
mod unlimited;

pub use client_headers::{PlainHeaders, ReferenceHeaders, ResponseHeaders, RetryAfter, StructuredHeaders};
pub use event::{AssignmentEvent, CallOrigin, Cancellation, DecisionReader, Event, sampled_values};
pub use granting::{CounterId, GrantRules, GrantableCounters};
pub use grants::Grants;
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
pub use reference_counts::{ReferenceCounts, ReferenceHits};
pub use refusals::{HttpRefusal, Refusal};
pub use response_options::{Additions, ResponseOptions};
pub use trace_context::{Propagators, TraceContext, UnknownPropagator};
pub use unlimited::{PATHS_MAX, UnlimitedCounts, UnlimitedPath};

use client_headers::Sent;
use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tidegate_core::{
    clock::Clock,
    limit::{Code, Decision, Descriptor, Request, RequestLimits, Status, Timestamp},
    limiter::{Limiter, Pinned, QueueDecision, SlotWait},
};
use tidegate_shared::store::{Failure, SharedStore};

/// Why nothing can be decided yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotReady {
    /// The counters are not restored yet.
    #[error("the counters are being restored; retry shortly")]
    Restoring,
    /// There are no rules yet.
    #[error(
        "no rate limit configuration loaded: the rule files have errors, or the control plane has not sent rules yet; the \
         server's log has the reason"
    )]
    NoRules,
    /// The shared store did not decide, and calls fail then.
    #[error("{0}; --on-store-failure is `error`")]
    Store(Failure),
}

/// How a decision is dispatched, by the time that it may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dispatch {
    /// At once: [`RateLimitService::decide_batch`] takes it.
    Inline,
    /// At once, unless it has to wait for slots: [`RateLimitService::decide_at_once`] tries.
    Slots,
    /// The shared store decides.
    Remote,
    /// The shared store decides, and the call fails if it does not.
    Call,
    /// A rule may queue the request.
    Queue,
}

/// Decides requests. Clones share everything.
#[derive(Clone)]
pub struct RateLimitService {
    /// Empty until the counters are restored.
    limiter: Arc<OnceLock<Arc<Limiter>>>,
    /// Whether rules are awaited until then, and no counters.
    awaits_rules: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
    request_limits: RequestLimits,
    /// None if no option is set: then a decision checks this pointer and no more.
    options: Option<Arc<ResponseOptions>>,
    /// Makes the random numbers for jitter.
    chances: RandomState,
    meters: Arc<Meters>,
    /// They need the trace context of the call.
    readers: Arc<[Arc<dyn DecisionReader>]>,
    /// Reads decisions too, but needs no trace contexts.
    observer: Option<Arc<dyn DecisionReader>>,
    /// Whether there are readers or an observer.
    is_read: bool,
    /// The formats of trace contexts that readers learn.
    propagators: Propagators,
    /// The store of shared counters, if there is one.
    shared: Option<SharedStore>,
    /// None if it grants no leases.
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

    /// A service while counters are restored: it is [`NotReady`] until [`Self::set_ready`].
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

    /// Decides by this limiter from now on. Only the first call has an effect.
    pub fn set_ready(&self, limiter: Arc<Limiter>) {
        if let Some(grants) = &self.grants {
            grants.begin(self.clock.now());
        }
        let _ = self.limiter.set(limiter);
    }

    /// Notes that the counters are there, and rules are awaited.
    pub fn await_rules(&self) {
        self.awaits_rules.store(true, Ordering::Relaxed);
    }

    /// Whether requests are decided.
    pub fn ready(&self) -> Result<(), NotReady> {
        self.limiter.get().map(|_| ()).ok_or_else(|| self.not_ready())
    }

    fn not_ready(&self) -> NotReady {
        if self.awaits_rules.load(Ordering::Relaxed) { NotReady::NoRules } else { NotReady::Restoring }
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

    /// Adds an observer of its decisions, for which no trace contexts are read.
    pub fn with_observer(self, observer: Arc<dyn DecisionReader>) -> Self {
        Self { observer: Some(observer), is_read: true, ..self }
    }

    /// Has it read trace contexts in these formats.
    pub fn with_propagators(self, propagators: Propagators) -> Self {
        Self { propagators, ..self }
    }

    /// Has this store decide requests to domains with shared counters.
    pub fn with_shared_store(self, shared: Option<SharedStore>) -> Self {
        Self { shared, ..self }
    }

    /// The store of shared counters, if there is one.
    pub fn shared_store(&self) -> Option<&SharedStore> {
        self.shared.as_ref()
    }

    /// The clients that enforce limits by themselves.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// The formats in which trace contexts are read, if decisions have readers.
    #[inline]
    pub fn propagators(&self) -> Option<&Propagators> {
        self.has_readers().then_some(&self.propagators)
    }

    /// Whether decisions have readers, so that their [`CallOrigin`] is needed.
    #[inline]
    pub fn has_readers(&self) -> bool {
        !self.readers.is_empty()
    }

    /// Shows readers the assignments that a client of quotas is sent now, except those that change nothing.
    pub fn show_assignments(&self, stream: &QuotaStream, peer: &QuotaPeer, assignments: &[SentAssignment]) {
        for sent in assignments.iter().filter(|sent| self.has_readers() && !sent.is_passing) {
            let event = AssignmentEvent {
                sent: self.clock.now(),
                domain: Arc::clone(&stream.domain),
                stream: stream.number,
                peer: peer.clone(),
                bucket: sent.bucket.clone(),
                assignment: sent.assignment,
            };
            self.readers.iter().for_each(|reader| reader.read_assignment(event.clone()));
        }
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

    /// The time, if anything reads how long responses take.
    #[inline]
    pub fn measured_time(&self) -> Option<Timestamp> {
        self.meters.is_started().then(|| self.clock.now())
    }

    /// Counts responses that are written now, to requests received at that time.
    #[inline]
    pub fn count_written(&self, received: Timestamp, counts: CodeCounts) {
        self.meters.count_responses(self.clock.now().since(received), counts);
    }

    /// The way to decide the request; none while the service is not ready.
    #[inline]
    pub fn dispatch(&self, request: &Request<'_>) -> Option<Dispatch> {
        let limiter = self.limiter.get()?.pin();
        if !limiter.may_wait(request.domain()) {
            return Some(Dispatch::Inline);
        }
        let is_remote = self.shared.is_some() && limiter.is_remote(request);
        Some(match is_remote {
            true if self.shared.as_ref().is_some_and(SharedStore::fails_calls) => Dispatch::Call,
            true => Dispatch::Remote,
            false if limiter.may_queue(request) => Dispatch::Queue,
            false if limiter.may_wait_for_slots(request) => Dispatch::Slots,
            false => Dispatch::Inline,
        })
    }

    /// Decides the requests of `calls`, which are within the limits and of [`Dispatch::Inline`], in order and at one
    /// moment. Calls `respond` with each call and its decision.
    #[inline]
    pub fn decide_batch<'q, 't: 'q, C>(
        &self,
        calls: &'q [C],
        request: impl Fn(&'q C) -> &'q Request<'t> + Copy,
        origin: impl Fn(&'q C) -> CallOrigin<'q>,
        mut respond: impl FnMut(&'q C, &Decision<'_>),
    ) {
        let limiter = self.limiter.get().expect("a request has a course only when it is set");
        let now = self.clock.now();
        let rules = limiter.pin();
        let is_read = self.is_read && !self.passes_over(calls.len(), now);
        rules.decide_all(calls.iter().map(request), now, |index, decision| {
            let call = &calls[index];
            self.count(request(call), decision, false);
            if is_read {
                self.read(request(call), decision, (origin(call), now, rules.generation()));
            }
            respond(call, decision);
        });
    }

    /// Decides a request of [`Dispatch::Remote`] by leases in hand, or one of [`Dispatch::Slots`] by the slots that are free; false if that
    /// does not suffice, and nothing is changed.
    pub fn decide_at_once<'q, 't>(
        &self,
        request: &'q Request<'t>,
        origin: CallOrigin<'q>,
        respond: impl FnOnce(&Decision<'_>),
    ) -> bool {
        if self.store_of(request).is_some() {
            return self.decide_by_lease(request, origin, respond);
        }
        let Some(limiter) = self.limiter.get() else { return false };
        let (rules, now) = (limiter.pin(), self.clock.now());
        let Some(decision) = rules.decide_unless_waits(request, now) else { return false };
        self.record(request, &decision, false, || (origin, now, rules.generation()));
        respond(&decision);
        true
    }

    /// Decides one request within the limits. Where a rule queues it, or has it wait for slots, waits up to `wait_max` for its release;
    /// where its counters are shared, for the decision of the store.
    pub async fn decide<'q, 't, T>(
        &self,
        request: &'q Request<'t>,
        origin: CallOrigin<'q>,
        wait_max: Duration,
        respond: impl FnOnce(&Decision<'_>) -> T,
    ) -> Result<T, NotReady> {
        let limiter = self.limiter.get().ok_or_else(|| self.not_ready())?;
        let received = self.clock.now();
        if let Some(store) = self.store_of(request) {
            let (mut respond, mut response) = (Some(respond), None);
            // Otherwise a request by the fast path has been tried there.
            let is_decided = store.fails_calls()
                && self.decide_by_lease(request, origin, |decision| {
                    response = respond.take().map(|respond| respond(decision));
                });
            if let (true, Some(response)) = (is_decided, response) {
                return Ok(response);
            }
            let respond = respond.expect("the request is not decided yet");
            return self.decide_remotely(store, request, (origin, received), wait_max, respond).await;
        }
        let respond = |rules: &Pinned<'_>, decision: &Decision<'_>, was_queued: bool| {
            self.record(request, decision, was_queued, || (origin, received, rules.generation()));
            respond(decision)
        };
        let mut waited: Option<SlotWait> = None;
        let ticket = loop {
            let wait = {
                let rules = limiter.pin();
                let has_waited = waited.is_some();
                let verdict = match waited.take() {
                    None => rules.decide_or_queue(request, wait_max, received),
                    Some(wait) => rules.decide_again(request, wait, self.clock.now()),
                };
                match verdict {
                    QueueDecision::Decided(decision) => {
                        self.count_wait(received, decision.code, has_waited);
                        return Ok(respond(&rules, &decision, has_waited));
                    }
                    QueueDecision::Queued(ticket) => break ticket,
                    QueueDecision::Waits(wait) => wait,
                }
            };
            waited = Some(queued::called(limiter, &*self.clock, wait).await);
        };
        let released = queued::released(limiter, &*self.clock, ticket).await;
        let (rules, now): (Pinned<'_>, _) = (limiter.pin(), self.clock.now());
        Ok(match released {
            Some(ticket) => {
                self.meters.count_queue_wait(now.since(received));
                let response = respond(&rules, &rules.queued_decision(request, &ticket, now), true);
                limiter.release(ticket);
                response
            }
            // The server stops before the release. The request is decided once more, and not queued.
            None => respond(&rules, &rules.decide(request, now), false),
        })
    }

    /// Counts the time that a decision took: its wait, if it waited for slots and has them.
    fn count_wait(&self, received: Timestamp, code: Code, has_waited: bool) {
        let Some(now) = self.measured_time() else { return };
        match (has_waited, code) {
            (false, _) => self.meters.count_response(now.since(received), code),
            (true, Code::Ok) => self.meters.count_queue_wait(now.since(received)),
            (true, Code::OverLimit) => {}
        }
    }

    /// Records a decision that is sent as a response: counts it, and passes it to the readers. Every decision is recorded exactly
    /// once. `facts` returns the call of the request, the time at which it was received, and the number of the rules.
    #[inline]
    fn record<'e, 't: 'e>(
        &self,
        request: &'e Request<'t>,
        decision: &Decision<'_>,
        was_queued: bool,
        facts: impl FnOnce() -> (CallOrigin<'e>, Timestamp, u64),
    ) {
        self.count(request, decision, was_queued);
        // Where decisions are only counted, this is all that a decision does here.
        if self.is_read {
            self.read(request, decision, facts());
        }
    }

    #[inline]
    fn count(&self, request: &Request<'_>, decision: &Decision<'_>, was_queued: bool) {
        self.meters.count_decision(request, decision, was_queued);
        if decision.statuses.iter().any(Status::is_without_limit) {
            self.count_without_limit(request, decision);
        }
        if let Some(rare) = &decision.rare {
            self.count_unknown_days(request, &rare.unknown_days);
        }
    }

    /// Counts descriptors whose entry for the day of their windows is no day.
    #[cold]
    fn count_unknown_days(&self, request: &Request<'_>, descriptors: &[u32]) {
        for &index in descriptors {
            let descriptor = &request.descriptors()[index as usize];
            self.meters.unknown_days.count(request.domain(), &descriptor.entries, 1);
        }
    }

    /// Counts descriptors without a limit, unless a rule exempts them. Matches them once more.
    #[cold]
    fn count_without_limit(&self, request: &Request<'_>, decision: &Decision<'_>) {
        let Some(limiter) = self.limiter.get() else { return };
        let count = |descriptor: &Descriptor<'_>| {
            self.meters.unlimited.count(request.domain(), &descriptor.entries, 1)
        };
        limiter.pin().for_undecided(request, decision, count);
    }

    fn read<'e, 't: 'e>(
        &self,
        request: &'e Request<'t>,
        decision: &Decision<'_>,
        (origin, received, generation): (CallOrigin<'e>, Timestamp, u64),
    ) {
        self.pass_on(&Event { request, decision, origin, received, generation, clock: &*self.clock });
    }

    /// Whether no reader needs the next decisions of this thread.
    #[inline(never)]
    fn passes_over(&self, decisions: usize, received: Timestamp) -> bool {
        let is_passed = |reader: &Arc<dyn DecisionReader>| reader.passes_over(decisions, received);
        self.readers.is_empty() && self.observer.as_ref().is_some_and(is_passed)
    }

    #[inline(never)]
    fn pass_on(&self, event: &Event<'_, '_, '_>) {
        self.readers.iter().chain(&self.observer).for_each(|reader| reader.read(event));
    }

    /// Whether the domain has rules for descriptors, which limits with conditions are not.
    pub fn has_descriptor_rules(&self, domain: &str) -> bool {
        let rules = self.limiter.get().map(|limiter| limiter.rules());
        rules.is_some_and(|rules| rules.domain(domain).is_some_and(|domain| domain.conditional().is_none()))
    }

    /// Whether the response has more than the code and the statuses.
    #[inline]
    pub fn has_additions(&self, decision: &Decision<'_>) -> bool {
        self.options.is_some() || decision.slot.is_some() || decision.has_on_deny()
    }

    /// Content of the response besides the code and the statuses.
    pub fn additions<'d>(&self, request: &Request<'_>, decision: &Decision<'d>) -> Additions<'d> {
        let options = self.options.as_deref();
        let sent = options.map(|options| (options, self.sent(options, decision)));
        if let Some(limits) = decision.service_limits() {
            return Additions::new(sent, request, decision, limits);
        }
        let needs_limits = options.is_some_and(|options| options.headers.need_service_limits());
        // Under a global shadow no limit denies, so none is reported.
        let limiter = self.limiter.get().filter(|limiter| needs_limits && !limiter.is_global_shadow());
        let pinned = limiter.map(|limiter| limiter.pin());
        let limits = pinned.as_ref().map(|rules| rules.service_limits(request, self.clock.now()));
        Additions::new(sent, request, decision, &limits.unwrap_or_default())
    }

    /// The moment of a response. The number for its jitter is keyed, so that no client can compute it.
    fn sent(&self, options: &ResponseOptions, decision: &Decision<'_>) -> Sent {
        let now = self.clock.now();
        let is_used = options.headers.jitter_seconds > 0;
        Sent { now, chance: if is_used { self.chances.hash_one((now, decision.number)) } else { 0 } }
    }
}
