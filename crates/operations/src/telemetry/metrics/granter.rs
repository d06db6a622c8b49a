//! Metrics of leases that this server grants.

use super::page::Page;
use std::fmt;
use tidegate_shared::granter::{Granter, GranterCounts};

impl Page<'_> {
    pub(super) fn granter(&mut self, granter: &Granter) -> fmt::Result {
        let GranterCounts { leases, claims, stale, spent, granted } = granter.counts();
        self.gauge("granted_leases", "Leases of nodes on counters of this server", leases)?;
        let help = "Claims of nodes to credits, by whether the node knew the rules in force";
        let claims = [("current", claims - stale.min(claims)), ("former", stale)];
        self.counters_of("lease_claims", help, "rules", &claims)?;
        self.counter("lease_granted_hits", "Hits that nodes were granted", granted)?;
        self.counter("lease_spent_hits", "Hits that nodes reported as spent", spent)
    }
}
