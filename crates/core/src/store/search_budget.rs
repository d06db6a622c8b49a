//! The bound on searches for room that find nothing.

use crate::{limit::Timestamp, sync::AtomicU64};
use std::sync::atomic::Ordering;

/// Pages that are searched without result in one second, over all shards: some milliseconds of it.
pub(super) const FRUITLESS_PAGES_MAX: u32 = 4_096;

/// Pages that were searched without result, and in which second.
#[derive(Default)]
pub(super) struct SearchBudget(AtomicU64);

impl SearchBudget {
    /// Whether nothing more is searched in this second.
    pub(super) fn is_spent(&self, now: Timestamp) -> bool {
        let (second, pages) = unpack(self.0.load(Ordering::Relaxed));
        second == second_of(now) && pages >= FRUITLESS_PAGES_MAX
    }

    /// Counts pages that were searched without result.
    pub(super) fn spend(&self, pages: u32, now: Timestamp) {
        let add = |packed: u64| {
            let (second, before) = unpack(packed);
            let before = if second == second_of(now) { before } else { 0 };
            Some(u64::from(second_of(now)) << 32 | u64::from(before.saturating_add(pages)))
        };
        _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

/// The last 32 bits of the second: enough to distinguish it from those around it.
fn second_of(now: Timestamp) -> u32 {
    (now.as_nanos() / 1_000_000_000) as u32
}

fn unpack(packed: u64) -> (u32, u32) {
    ((packed >> 32) as u32, packed as u32)
}
