//! Metrics of leases that this server grants.

use super::page::Page;
use std::fmt;
use tidegate_shared::granter::{Granter, GranterCounts};

impl Page<'_> {
    pub(super) fn granter(&mut self, granter: &Granter) -> fmt::Result {
        let GranterCounts { leases, claims, stale, spent, granted } = granter.counts();
        self.value("granted_leases", leases)?;
        let claims = [("current", claims - stale.min(claims)), ("former", stale)];
        self.counts("lease_claims", "rules", &claims)?;
        self.value("lease_granted_hits", granted)?;
        self.value("lease_spent_hits", spent)
    }
}
