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

impl QuotaCounts {
    pub(super) fn count(&mut self, pushes: &[Push]) {
        for push in pushes {
            match push.action {
                Action::Tokens { .. } => self.assigned += 1,
                Action::DenyAll { .. } => self.denied += 1,
                Action::Abandon => self.abandoned += 1,
            }
        }
    }
}
