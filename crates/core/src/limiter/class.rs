//! The class of a request: which path decides it. Computed once, before any rule is looked up.

use super::{
    fast_path,
    in_force::{InForce, Pinned},
    ticket,
};
use crate::{
    limit::{Descriptor, Hits, Request},
    rules::DomainRules,
};

/// Path that decides a request. Batches and single decisions both start from it.
#[derive(Clone, Copy, Debug)]
pub enum Class<'r> {
    /// The domain has no rules: the request is admitted.
    NoRules,
    /// One descriptor with hits: the fast path, unless its rule or its counter needs more.
    Single(&'r DomainRules),
    /// A few descriptors with hits, each with a counter of its own: likewise.
    Multi(&'r DomainRules),
    /// Decided at once, in general form.
    General(&'r DomainRules),
    /// Gives back hits, which may admit queued requests. (A request that takes hits of a rule with queues has another class, unless its
    /// caller waits: see [`Pinned::decide_or_queue`].)
    GivesBack(&'r DomainRules),
    /// Its counters are in a shared store, which decides. Without a store, the general path decides.
    Remote(&'r DomainRules),
}

impl Pinned<'_> {
    /// The class of a request under these rules.
    #[inline(always)]
    pub fn classify(&self, request: &Request<'_>) -> Class<'_> {
        let InForce { rules, queued_before, .. }: &InForce = &self.in_force;
        let Some(domain) = rules.domain(request.domain()) else { return Class::NoRules };
        let descriptors = request.descriptors();
        if domain.features.is_apart
            && let Some(class) = class_apart(domain, descriptors)
        {
            class
        } else if (*queued_before || domain.features.queues) && descriptors.iter().any(gives_back) {
            Class::GivesBack(domain)
        } else if self.limiter.global_shadow
            || request.is_report()
            || !fast_path::may_take(descriptors, domain)
        {
            Class::General(domain)
        } else if descriptors.len() == 1 {
            Class::Single(domain)
        } else {
            Class::Multi(domain)
        }
    }
}

/// The class of a request that needs the general path or the store because its domain has shared counters, conditions or slots; else none.
#[cold]
fn class_apart<'r>(domain: &'r DomainRules, descriptors: &[Descriptor<'_>]) -> Option<Class<'r>> {
    // A domain with local rules takes the fast path: its requests to shared counters are decided here only if there is no store.
    if domain.is_shared() && !domain.features.local_rules {
        return Some(Class::Remote(domain));
    }
    if domain.conditional().is_some() {
        return Some(Class::General(domain));
    }
    // Requests that take slots reach the general path by their rules.
    let releases = domain.features.tickets && descriptors.iter().any(ticket::names_ticket);
    releases.then_some(Class::General(domain))
}

fn gives_back(descriptor: &Descriptor<'_>) -> bool {
    matches!(descriptor.hits, Hits::GiveBack(_))
}
