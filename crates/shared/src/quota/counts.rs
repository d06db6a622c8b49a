//! Figures of quota.

use super::{assignment::Assignment, push::Push};

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
            match push.assignment {
                Assignment::Tokens { .. } | Assignment::AllowAll => self.assigned += 1,
                Assignment::DenyAll => self.denied += 1,
                Assignment::Abandon => self.abandoned += 1,
            }
        }
    }
}
