//! A model of a counter with leases in a store: claims of nodes by the functions of the crate, and the other operations of the store's
//! script.
//!
//! Each operation first expires leases, then computes `remaining` from the used hits, less the outstanding credits.

// The parent module imports these names from the crate, or, where it is a part of the crate, uses them.
use super::{Epoch, LeaseRequest, LeaseResponse, Terms, lease};
use std::time::Duration;
use tidegate_core::{
    algorithm::{Lease, Leased, State},
    limit::{Reset, Timestamp},
};

/// A counter and its leases.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SharedCounter(pub Leased);

/// Result of an exact decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExactDecision {
    /// The hits are counted.
    Admitted {
        /// Hits that are then neither used nor granted.
        free: u64,
        /// Time until the whole limit would be free.
        until_full: Duration,
    },
    /// No hit is counted.
    Denied {
        /// Hits that are neither used nor granted.
        free: u64,
        /// The wait after which the hits are admitted, whatever is spent or returned of the credits that are outstanding now.
        reset: Reset,
        /// The time for which they cannot be admitted even if all credits are returned; zero if credits alone deny them.
        denied_for: Duration,
    },
    /// The store is in a learning phase, and decides nothing.
    Learning,
}

impl SharedCounter {
    /// A counter with these hits, without outstanding credits.
    pub fn new(state: State) -> Self {
        Self(Leased { state, ..Leased::default() })
    }

    /// The hits that are used.
    pub fn state(&self) -> &State {
        &self.0.state
    }

    /// The leases, in no order. Ended leases are still there until the next operation.
    pub fn leases(&self) -> &[Lease] {
        &self.0.leases
    }

    /// Decides hits on the store's time; zero hits are a peek.
    pub fn decide(&mut self, terms: Terms<'_>, epoch: Epoch, hits: u64, now: Timestamp) -> ExactDecision {
        self.0.expire(terms.algorithm, now);
        if epoch.is_learning(terms.settings.length_nanos(), now) {
            return ExactDecision::Learning;
        }
        let free = terms.algorithm.remaining(&self.0.state, now).saturating_sub(self.0.outstanding());
        if hits <= free {
            self.0.add_exact(terms.algorithm, hits, now);
            let until_full = terms.algorithm.until_full(&self.0.state, now);
            return ExactDecision::Admitted { free: free - hits, until_full };
        }
        let leased = State::Leased(Box::new(self.0.clone()));
        let reset = terms.algorithm.until_admits(&leased, hits, now);
        let denied_for = match terms.algorithm.until_admits(&self.0.state, hits, now) {
            Reset::After(wait) => wait,
            Reset::Never => Duration::MAX,
        };
        ExactDecision::Denied { free, reset, denied_for }
    }

    /// Gives back the newest hits, and returns their number: see [`Leased::give_back`].
    pub fn give_back(&mut self, terms: Terms<'_>, hits: u64, now: Timestamp) -> u64 {
        self.0.expire(terms.algorithm, now);
        self.0.give_back(terms.algorithm, hits, now)
    }

    /// Frees all hits, and returns the number of hits that stay: see [`Leased::reset`].
    pub fn reset(&mut self, terms: Terms<'_>, now: Timestamp) -> u64 {
        self.0.reset(terms.algorithm, now)
    }

    /// Converts the counter to another algorithm: used hits stay used, credits stay outstanding until their end.
    pub fn change_rule(&mut self, former: Terms<'_>, terms: Terms<'_>, now: Timestamp) {
        self.0 = std::mem::take(&mut self.0).take_over(terms.algorithm, former.algorithm, u64::MAX, now);
    }

    /// The response to a claim.
    pub fn lease(
        &mut self,
        terms: Terms<'_>,
        epoch: Epoch,
        request: &LeaseRequest,
        now: Timestamp,
    ) -> Option<LeaseResponse> {
        lease(&mut self.0, terms, epoch, request, now)
    }
}
