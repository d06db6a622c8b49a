//! Planted faults, which show that the simulation finds them. The product has no branch for any.

use super::super::{Quota, bucket::Kind};

/// A fault of quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// The share of a client whose stream has ended is forgotten.
    ForgetsClosed,
    /// A process begins as if no process had been before it.
    NoLearning,
    /// A process ignores that the process before the former one recorded nothing.
    ForgetsUnrecorded,
    /// The counter holds nothing for clients.
    HoldsNothing,
    /// Shares grow into what other clients were sent to give up, before they receive it.
    GrowsAtOnce,
    /// Tokens that clients gave up are free at once.
    ForgetsDebt,
}

impl Quota {
    pub(super) fn forget_former_shares(&mut self) {
        self.buckets.change_all(|bucket| {
            let pending = bucket.members.iter_mut().filter(|member| member.is_pending());
            bucket.is_dirty |= pending.map(|member| member.counted = member.share).count() > 0;
        });
    }

    pub(super) fn forget_debts(&mut self) {
        self.buckets.change_all(|bucket| {
            if let Kind::Rates(rates) = &mut bucket.kind {
                rates.debt = 0;
            }
        });
    }

    pub(super) fn forget_remnants(&mut self) {
        self.buckets.change_all(|bucket| bucket.remnants.clear());
    }
}
