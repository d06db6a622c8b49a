//! Planted faults, which show that the simulation finds them. Each alters the messages or fields of an operation before or after it: the
//! operations themselves have no branch for faults.

use super::super::{
    Epoch, ExactDecision, Holder, LeaseRequest, LeaseResponse, Monotonic, SharedCounter, Terms,
    message::less_drift,
};
use std::time::Duration;
use tidegate_core::limit::Timestamp;

/// A fault of a lease protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// Spent hits are dated at the grant of the lease.
    DateAtGrant,
    /// Credits of leases that expired without a report are free again.
    FreeExpiredCredits,
    /// After a loss the store grants at once.
    NoLearningPhase,
    /// The store processes requests that are not newer than the last one.
    AcceptOldRequests,
    /// A node accepts responses to requests before its last one.
    AcceptOldResponses,
    /// A node that was stopped spends credits after they have ended.
    IgnorePause,
    /// A node counts the validity of credits from the response on.
    ValidFromResponse,
    /// Leases last beyond the end of their window.
    NotClipped,
    /// A grant opens a window from the first hit.
    GrantOpensWindow,
    /// A give-back closes a window from the first hit while credits are outstanding.
    GiveBackClosesWindow,
    /// Exact decisions ignore outstanding credits.
    IgnoreCredits,
    /// A node decides by a reading of its clock from before it was suspended, instead of a reading under the lock.
    DecideByStaleClock,
}

/// A counter of the store, with a fault or none.
#[derive(Clone)]
pub(super) struct FaultyCounter {
    counter: SharedCounter,
    fault: Option<Fault>,
}

impl FaultyCounter {
    pub(super) fn new(fault: Option<Fault>) -> Self {
        Self { counter: SharedCounter::default(), fault }
    }

    pub(super) fn decide(
        &mut self,
        terms: Terms<'_>,
        epoch: Epoch,
        hits: u64,
        now: Timestamp,
    ) -> ExactDecision {
        self.before_expiry(terms, now);
        let ignores = self.fault == Some(Fault::IgnoreCredits);
        let ignored = self.counter.0.leases.extract_if(.., |lease| ignores && lease.end > now);
        let ignored: Vec<_> = ignored.collect();
        let decision = self.counter.decide(terms, epoch, hits, now);
        self.counter.0.leases.extend(ignored);
        decision
    }

    pub(super) fn give_back(&mut self, terms: Terms<'_>, hits: u64, now: Timestamp) -> u64 {
        self.before_expiry(terms, now);
        if self.fault != Some(Fault::GiveBackClosesWindow) {
            return self.counter.give_back(terms, hits, now);
        }
        // As if all hits had been admitted by exact decisions, and one more.
        let exact = self.counter.0.exact;
        self.counter.0.exact = terms.algorithm.used(&self.counter.0.state, now) + 1;
        let given = self.counter.give_back(terms, hits, now);
        self.counter.0.exact = exact.saturating_sub(given);
        given
    }

    pub(super) fn reset(&mut self, terms: Terms<'_>, now: Timestamp) -> u64 {
        self.before_expiry(terms, now);
        self.counter.reset(terms, now)
    }

    pub(super) fn lease(
        &mut self,
        terms: Terms<'_>,
        epoch: Epoch,
        request: &LeaseRequest,
        now: Timestamp,
    ) -> Option<LeaseResponse> {
        self.before_expiry(terms, now);
        let (mut epoch, mut request) = (epoch, *request);
        let counter = &mut self.counter;
        let of_holder = (request.node.0, request.holder);
        let former = counter.0.leases.iter_mut().find(|lease| (lease.node, lease.holder) == of_holder);
        match self.fault {
            Some(Fault::NoLearningPhase) => epoch.began = Timestamp::EPOCH,
            Some(Fault::AcceptOldRequests) => former.into_iter().for_each(|lease| lease.sequence = 0),
            Some(Fault::DateAtGrant) => {
                let granted = former.map(|lease| earlier(lease.end, terms.settings.length));
                let ago = granted.map_or(0, |granted| nanos(now.since(granted)));
                request.spent_ago = request.spent_ago.max(ago);
            }
            Some(Fault::GrantOpensWindow) if terms.algorithm.used(&counter.0.state, now) == 0 => {
                counter.0.state = terms.algorithm.add(std::mem::take(&mut counter.0.state), 1, now);
            }
            _ => {}
        }
        let mut response = counter.lease(terms, epoch, &request, now)?;
        if self.fault == Some(Fault::NotClipped) && response.valid_for > Duration::ZERO {
            response.valid_for = terms.settings.length;
            let granted = counter.0.leases.last_mut().filter(|lease| lease.outstanding > 0);
            let end = now.saturating_add_nanos(terms.settings.length_nanos());
            granted.into_iter().for_each(|lease| lease.end = end);
        }
        Some(response)
    }

    /// Alters leases that the next operation expires.
    fn before_expiry(&mut self, terms: Terms<'_>, now: Timestamp) {
        let leases = &mut self.counter.0.leases;
        match self.fault {
            Some(Fault::FreeExpiredCredits) => leases.retain(|lease| lease.end > now),
            Some(Fault::DateAtGrant) => {
                let ended = leases.iter_mut().filter(|lease| lease.end <= now);
                ended.for_each(|lease| lease.end = earlier(lease.end, terms.settings.length));
            }
            _ => {}
        }
    }
}

/// Has a holder take a response that arrives at `now`.
pub(super) fn accept(fault: Option<Fault>, holder: &mut Holder, response: &LeaseResponse, now: Monotonic) {
    let mut response = *response;
    if fault == Some(Fault::AcceptOldResponses) {
        response.sequence = holder.sequence;
    }
    if !holder.accept(&response, now) {
        return;
    }
    match fault {
        Some(Fault::IgnorePause) => holder.deadline = Monotonic::from_nanos(u64::MAX),
        Some(Fault::ValidFromResponse) => {
            holder.deadline = now.plus_nanos(less_drift(nanos(response.valid_for)));
        }
        _ => {}
    }
}

fn earlier(moment: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_nanos(moment.as_nanos().saturating_sub(nanos(by)))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
