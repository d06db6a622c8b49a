//! Whether the last of several attempts failed, for a gauge that an alert reads.

use super::Attempt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The result of the last attempt. Before the first attempt, nothing has failed.
#[derive(Debug, Default)]
pub struct LastAttempt {
    has_failed: AtomicBool,
}

impl LastAttempt {
    /// Replaces the result.
    pub fn record(&self, result: Attempt) {
        self.has_failed.store(result == Attempt::Failed, Relaxed);
    }

    /// Whether the last attempt succeeded, or there was none.
    pub fn is_successful(&self) -> bool {
        !self.has_failed.load(Relaxed)
    }
}
