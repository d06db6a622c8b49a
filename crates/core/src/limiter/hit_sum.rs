//! The hits of a request for one counter.

use crate::limit::Hits;

/// Sums of the hits of all charges to one counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HitSum {
    pub(super) taken: u64,
    pub(super) given: u64,
}

impl HitSum {
    pub(super) const ZERO: Self = Self { taken: 0, given: 0 };

    /// Hits that are taken.
    pub(super) const fn of(taken: u64) -> Self {
        Self { taken, given: 0 }
    }

    #[inline]
    pub(super) fn add(&mut self, hits: Hits) {
        match hits {
            Hits::Take(hits) => self.taken = self.taken.saturating_add(hits.get()),
            Hits::GiveBack(hits) => self.given = self.given.saturating_add(hits.get()),
            Hits::Peek => {}
        }
    }
}
