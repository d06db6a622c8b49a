//! Decisions of a shared store, and decisions while it does not decide.

use super::{CallOrigin, NotReady, RateLimitService, queued::SlotPlace};
use smallvec::SmallVec;
use std::{sync::Arc, time::Duration};
use tidegate_core::{
    limit::{Code, Decision, Request, Reset, Timestamp},
    limiter::{
        HeldKind, ListedLimits, NamedChanges, OwnedPinned, RemoteRequest, SlotRelease, SlotWait, StoreWait,
        WithoutStore,
    },
    store::Key,
};
use tidegate_shared::{
    PeerId,
    holders::Holders,
    lease::{CounterState, Monotonic, StoreDenial},
    store::{Closed, Failure, SharedStore},
};

/// One decision of the store.
struct Attempt<'h, 'q, 't> {
    store: &'q Arc<SharedStore>,
    peer: PeerId,
    owned: &'h OwnedPinned<'h>,
    request: &'q Request<'t>,
    named: &'q NamedChanges,
    /// None if the request does not wait for slots.
    wait: Option<StoreWait>,
    now: Timestamp,
}

/// The result of an attempt.
#[expect(clippy::large_enum_variant, reason = "boxing a decision would allocate on its path")]
enum Attempted<'h> {
    Decided(Decision<'h>),
    /// The request waits for slots in the store.
    Waits(SlotWait),
    /// The request has no counter in the store.
    Local,
}

impl<'h> Attempt<'h, '_, '_> {
    /// The request as the store should decide it. None if it has no counter in the store.
    fn plan(&self) -> Option<RemoteRequest<'h>> {
        let mut plan = self.owned.remote(self.request, self.now)?;
        plan.conclude(self.named);
        if let Some(wait) = self.wait {
            plan.wait_for_slots(wait);
        }
        Some(plan)
    }
}

