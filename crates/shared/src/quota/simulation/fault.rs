//! Planted faults, by which the simulation shows that it finds them. The product has no branch for any.

use super::super::Quota;

/// A fault of quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// What a client has whose stream has ended is forgotten.
    ForgetsClosed,
    /// A process begins as if there had been none before it.
    NoLearning,
    /// The counter holds nothing for clients.
    HoldsNothing,
}

impl Quota {
    pub(super) fn forget_remnants(&mut self) {
        self.buckets.iter_mut().flatten().for_each(|bucket| bucket.remnants.clear());
    }
}
