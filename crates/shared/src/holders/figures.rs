//! Figures of leases, and of decisions by them.

use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_core::limit::Code;

/// Figures of leases, and of decisions by them.
#[derive(Debug, Default)]
pub struct HolderCounts {
    admitted: AtomicU64,
    denied: AtomicU64,
    requests: AtomicU64,
    held: AtomicU64,
    wasted: AtomicU64,
}

/// The figures at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HolderCountsNow {
    /// Requests admitted by credits in hand.
    pub admitted: u64,
    /// Requests denied by denials that are kept.
    pub denied: u64,
    /// Requests for credits that were sent.
    pub requests: u64,
    /// Leases with credits now.
    pub held: u64,
    /// Credits that expired unspent.
    pub wasted: u64,
}

impl HolderCounts {
    #[inline]
    pub(super) fn decided(&self, code: Code) {
        let count = match code {
            Code::Ok => &self.admitted,
            Code::OverLimit => &self.denied,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn held(&self, leases: u64) {
        self.held.store(leases, Ordering::Relaxed);
    }

    pub(super) fn wasted(&self, credits: u64) {
        if credits > 0 {
            self.wasted.fetch_add(credits, Ordering::Relaxed);
        }
    }

    /// Counts requests for credits that are sent.
    pub fn sent(&self, requests: usize) {
        self.requests.fetch_add(requests as u64, Ordering::Relaxed);
    }

    /// The figures now.
    pub fn now(&self) -> HolderCountsNow {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        HolderCountsNow {
            admitted: read(&self.admitted),
            denied: read(&self.denied),
            requests: read(&self.requests),
            held: read(&self.held),
            wasted: read(&self.wasted),
        }
    }
}
