//! Counters in the shared store, for operators.

use super::{CallOrigin, RateLimitService};
use std::time::Duration;
use tidegate_core::{
    limit::{Decision, Request, ServiceLimit},
    limiter::{ListedLimits, OwnedPinned},
};
use tidegate_shared::store::Failure;

impl RateLimitService {
    /// The limits of a request under these rules, including those of shadow rules, with what their counters have left. `request` is a peek.
    pub async fn limits_now<'h>(
        &self,
        owned: &'h OwnedPinned<'h>,
        request: &Request<'_>,
    ) -> Result<Vec<ServiceLimit<'h>>, Failure> {
        let now = self.clock.now();
        let remote = owned.remote(request, now).filter(|remote| !remote.needs_no_store());
        let (Some(store), Some(mut remote)) = (&self.shared, remote) else {
            return Ok(owned.counters(request, now));
        };
        remote.evaluate_local(now);
        let verdict = store.decide(&remote, store.peer_id(""), now, Duration::MAX).await?;
        let decision = verdict.decide(&mut remote, ListedLimits::All, self.clock.now()).map_err(|error| {
            store.disagreed(&error);
            Failure::Failed
        })?;
        Ok(decision.rare.and_then(|rare| rare.service_limits).unwrap_or_default())
    }

    /// Gives hits back to counters in the store. None if the request has no such counters. Unlike a client's request, fails if the store
    /// does not decide, because the counters that the hits were taken from are there.
    pub async fn give_back_to_store<'h>(
        &self,
        owned: &'h OwnedPinned<'h>,
        request: &Request<'_>,
    ) -> Option<Result<Decision<'h>, Failure>> {
        let now = self.clock.now();
        let store = self.shared.as_ref()?;
        let mut remote = owned.remote(request, now).filter(|remote| !remote.needs_no_store())?;
        remote.evaluate_local(now);
        let verdict = store.decide(&remote, store.peer_id(""), now, Duration::MAX).await;
        remote.counters().for_each(|(counter, _)| store.holders.drop_denial(counter.key));
        let decided = verdict.and_then(|verdict| {
            verdict.decide(&mut remote, ListedLimits::None, self.clock.now()).map_err(|error| {
                store.disagreed(&error);
                Failure::Failed
            })
        });
        if let Ok(decision) = &decided {
            self.record(request, decision, false, || (CallOrigin::default(), now, owned.generation()));
        }
        Some(decided)
    }
}
