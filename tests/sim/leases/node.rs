//! A holder of credits, with the epoch of the server that it knows.

use super::server::Decided;
use std::time::Duration;
use tidegate_shared::lease::{
    Holder, HolderDecision, LeaseRequest, LeaseResponse, Monotonic, NodeId, StoreDenial,
};

pub(super) struct Node {
    /// The id changes with each kill.
    pub(super) id: u64,
    /// The last epoch that it saw.
    pub(super) epoch: u64,
    holder: Option<Holder>,
}

impl Node {
    pub(super) fn new(id: u64) -> Self {
        Self { id, epoch: 0, holder: None }
    }

    pub(super) fn decide(&mut self, now: Monotonic) -> HolderDecision {
        self.holder.as_mut().map_or(HolderDecision::Undecided, |holder| holder.decide(1, now))
    }

    pub(super) fn poll(&mut self, now: Monotonic) -> Option<LeaseRequest> {
        let holder = self.holder.as_mut()?;
        holder.drop_expired(now);
        holder.poll(NodeId(self.id), now)
    }

    /// Takes a decision of the server. Returns the last claim to a server of another epoch.
    pub(super) fn decided(
        &mut self,
        decided: &Decided,
        asked: Monotonic,
        now: Monotonic,
    ) -> Option<LeaseRequest> {
        let last = self.see(decided.epoch, now);
        let holder = self.holder.get_or_insert_with(|| {
            let mut holder = Holder::new(decided.terms.holder, now);
            holder.decide(1, now);
            holder
        });
        if decided.is_admitted {
            holder.admitted(decided.remaining, now);
        } else {
            let denied_for = decided.terms.denied_for;
            let reset = denied_for.max(Duration::from_millis(1));
            let denial =
                StoreDenial { hits: 1, remaining: decided.remaining, denied_for, reset, state: None };
            holder.keep_denial(denial, asked, now);
        }
        last
    }

    /// Takes a grant. Returns the last claim to a server of another epoch.
    pub(super) fn granted(&mut self, response: &LeaseResponse, now: Monotonic) -> Option<LeaseRequest> {
        if let Some(holder) = &mut self.holder {
            holder.accept(response, now);
        }
        self.see(response.epoch, now)
    }

    /// In another epoch, all credits are given up, and the counter is learned again.
    fn see(&mut self, epoch: u64, now: Monotonic) -> Option<LeaseRequest> {
        // A late response of a former process changes nothing.
        if epoch <= self.epoch {
            return None;
        }
        self.epoch = epoch;
        self.holder.take()?.release(NodeId(self.id), now)
    }
}
