//! The additions to the response of a decision: those of its rules, and those of the response options.

use super::{Additions, RateLimitService, ResponseOptions, client_headers::Sent};
use std::hash::BuildHasher as _;
use tidegate_core::limit::{Decision, Request};

impl RateLimitService {
    /// Whether the response has more than the code and the statuses.
    #[inline]
    pub fn has_additions(&self, decision: &Decision<'_>) -> bool {
        self.options.is_some() || decision.slot.is_some() || decision.has_on_deny()
    }

    /// Content of the response besides the code and the statuses.
    pub fn additions<'d>(&self, request: &Request<'_>, decision: &Decision<'d>) -> Additions<'d> {
        let options = self.options.as_deref();
        let sent = options.map(|options| (options, self.sent(options, decision)));
        if let Some(limits) = decision.service_limits() {
            return Additions::new(sent, request, decision, limits);
        }
        let needs_limits = options.is_some_and(|options| options.headers.need_service_limits());
        // Under a global shadow, no limit denies, so that none is reported.
        let limiter = self.limiter.get().filter(|limiter| needs_limits && !limiter.is_global_shadow());
        let pinned = limiter.map(|limiter| limiter.pin());
        let limits = pinned.as_ref().map(|rules| rules.service_limits(request, self.clock.now()));
        Additions::new(sent, request, decision, &limits.unwrap_or_default())
    }

    /// The time and the jitter of a response. The jitter's number is keyed, so that no client can compute it.
    fn sent(&self, options: &ResponseOptions, decision: &Decision<'_>) -> Sent {
        let (now, jitter) = (self.clock.now(), options.headers.jitter_seconds);
        let chance = if jitter > 0 { self.chances.hash_one((now, decision.number)) } else { 0 };
        Sent::new(now, chance, jitter)
    }
}
