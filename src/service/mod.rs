//! The application: readiness, the clock, the limiter, response options and counts of decisions in one place.
//!
//! Every protocol calls [`RateLimitService`]; nothing else decides a request of a client. Deciding does no IO, awaits
//! nothing and does not allocate, except that [`RateLimitService::decide`] awaits the end of a queued request's wait.

mod client_headers;
mod dynamic_metadata;
mod queued;
mod response_options;
mod tally;

pub use client_headers::{PlainHeaders, ResponseHeaders, StructuredHeaders};
pub use response_options::{Additions, ResponseOptions};
pub use tally::{Tally, Totals};

use crate::{
    clock::Clock,
    limit::{Decision, Request, RequestLimits},
    limiter::{Limiter, Pinned, Verdict},
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// The counters are not restored yet: nothing can be decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the counters are being restored; retry shortly")]
pub struct NotReady;

/// Decides requests. Clones share everything.
#[derive(Clone)]
pub struct RateLimitService {
    /// Empty until the counters are restored.
    limiter: Arc<OnceLock<Arc<Limiter>>>,
    clock: Arc<dyn Clock>,
    request_limits: RequestLimits,
    /// None if no option is set: then a decision checks this pointer and no more.
    options: Option<Arc<ResponseOptions>>,
    tally: Arc<Tally>,
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
        Self { limiter: Arc::default(), clock, request_limits, options: None, tally: Arc::default() }
    }

    /// Decides by this limiter from now on. Only the first call has an effect.
    pub fn set_ready(&self, limiter: Arc<Limiter>) {
        let _ = self.limiter.set(limiter);
    }

    /// The same service with options for its responses.
    pub fn with_response_options(self, options: ResponseOptions) -> Self {
        let options = (options != ResponseOptions::default()).then(|| Arc::new(options));
        Self { options, ..self }
    }

    /// The largest request that is decided.
    pub fn request_limits(&self) -> &RequestLimits {
        &self.request_limits
    }

    /// The counts of all decisions so far.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Whether [`Self::decide_batch`] takes the request: the service is ready and no rule may queue the request.
    #[inline]
    pub fn decides_inline(&self, request: &Request<'_>) -> bool {
        self.limiter.get().is_some_and(|limiter| !limiter.pin().may_queue(request.domain()))
    }

    /// Decides requests that are within the limits and that [`Self::decides_inline`], in order and at one moment. Calls
    /// `respond` with the index of each request and its decision.
    #[inline]
    pub fn decide_batch<'q, 't: 'q>(
        &self,
        requests: impl Iterator<Item = &'q Request<'t>> + Clone,
        mut respond: impl FnMut(usize, &Decision<'_>),
    ) {
        let limiter = self.limiter.get().expect("decides_inline holds only when it is set");
        limiter.pin().decide_all(requests, self.clock.now(), |index, decision| {
            self.record(decision);
            respond(index, decision);
        });
    }

    /// Decides one request within the limits. Where a rule queues it, waits up to `wait_max` for its release.
    pub async fn decide<T>(
        &self,
        request: &Request<'_>,
        wait_max: Duration,
        respond: impl FnOnce(&Decision<'_>) -> T,
    ) -> Result<T, NotReady> {
        let limiter = self.limiter.get().ok_or(NotReady)?;
        let respond = |decision: &Decision<'_>| {
            self.record(decision);
            respond(decision)
        };
        let ticket = match limiter.pin().decide_or_queue(request, wait_max, self.clock.now()) {
            Verdict::Decided(decision) => return Ok(respond(&decision)),
            Verdict::Queued(ticket) => ticket,
        };
        let released = queued::released(limiter, &*self.clock, ticket).await;
        let (rules, now): (Pinned<'_>, _) = (limiter.pin(), self.clock.now());
        Ok(match released {
            Some(ticket) => {
                let response = respond(&rules.queued_decision(request, &ticket, now));
                limiter.release(ticket);
                response
            }
            // The server stops before the release. The request is decided once more, and not queued.
            None => respond(&rules.decide(request, now)),
        })
    }

    /// Records a decision that is sent as a response. Every decision passes here exactly once.
    #[inline]
    fn record(&self, decision: &Decision<'_>) {
        self.tally.count(decision);
    }

    /// Whether the response has more than the code and the statuses.
    #[inline]
    pub fn has_additions(&self, decision: &Decision<'_>) -> bool {
        self.options.is_some() || decision.has_on_deny()
    }

    /// What the response has besides the code and the statuses.
    pub fn additions<'d>(&self, request: &Request<'_>, decision: &Decision<'d>) -> Additions<'d> {
        let options = self.options.as_deref();
        let needs_limits = options.is_some_and(|options| options.headers.need_service_limits());
        // Under a global shadow no limit denies, so none is reported.
        let limiter = self.limiter.get().filter(|limiter| needs_limits && !limiter.is_global_shadow());
        let pinned = limiter.map(|limiter| limiter.pin());
        let limits = pinned.as_ref().map(|rules| rules.service_limits(request, self.clock.now()));
        Additions::new(options, request, decision, &limits.unwrap_or_default())
    }
}
