//! Numbers of what became of slots, or of reservations.

use crate::sync::AtomicU64;
use std::sync::atomic::Ordering;

/// Numbers of slots, or of reservations, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TicketCounts<N = u64> {
    /// Slots that requests took: one for each of their limits of requests in flight. Estimates that were reserved: one for each limit that
    /// reserves.
    pub taken: N,
    /// Releases of a slot that was owned, or of a part of it. Ends of open reservations.
    pub released: N,
    /// Releases and ends of what was not held: released or ended before, past its deadline, or never taken.
    pub unknown: N,
    /// Renewals of what was held.
    pub renewed: N,
    /// Renewals of what was not held.
    pub unknown_renewals: N,
    /// Slots and reservations past their deadlines: counted when their counter is used again or dropped.
    pub expired: N,
    /// Estimates that no end corrects, because there were too many reservations. No slots.
    pub uncorrected: N,
}

impl TicketCounts<AtomicU64> {
    pub(super) fn load(&self) -> TicketCounts {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        TicketCounts {
            taken: load(&self.taken),
            released: load(&self.released),
            unknown: load(&self.unknown),
            renewed: load(&self.renewed),
            unknown_renewals: load(&self.unknown_renewals),
            expired: load(&self.expired),
            uncorrected: load(&self.uncorrected),
        }
    }
}
