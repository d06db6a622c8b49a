//! Decisions of a shared store, and what is decided while it does not decide.

use super::{CallOrigin, RateLimitService};
use crate::{
    limit::{Code, Decision, Request, Reset, Timestamp},
    limiter::{HeldRules, ListedLimits, RemoteRequest},
    shared::{holders::Holders, lease::Monotonic, store::SharedStore},
};
use smallvec::SmallVec;
use std::time::Duration;

impl RateLimitService {
    /// Decides a request by leases in hand, if they suffice; false if the store has to decide.
    pub fn decide_by_lease<'q, 't>(
        &self,
        request: &'q Request<'t>,
        origin: CallOrigin<'q>,
        respond: impl FnOnce(&Decision<'_>),
    ) -> bool {
        let Some(holders) = self.shared.as_ref().and_then(SharedStore::holders) else { return false };
        if self.needs_service_limits() {
            return false;
        }
        let Some(limiter) = self.limiter.get() else { return false };
        let rules = limiter.pin();
        let decision = rules.leasable(request).and_then(|charges| holders.decide(&charges, Holders::now()));
        let Some(decision) = decision else { return false };
        self.record(request, &decision, false, || (origin, self.clock.now(), rules.generation()));
        respond(&decision);
        true
    }

    /// The shared store that decides the request, if one does.
    pub(super) fn store_of(&self, request: &Request<'_>) -> Option<&SharedStore> {
        let store = self.shared.as_ref()?;
        self.limiter.get().is_some_and(|limiter| limiter.pin().is_remote(request)).then_some(store)
    }

    /// Decides one request by the store, for a caller that waits up to `wait_max`.
    pub(super) async fn decide_remotely<'q, 't, T>(
        &self,
        store: &SharedStore,
        held: &HeldRules<'_>,
        request: &'q Request<'t>,
        (origin, received): (CallOrigin<'q>, Timestamp),
        wait_max: Duration,
        respond: impl FnOnce(&Decision<'_>) -> T,
    ) -> T {
        let respond = |decision: &Decision<'_>| {
            self.record(request, decision, false, || (origin, received, held.generation()));
            let response = respond(decision);
            if let Some(now) = self.measured_time() {
                self.meters.count_response(now.since(received), decision.code);
            }
            response
        };
        let Some(mut plan) = held.remote(request) else {
            // The rules have changed since, or a limit of the request is replaced, and all of its counters are local.
            let rules = self.limiter.get().expect("the service is ready").pin();
            return respond(&rules.decide(request, received));
        };
        if plan.needs_no_store() {
            return respond(&plan.decide(SmallVec::new(), received, &[], ListedLimits::None, received));
        }
        plan.evaluate_local(received);
        let sent = Holders::now();
        let verdict = store.decide(&plan, received, wait_max).await;
        if let Some(holders) = store.holders() {
            let given = plan.counters().filter(|(counter, _)| counter.given > 0);
            given.for_each(|(counter, _)| holders.drop_denial(counter.key));
        }
        match verdict {
            Ok(verdict) => match verdict.decide(&mut plan, self.listed_limits(), self.clock.now()) {
                Ok(decision) => {
                    if decision.code != verdict.code {
                        store.take_back(&plan, &verdict, received);
                    }
                    if let Some(holders) = store.holders().filter(|_| !verdict.has_credits) {
                        keep_denials(holders, held, request, &decision, sent);
                    }
                    respond(&decision)
                }
                Err(error) => {
                    store.disagreed(&error);
                    let plan = held.remote(request).expect("it was planned before");
                    respond(&self.decide_without(store, plan))
                }
            },
            Err(_) => respond(&self.decide_without(store, plan)),
        }
    }

    fn decide_without<'h>(&self, store: &SharedStore, plan: RemoteRequest<'h>) -> Decision<'h> {
        plan.decide_without_store(store.without_store(), self.clock.now())
    }

    fn listed_limits(&self) -> ListedLimits {
        if self.needs_service_limits() { ListedLimits::Enforced } else { ListedLimits::None }
    }

    /// Whether responses report the limits of a request besides those of its statuses.
    fn needs_service_limits(&self) -> bool {
        self.options.as_deref().is_some_and(|options| options.headers.need_service_limits())
    }
}

/// Keeps the denials of a decision of the store, to a request sent at `sent`, while no credits were out.
fn keep_denials(
    holders: &Holders,
    held: &HeldRules<'_>,
    request: &Request<'_>,
    decision: &Decision<'_>,
    sent: Monotonic,
) {
    if decision.code == Code::Ok {
        return;
    }
    let charges = held.leasable(request).unwrap_or_default();
    for (charge, status) in charges.iter().zip(&decision.statuses) {
        if let (Some(charge), true, Some(Reset::After(wait))) = (charge, status.is_over, status.reset) {
            holders.keep_denial(charge, wait, sent);
        }
    }
}
