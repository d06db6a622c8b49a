//! Whether requests can be decided yet: the counters are restored, and there are rules.

use super::RateLimitService;
use std::sync::{Arc, atomic::Ordering};
use tidegate_core::limiter::Limiter;
use tidegate_shared::store::Failure;

/// The reason why nothing can be decided yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotReady {
    /// The counters are not restored yet.
    #[error("the counters are being restored; retry shortly")]
    Restoring,
    /// There are no rules yet.
    #[error(
        "no rate limit configuration loaded: the rule files have errors, or the control plane has not sent rules yet; the \
         server's log has the reason"
    )]
    NoRules,
    /// The shared store did not decide, and the setting is to fail such calls.
    #[error("{0}; --on-store-failure is `error`")]
    Store(Failure),
}

impl RateLimitService {
    /// Decides by this limiter from now on. Only the first call has an effect.
    pub fn set_ready(&self, limiter: Arc<Limiter>) {
        if let Some(grants) = &self.grants {
            grants.begin(self.clock.now());
        }
        let _ = self.limiter.set(limiter);
    }

    /// Notes that the counters are restored and only rules are missing.
    pub fn await_rules(&self) {
        self.awaits_rules.store(true, Ordering::Relaxed);
    }

    /// Whether requests are decided.
    pub fn ready(&self) -> Result<(), NotReady> {
        self.limiter.get().map(|_| ()).ok_or_else(|| self.not_ready())
    }

    pub(super) fn not_ready(&self) -> NotReady {
        if self.awaits_rules.load(Ordering::Relaxed) { NotReady::NoRules } else { NotReady::Restoring }
    }
}
