//! Figures of quota.

use super::{action::Action, push::Push};

/// Figures since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaCounts {
    /// Reports of buckets.
    pub reports: u64,
    /// Divisions of buckets.
    pub divisions: u64,
    /// Token buckets sent.
    pub assigned: u64,
    /// Assignments sent that deny all requests.
    pub denied: u64,
    /// Buckets abandoned.
    pub abandoned: u64,
}

/// What clients may have in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InForce {
    /// Thousandths of a request per second.
    pub rate: u64,
    /// Tokens, and unspent hits of slices.
    pub tokens: u64,
}

impl InForce {
    /// Puts the part of a bucket into the place of its former one.
    pub(super) fn replace(&mut self, former: Self, part: Self) {
        self.rate = self.rate.saturating_sub(former.rate).saturating_add(part.rate);
        self.tokens = self.tokens.saturating_sub(former.tokens).saturating_add(part.tokens);
    }
}

impl QuotaCounts {
    pub(super) fn count(&mut self, pushes: &[Push]) {
        for push in pushes {
            match push.action {
                Action::Tokens { .. } => self.assigned += 1,
                Action::DenyAll => self.denied += 1,
                Action::Abandon => self.abandoned += 1,
            }
        }
    }
}
