//! Faults that the simulation plants, to show that it finds them. In a build without tests there are none.

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
    /// A node that was stopped spends credits beyond their end.
    IgnorePause,
    /// A node counts the validity of credits from the response on.
    ValidFromResponse,
    /// Leases last beyond the end of their window.
    NotClipped,
    /// A grant opens a window from the first hit.
    GrantOpensWindow,
    /// A give-back closes a window from the first hit while credits are out.
    GiveBackClosesWindow,
    /// Exact decisions take no account of the credits that are out.
    IgnoreCredits,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault, or none, in this thread.
#[cfg(test)]
pub(super) fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

#[cfg(test)]
pub(super) fn is_planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

#[cfg(not(test))]
#[inline]
pub(super) const fn is_planted(_: Fault) -> bool {
    false
}
