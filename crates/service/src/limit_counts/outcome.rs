//! Outcomes, and counts by outcome.

use tidegate_core::limit::DenialCause;
use tidegate_counts::{Label, labels};

labels! {
    /// Outcome of a descriptor's hits at one limit.
    pub enum Outcome {
        /// Admitted at once.
        Admitted = "admitted",
        /// The part of `Admitted` and `Queued` that was used when little of the limit remained.
        NearLimit = "near_limit",
        /// Denied by this limit, which they exceed.
        Denied = "denied",
        /// Over this limit, but not denied by it: it is in shadow mode, or another quota admitted the request.
        ShadowDenied = "shadow_denied",
        /// Admitted after a wait in a queue.
        Queued = "queued",
        /// Within this limit, but denied by another limit.
        DeniedByOther = "denied_by_other",
        /// Given back by the client.
        GivenBack = "given_back",
        /// The part of `Denied` and `ShadowDenied` that a ban denied, or with which a ban began.
        Banned = "banned",
        /// The part of `Banned` with which a ban began.
        BanBegun = "ban_begun",
        /// Denied although they exceed no limit: there was no room for a new counter.
        DeniedCountersFull = "denied_counters_full",
        /// Denied although they exceed no limit: the shared store did not decide.
        DeniedStoreAway = "denied_store_away",
        /// Would be `DeniedCountersFull` if this limit denied.
        ShadowCountersFull = "shadow_counters_full",
        /// Would be `DeniedStoreAway` if this limit denied.
        ShadowStoreAway = "shadow_store_away",
    }
}

impl Outcome {
    /// The outcome of hits that this limit has denied: by the limit itself if there is no cause.
    pub(super) fn of_denial(cause: Option<DenialCause>) -> Self {
        match cause {
            None => Self::Denied,
            Some(DenialCause::CountersFull) => Self::DeniedCountersFull,
            Some(DenialCause::StoreAway) => Self::DeniedStoreAway,
        }
    }

    /// The outcome of hits that this limit would have denied.
    pub(super) fn of_shadow_denial(cause: Option<DenialCause>) -> Self {
        match cause {
            None => Self::ShadowDenied,
            Some(DenialCause::CountersFull) => Self::ShadowCountersFull,
            Some(DenialCause::StoreAway) => Self::ShadowStoreAway,
        }
    }

    /// Whether it is a part of another outcome. Figures by outcome leave it out: bans have figures of their own.
    pub fn is_of_ban(self) -> bool {
        matches!(self, Self::Banned | Self::BanBegun)
    }
}

/// Hits and requests, by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutcomeCounts {
    pub(super) hits: [u64; Outcome::ALL.len()],
    pub(super) requests: [u64; Outcome::ALL.len()],
}

impl OutcomeCounts {
    /// Hits with this outcome.
    pub fn hits(&self, outcome: Outcome) -> u64 {
        self.hits[outcome as usize]
    }

    /// Requests with this outcome. A request counts once for each of its descriptors to which the limit applies.
    pub fn requests(&self, outcome: Outcome) -> u64 {
        self.requests[outcome as usize]
    }

    pub(super) fn add(&mut self, outcome: Outcome, hits: u64) {
        let (sum, requests) = (&mut self.hits[outcome as usize], &mut self.requests[outcome as usize]);
        *sum = sum.saturating_add(hits);
        *requests += 1;
    }

    pub(super) fn plus(mut self, other: &Self) -> Self {
        for (sum, more) in self.hits.iter_mut().zip(other.hits) {
            *sum = sum.saturating_add(more);
        }
        for (sum, more) in self.requests.iter_mut().zip(other.requests) {
            *sum = sum.saturating_add(more);
        }
        self
    }
}
