//! Descriptors of a decided request without a limit, unless a rule exempts them.

use super::{in_force::Pinned, ticket};
use crate::{
    limit::{Decision, Descriptor, Request, Status},
    rules::DomainRules,
};

impl Pinned<'_> {
    /// Calls `visit` with the descriptors that no rule decides on: of an unknown domain, matched by no rule, or only by a rule that leads
    /// to others. Limits that apply by conditions apply to the whole request, for which one descriptor stands.
    pub fn for_undecided<'q, 't>(
        &self,
        request: &'q Request<'t>,
        decision: &Decision<'_>,
        mut visit: impl FnMut(&'q Descriptor<'t>),
    ) {
        let descriptors = request.descriptors();
        let Some(domain) = self.rules().domain(request.domain()) else {
            return descriptors.iter().for_each(visit);
        };
        if domain.conditional().is_some() {
            let decides = |descriptor: &Descriptor<'_>| domain.overlaid(&descriptor.entries).is_some();
            if decision.statuses.iter().all(Status::is_without_limit) && !descriptors.iter().any(decides) {
                descriptors.iter().take(1).for_each(visit);
            }
            return;
        }
        for (descriptor, status) in descriptors.iter().zip(&decision.statuses) {
            if status.is_without_limit() && is_undecided(domain, descriptor) {
                visit(descriptor);
            }
        }
    }
}

/// Releases and renewals need no rule.
fn is_undecided(domain: &DomainRules, descriptor: &Descriptor<'_>) -> bool {
    let names_ticket = domain.features.tickets && ticket::names_ticket(descriptor);
    !names_ticket && domain.leaves_undecided(&descriptor.entries)
}
