//! Counters in the shared store, for operators.

use super::RateLimitService;
use crate::{
    limit::{Request, ServiceLimit},
    limiter::{HeldRules, ListedLimits},
    shared::store::Failure,
};
use std::time::Duration;

impl RateLimitService {
    /// The limits of a request under these rules, those of shadow rules too, with what their counters have left. `request` is a
    /// peek.
    pub async fn limits_now<'h>(
        &self,
        held: &'h HeldRules<'h>,
        request: &Request<'_>,
    ) -> Result<Vec<ServiceLimit<'h>>, Failure> {
        let now = self.clock.now();
        let remote = held.remote(request).filter(|remote| !remote.needs_no_store());
        let (Some(store), Some(mut remote)) = (&self.shared, remote) else {
            return Ok(held.counters(request, now));
        };
        remote.evaluate_local(now);
        let verdict = store.decide(&remote, now, Duration::MAX).await?;
        let decision = verdict.decide(&mut remote, ListedLimits::All, self.clock.now()).map_err(|error| {
            store.disagreed(&error);
            Failure::Failed
        })?;
        Ok(decision.service_limits.map_or_else(Vec::new, |limits| *limits))
    }
}
