//! Admitted requests whose clients reset their calls. Their end will never be reported, so they end at the reset.

use super::{Cancellation, DecisionReader, RateLimitService};
use std::sync::Arc;
use tidegate_core::{
    limit::{Decision, Request},
    limiter::SlotRelease,
};

/// The readers that follow a decision's cancellation, and the domain of its request.
struct Followers {
    domain: Box<str>,
    readers: Vec<Arc<dyn DecisionReader>>,
}

impl RateLimitService {
    /// A function that releases the slots of an admitted request whose caller will not report its end, and returns its estimates. None if
    /// the request has no ticket.
    pub fn release_of(
        &self,
        request: &Request<'_>,
        decision: &Decision<'_>,
        peer: &str,
    ) -> Option<impl FnOnce() + Send + 'static> {
        let slot = decision.slot.as_ref()?;
        let (limiter, clock, ticket) =
            (Arc::clone(&self.limiter), Arc::clone(&self.clock), slot.ticket.clone());
        let in_store = self.shared.as_ref().zip(SlotRelease::of_ticket(&ticket));
        let in_store = in_store.map(|(store, release)| {
            let counter = self.release_counter(std::slice::from_ref(&release));
            (Arc::clone(store), release, store.peer_id(peer), counter)
        });
        let followers = self.followers(request);
        Some(move || {
            // The store counts what it released. It has no number here.
            let number_in_store = in_store.is_some().then_some(0);
            if let Some((store, release, peer, counter)) = in_store {
                store.release_later(&release, peer, counter);
            }
            let Some(limiter) = limiter.get() else { return };
            let at = clock.now();
            let number = limiter.cancel_start(&ticket, at).or(number_in_store);
            if let (Some(Followers { domain, readers }), Some(number)) = (followers, number) {
                let generation = limiter.pin().generation();
                let cancellation = Cancellation { domain: &domain, ticket: &ticket, at, number, generation };
                readers.iter().for_each(|reader| reader.read_cancelled(&cancellation));
            }
        })
    }

    fn followers(&self, request: &Request<'_>) -> Option<Followers> {
        if !self.is_read {
            return None;
        }
        let all = self.readers.iter().chain(&self.observer);
        let readers: Vec<_> = all.filter(|reader| reader.follows(request)).cloned().collect();
        (!readers.is_empty()).then(|| Followers { domain: request.domain().into(), readers })
    }
}
