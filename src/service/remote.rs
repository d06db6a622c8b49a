//! Decisions of a shared store, and what is decided while it does not decide.

use super::{CallOrigin, NotReady, RateLimitService};
use smallvec::SmallVec;
use std::{sync::Arc, time::Duration};
use tidegate_core::{
    limit::{Code, Decision, Request, Reset, Timestamp},
    limiter::{ListedLimits, NamedChanges, OwnedPinned, WithoutStore},
};
use tidegate_shared::{
    holders::Holders,
    lease::{Monotonic, StoreDenial},
    store::{Closed, Failure, SharedStore},
};

impl RateLimitService {
    /// Decides a request by leases in hand, if they suffice; false if the store has to decide.
    pub fn decide_by_lease<'q, 't>(
        &self,
        request: &'q Request<'t>,
        origin: CallOrigin<'q>,
        respond: impl FnOnce(&Decision<'_>),
    ) -> bool {
        let Some(holders) = self.shared.as_ref().map(SharedStore::holders) else { return false };
        if self.needs_service_limits() {
            return false;
        }
        let Some(limiter) = self.limiter.get() else { return false };
        let rules = limiter.pin();
        let decision = rules.leasable(request).and_then(|charges| holders.decide(&charges, Holders::now));
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
        owned: &OwnedPinned<'_>,
        request: &'q Request<'t>,
        (origin, received): (CallOrigin<'q>, Timestamp),
        wait_max: Duration,
        respond: impl FnOnce(&Decision<'_>) -> T,
    ) -> Result<T, NotReady> {
        let respond = |decision: &Decision<'_>| {
            self.record(request, decision, false, || (origin, received, owned.generation()));
            let response = respond(decision);
            if let Some(now) = self.measured_time() {
                self.meters.count_response(now.since(received), decision.code);
            }
            response
        };
        let mut named = owned.change_named(request, received);
        if !named.in_store().is_empty() {
            store.release(named.in_store(), self.release_counter()).await;
        }
        if !named.renewals().is_empty() {
            let are_held = renew(store, &named, wait_max).await?;
            owned.renewed_in_store(request, &mut named, &are_held, received);
        }
        let Some(mut plan) = owned.remote(request, received) else {
            // The rules have changed since, or a limit of the request is replaced, and all of its counters are local.
            let rules = self.limiter.get().expect("the service is ready").pin();
            return Ok(respond(&rules.decide(request, received)));
        };
        plan.conclude(&named);
        if plan.needs_no_store() {
            return Ok(respond(&plan.decide(SmallVec::new(), received, &[], ListedLimits::None, received)));
        }
        plan.evaluate_local(received);
        let sent = Holders::now();
        let verdict = store.decide(&plan, received, wait_max).await;
        let given = plan.counters().filter(|(counter, _)| counter.given > 0);
        given.for_each(|(counter, _)| store.holders().drop_denial(counter.key));
        let failure = match verdict {
            Ok(verdict) => match verdict.decide(&mut plan, self.listed_limits(), self.clock.now()) {
                Ok(decision) => {
                    if decision.code != verdict.code {
                        store.take_back(&plan, &verdict, received);
                    }
                    note_results(store.holders(), owned, request, &decision, verdict.has_credits, sent);
                    return Ok(respond(&decision));
                }
                Err(error) => {
                    store.disagreed(&error);
                    plan = owned.remote(request, received).expect("it was planned before");
                    plan.conclude(&named);
                    Failure::Failed
                }
            },
            Err(failure) => failure,
        };
        let policy = store.without_store().ok_or(NotReady::Store(failure))?;
        Ok(respond(&plan.decide_without_store(policy, self.clock.now())))
    }

    /// Counts what a shared store has released and ended, and what was not held or open there.
    pub(super) fn release_counter(&self) -> impl Fn(Closed) + Clone + Send + 'static {
        let limiter = Arc::clone(&self.limiter);
        move |closed| {
            let Some(limiter) = limiter.get() else { return };
            match closed {
                Closed::Slots { released, unknown } => limiter.count_releases(released, unknown),
                Closed::Reservations { ended, unknown } => limiter.count_ends(ended, unknown),
            }
        }
    }

    fn listed_limits(&self) -> ListedLimits {
        if self.needs_service_limits() { ListedLimits::Enforced } else { ListedLimits::None }
    }

    /// Whether responses report the limits of a request besides those of its statuses.
    fn needs_service_limits(&self) -> bool {
        self.options.as_deref().is_some_and(|options| options.headers.need_service_limits())
    }
}

/// Renews what tickets name in the store; returns whether each is held. Without its response, the policy decides.
async fn renew(store: &SharedStore, named: &NamedChanges, wait_max: Duration) -> Result<Vec<bool>, NotReady> {
    let mut are_held = Vec::with_capacity(named.renewals().len());
    for renewal in named.renewals() {
        are_held.push(match store.renew(renewal, wait_max).await {
            Ok(is_held) => is_held,
            Err(failure) => match store.without_store().ok_or(NotReady::Store(failure))? {
                WithoutStore::Allow => true,
                // What is in the store is not counted here.
                WithoutStore::Deny | WithoutStore::Local { .. } => false,
            },
        });
    }
    Ok(are_held)
}

/// Notes which counters have denied and admitted hits of a request sent at `sent`, by the decision of the store.
fn note_results(
    holders: &Holders,
    owned: &OwnedPinned<'_>,
    request: &Request<'_>,
    decision: &Decision<'_>,
    has_credits: bool,
    sent: Monotonic,
) {
    let charges = owned.leasable(request).unwrap_or_default();
    for (charge, status) in charges.iter().zip(&decision.statuses) {
        let Some(charge) = charge else { continue };
        let remaining = u64::from(status.remaining);
        match status.reset {
            Some(Reset::After(reset)) if status.is_over => {
                // Outstanding credits may be returned at any time.
                let denied_for = if has_credits { Duration::ZERO } else { reset };
                let denied = StoreDenial { hits: charge.hits(), remaining, denied_for, reset };
                holders.keep_denial(charge, denied, sent);
            }
            _ if decision.code == Code::Ok => holders.admitted(charge.key(), remaining),
            _ => {}
        }
    }
}
