//! What an answer says besides its verdict and its statuses: what a rule wants done with its denials.
//!
//! Most answers say nothing of it, and cost nothing for it: [`are_due`] tells them apart by the decision's code.

mod on_deny;

use super::pb::service::RateLimitResponse;
use crate::limit::Decision;

/// Whether there is anything to add to the answer.
#[inline]
pub(super) fn are_due(decision: &Decision<'_>) -> bool {
    decision.has_on_deny()
}

/// Adds all of it to an answer that has its verdict and its statuses.
pub(super) fn add(decision: &Decision<'_>, message: &mut RateLimitResponse) {
    if let Some(denial) = decision.denial() {
        on_deny::tell(&denial, message);
    }
}