impl RateLimitService {
    /// Decides a request by leases in hand if they suffice. False if the store has to decide.
    pub fn decide_by_lease<'q, 't>(
        &self,
        request: &'q Request<'t>,
        origin: CallOrigin<'q>,
        respond: impl FnOnce(&Decision<'_>),
    ) -> bool {
        let Some(holders) = self.shared.as_ref().map(|store| &store.holders) else { return false };
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

    /// The shared store that decides the request, if any.
    pub(super) fn store_of(&self, request: &Request<'_>) -> Option<&Arc<SharedStore>> {
        let store = self.shared.as_ref()?;
        self.limiter.get().is_some_and(|limiter| limiter.pin().is_remote(request)).then_some(store)
    }

    /// Decides one request by the store, for a caller that waits up to `wait_max`. If only limits of requests in flight deny it, it waits
    /// for slots and is decided again.
    pub(super) async fn decide_remotely<'q, 't, T>(
        &self,
        store: &Arc<SharedStore>,
        request: &'q Request<'t>,
        (origin, received): (CallOrigin<'q>, Timestamp),
        wait_max: Duration,
        respond: impl FnOnce(&Decision<'_>) -> T,
    ) -> Result<T, NotReady> {
        let limiter = self.limiter.get().ok_or_else(|| self.not_ready())?;
        let peer = store.peer_id(origin.peer);
        let named =
            self.change_named((store, peer), &limiter.pin_owned(), request, received, wait_max).await?;
        let respond = |decision: &Decision<'_>, has_waited: bool, generation: u64| {
            self.record(request, decision, has_waited, || (origin, received, generation));
            let response = respond(decision);
            self.count_wait(received, decision.code, has_waited);
            response
        };
        let mut wait = limiter.wait_in_store(request, wait_max, received);
        let (mut place, mut now): (Option<SlotPlace<'_>>, _) = (None, received);
        loop {
            let owned = limiter.pin_owned();
            let attempt = Attempt { store, peer, owned: &owned, request, named: &named, wait, now };
            let left = wait_max.saturating_sub(now.since(received));
            match self.attempt(attempt, left, place.as_ref()).await? {
                Attempted::Decided(decision) => {
                    return Ok(respond(&decision, place.is_some(), owned.generation()));
                }
                // The rules have changed since, or a limit of the request is replaced: all of its counters are local.
                Attempted::Local => {
                    let rules = limiter.pin();
                    let decision = rules.decide(request, now);
                    return Ok(respond(&decision, place.is_some(), rules.generation()));
                }
                Attempted::Waits(slots) => {
                    let place = place.get_or_insert_with(|| SlotPlace::new(limiter));
                    place.enter(slots);
                    place.called(&*self.clock).await;
                    wait = wait.map(StoreWait::after_pause);
                    now = self.clock.now();
                }
            }
        }
    }

    /// Makes the releases, ends and renewals in the store that a request names.
    async fn change_named(
        &self,
        (store, peer): (&Arc<SharedStore>, PeerId),
        owned: &OwnedPinned<'_>,
        request: &Request<'_>,
        received: Timestamp,
        wait_max: Duration,
    ) -> Result<NamedChanges, NotReady> {
        let mut named = owned.change_named(request, received);
        if !named.in_store().is_empty() {
            store.release(named.in_store(), peer, self.release_counter(named.in_store())).await;
        }
        if !named.renewals().is_empty() {
            let are_held = renew(store, peer, &named, wait_max).await?;
            owned.renewed_in_store(request, &mut named, &are_held, received);
        }
        Ok(named)
    }

    /// Tries one decision of the store, for a caller that waits up to `left`. Without a `place`, the request may have to queue for slots
    /// instead.
    async fn attempt<'h>(
        &self,
        attempt: Attempt<'h, '_, '_>,
        left: Duration,
        place: Option<&SlotPlace<'_>>,
    ) -> Result<Attempted<'h>, NotReady> {
        let Attempt { store, peer, owned, request, now, .. } = attempt;
        let limiter = self.limiter.get().ok_or_else(|| self.not_ready())?;
        let Some(mut plan) = attempt.plan() else { return Ok(Attempted::Local) };
        if plan.needs_no_store() {
            let decision = plan.decide(SmallVec::new(), now, &[], ListedLimits::None, now);
            return Ok(Attempted::Decided(decision));
        }
        if place.is_none()
            && let Some(slots) = limiter.line_up(&plan, now)
        {
            return Ok(Attempted::Waits(slots));
        }
        plan.evaluate_local(now);
        let sent = Holders::now();
        let verdict = store.decide(&plan, peer, now, left).await;
        let given = plan.counters().filter(|(counter, _)| counter.given > 0);
        given.for_each(|(counter, _)| store.holders.drop_denial(counter.key));
        let failure = match verdict {
            Ok(verdict) => match verdict.decide(&mut plan, self.listed_limits(), self.clock.now()) {
                Ok(decision) => {
                    if decision.code != verdict.code {
                        store.take_back(&plan, peer, &verdict, now);
                    }
                    let former = place.and_then(SlotPlace::wait);
                    if let Some(slots) = limiter.stay_for_slots(&mut plan, former, self.clock.now()) {
                        return Ok(Attempted::Waits(slots));
                    }
                    let state_of = |key| verdict.state_of(&plan, key);
                    let results = (&decision, verdict.has_credits);
                    note_results(&store.holders, owned, request, results, state_of, sent);
                    return Ok(Attempted::Decided(decision));
                }
                Err(error) => {
                    store.disagreed(&error);
                    plan = attempt.plan().expect("it was planned before");
                    Failure::Failed
                }
            },
            Err(failure) => failure,
        };
        let policy = store.without_store().ok_or(NotReady::Store(failure))?;
        Ok(Attempted::Decided(plan.decide_without_store(policy, self.clock.now())))
    }

    /// Counts what a shared store has released and ended, and what was not held or open there. Wakes requests that wait for the slots.
    pub(super) fn release_counter(
        &self,
        releases: &[SlotRelease],
    ) -> impl Fn(Closed) + Clone + Send + 'static + use<> {
        let limiter = Arc::clone(&self.limiter);
        let held = releases.iter().flat_map(|release| &release.held);
        let slots = held.filter(|(held, _)| held.kind == HeldKind::Slot);
        let keys: SmallVec<[Key; 2]> = slots.map(|(held, _)| held.key).collect();
        move |Closed { kind, closed, unknown }| {
            let Some(limiter) = limiter.get() else { return };
            limiter.count_closed(kind, closed, unknown);
            if kind == HeldKind::Slot {
                limiter.call_for_slots(&keys);
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

/// Renews what tickets name in the store. Returns whether each is held. If the store does not respond, the policy decides.
async fn renew(
    store: &Arc<SharedStore>,
    peer: PeerId,
    named: &NamedChanges,
    wait_max: Duration,
) -> Result<Vec<bool>, NotReady> {
    let mut are_held = Vec::with_capacity(named.renewals().len());
    for renewal in named.renewals() {
        are_held.push(match store.renew(renewal, peer, wait_max).await {
            Ok(is_held) => is_held,
            Err(failure) => match store.without_store().ok_or(NotReady::Store(failure))? {
                WithoutStore::Allow => true,
                // Slots in the store are not counted here.
                WithoutStore::Deny | WithoutStore::Local { .. } => false,
            },
        });
    }
    Ok(are_held)
}

/// Notes in the holders which counters have denied or admitted hits of a request sent at `sent`, by the decision of the store.
fn note_results(
    holders: &Holders,
    owned: &OwnedPinned<'_>,
    request: &Request<'_>,
    (decision, has_credits): (&Decision<'_>, bool),
    state_of: impl Fn(Key) -> Option<CounterState>,
    sent: Monotonic,
) {
    let charges = owned.leasable(request).unwrap_or_default();
    for (charge, status) in charges.iter().zip(&decision.statuses) {
        let Some(charge) = charge else { continue };
        let remaining = u64::from(status.remaining);
        match status.reset {
            Some(Reset::After(reset)) if status.is_over => {
                // Servers may return outstanding credits at any time.
                let denied_for = if has_credits { Duration::ZERO } else { reset };
                let (hits, state) = (charge.hits(), state_of(charge.key()));
                let denied = StoreDenial { hits, remaining, denied_for, reset, state };
                holders.keep_denial(charge, denied, sent);
            }
            _ if decision.code == Code::Ok => holders.admitted(charge.key(), remaining),
            _ => {}
        }
    }
}
