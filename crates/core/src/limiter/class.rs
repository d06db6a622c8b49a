//! The class of a request: how, and therefore where, it is decided. Computed once, before any rule is looked up.

use super::{
    fast_path,
    in_force::{InForce, Pinned},
    ticket,
};
use crate::{
    limit::{Descriptor, Hits, Request},
    rules::DomainRules,
};

/// The way in which a request is decided. Batches and single decisions both start from it.
#[derive(Clone, Copy, Debug)]
pub enum Class<'r> {
    /// Its domain has no rules: it is admitted.
    NoRules,
    /// One descriptor with hits: for the fast path, unless its rule or its counter needs more.
    Single(&'r DomainRules),
    /// A few descriptors with hits: likewise, each with a counter of its own.
    Multi(&'r DomainRules),
    /// Decided at once, in general form.
    General(&'r DomainRules),
    /// Gives back hits that queued requests may be behind. Requests that take hits of a rule with queues are decided like all others,
    /// unless their caller waits: see [`Pinned::decide_or_queue`].
    GivesBack(&'r DomainRules),
    /// Its counters are in a shared store, which decides. Without one it is decided in general form.
    Remote(&'r DomainRules),
}

impl Pinned<'_> {
    /// The class of a request under these rules.
    #[inline(always)]
    pub fn classify(&self, request: &Request<'_>) -> Class<'_> {
        let InForce { rules, queued_before, .. }: &InForce = &self.in_force;
        let Some(domain) = rules.domain(request.domain()) else { return Class::NoRules };
        let descriptors = request.descriptors();
        if domain.is_apart()
            && let Some(class) = class_apart(domain, descriptors)
        {
            class
        } else if (*queued_before || domain.may_queue()) && descriptors.iter().any(gives_back) {
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

/// The class of a request to a domain with shared counters, limits by conditions or limits of requests in flight, if that decides it.
#[cold]
fn class_apart<'r>(domain: &'r DomainRules, descriptors: &[Descriptor<'_>]) -> Option<Class<'r>> {
    // Rules with local counters take the fast path: requests with others are not decided here, unless there is no store.
    if domain.is_shared() && !domain.has_local_rules() {
        return Some(Class::Remote(domain));
    }
    if domain.conditional().is_some() {
        return Some(Class::General(domain));
    }
    // Requests that take slots reach the general path by their rules.
    let releases = domain.has_slots() && descriptors.iter().any(ticket::names_ticket);
    releases.then_some(Class::General(domain))
}

fn gives_back(descriptor: &Descriptor<'_>) -> bool {
    matches!(descriptor.hits, Hits::GiveBack(_))
}
