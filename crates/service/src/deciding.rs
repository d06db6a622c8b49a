//! Decisions of requests: at once, or after the wait of a queued request.

use super::{CallOrigin, NotReady, RateLimitService, queued};
use std::time::Duration;
use tidegate_core::{
    limit::{Decision, Request},
    limiter::{Pinned, QueueDecision, SlotWait},
};

/// How a decision is dispatched, by the time that it may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dispatch {
    /// At once, by [`RateLimitService::decide_batch`].
    Inline,
    /// At once, unless the request has to wait for slots: [`RateLimitService::decide_at_once`] tries.
    Slots,
    /// The shared store decides.
    Remote,
    /// The shared store decides, and the call fails if it does not.
    Call,
    /// A rule may queue the request.
    Queue,
}

impl RateLimitService {
    /// How to decide the request; none while the service is not ready.
    #[inline]
    pub fn dispatch(&self, request: &Request<'_>) -> Option<Dispatch> {
        let limiter = self.limiter.get()?.pin();
        if !limiter.may_wait(request.domain()) {
            return Some(Dispatch::Inline);
        }
        let is_remote = self.shared.is_some() && limiter.is_remote(request);
        Some(match is_remote {
            true if self.shared.as_ref().is_some_and(|store| store.fails_calls()) => Dispatch::Call,
            true => Dispatch::Remote,
            false if limiter.may_queue(request) => Dispatch::Queue,
            false if limiter.may_wait_for_slots(request) => Dispatch::Slots,
            false => Dispatch::Inline,
        })
    }

    /// Decides the requests of `calls` in order and at one moment. They are within the limits and of [`Dispatch::Inline`]. Calls `respond`
    /// with each call and its decision.
    #[inline]
    pub fn decide_batch<'q, 't: 'q, C>(
        &self,
        calls: &'q [C],
        request: impl Fn(&'q C) -> &'q Request<'t> + Copy,
        origin: impl Fn(&'q C) -> CallOrigin<'q>,
        mut respond: impl FnMut(&'q C, &Decision<'_>),
    ) {
        let limiter = self.limiter.get().expect("requests are dispatched only when the limiter is set");
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

    /// Decides a request of [`Dispatch::Remote`] by leases in hand, or a request of [`Dispatch::Slots`] by free slots. False if these do
    /// not suffice; nothing has changed then.
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

    /// Decides one request within the limits. If a rule queues it or makes it wait for slots, waits up to `wait_max` for its release. If
    /// its counters are shared, waits for the decision of the store.
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
            // Requests on the fast path have already been tried there.
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
        let position = loop {
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
                    QueueDecision::Queued(position) => break position,
                    QueueDecision::Waits(wait) => wait,
                }
            };
            waited = Some(queued::called(limiter, &*self.clock, wait).await);
        };
        let released = queued::released(limiter, &*self.clock, position).await;
        let (rules, now): (Pinned<'_>, _) = (limiter.pin(), self.clock.now());
        Ok(match released {
            Some(position) => {
                self.meters.count_queue_wait(now.since(received));
                let response = respond(&rules, &rules.queued_decision(request, &position, now), true);
                limiter.release(position);
                response
            }
            // The server stops before the release. The request is decided again, without a queue.
            None => respond(&rules, &rules.decide(request, now), false),
        })
    }
}
