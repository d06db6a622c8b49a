//! The response that a node computes from the part of it that the script returns.

use super::{
    LeaseRequest, LeaseResponse, ResponseState, Supply, Terms,
    shared_counter::{empty_for, until_worthwhile},
};
use std::time::Duration;
use tidegate_core::{algorithm::State, limit::Timestamp};

/// The script's part of a response: the rest follows from the state of the counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreGrant {
    /// See [`LeaseResponse`].
    pub spend_to: u64,
    /// See [`LeaseResponse`].
    pub valid_for: Duration,
    /// See [`Supply`].
    pub supply: Supply,
    /// Time until the next report if there are credits.
    pub report_after: Duration,
    /// Outstanding credits of all nodes.
    pub outstanding: u64,
    /// The hits that are used.
    pub state: State,
}

impl StoreGrant {
    /// The response to a request, from a store whose time is `now`.
    pub fn response(
        &self,
        terms: Terms<'_>,
        request: &LeaseRequest,
        epoch: u64,
        now: Timestamp,
    ) -> LeaseResponse {
        let (state, algorithm) = (&self.state, terms.algorithm);
        let is_waiting = self.spend_to == request.spent && self.supply == Supply::Scarce;
        let report_after = match is_waiting {
            true => until_worthwhile(terms, state, self.outstanding, now),
            false => self.report_after,
        };
        LeaseResponse {
            sequence: request.sequence,
            epoch,
            spend_to: self.spend_to,
            valid_for: self.valid_for,
            supply: self.supply,
            report_after,
            free: algorithm.remaining(state, now).saturating_sub(self.outstanding),
            empty_for: empty_for(terms, state, now),
            until_full: algorithm.until_full(state, now),
        }
    }

    /// The counter at this time, if its state is small.
    pub fn counter(&self, terms: Terms<'_>, now: Timestamp) -> Option<ResponseState> {
        if !terms.algorithm.keeps_words() {
            return None;
        }
        // Upper bound: no lease is longer than a lease that is granted now, or ends in another window.
        let longest = || now.saturating_add_nanos(terms.settings.length_nanos());
        let end = terms.end(&self.state, now).unwrap_or_else(longest);
        let (state, outstanding) = (self.state.clone(), self.outstanding);
        Some(ResponseState { state, at: now, outstanding, end })
    }
}
