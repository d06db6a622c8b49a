//! Leases: a node takes credits of a hot counter from the store and decides by itself until they are spent or expire.
//! Pure: time and messages are arguments; no sockets, clocks or locks.
//!
//! ```text
//! node (Holder, one for each counter)                      store (Leased, a part of each counter)
//!   decide(hits) → Covered | Denied | Undecided
//!   poll → LeaseRequest { spent, kept, demand }  ────────▶  dates the spent hits, allots credits
//!   accept ◀──────── LeaseResponse { spend_to, valid_for, supply }
//!   Undecided → an exact decision of the store    ────────▶  admits what neither hits nor credits of leases use
//! ```
//!
//! **What always holds.** As long as the store keeps what it acknowledged, the admissions of all nodes, at their true times, are admissions
//! of one exact limiter. At every instant the store's counter holds at least the hits that the exact limiter would hold, none of them dated
//! earlier:
//!
//! - From the grant on, outstanding credits count as hits of the present moment, whether they are spent or not.
//! - Hits that a node reports as spent are dated at the last of them. This date is the time of the report, less the time since the last hit
//!   by the node's clock, less an allowance for drift (for a bucket, the time of the report). If a node is silent until the end of its
//!   lease, all its credits are dated at that end. Dating at the grant would free the hits of a sliding window or a bucket too early.
//! - Every algorithm admits less if hits are more or later, and giving back the newest hits of both keeps that order. Fixed windows end
//!   where they end, so that a lease is clipped to the window. Only an exact decision opens a window from the first hit, so that the window
//!   begins at a true time: hits of leases open none, and give-backs do not close a window that was leased.
//! - A node counts the validity of credits from the time at which it *sent* the request, by its monotonic clock, less an allowance for
//!   drift. Its deadline is therefore before the store's end of the lease. A node that was stopped finds its deadline passed.
//! - Totals are cumulative (`spent`, `spend_to`, as in credit-based flow control). The store ignores a request that is not newer than the
//!   last one, and a node ignores a response to any request but its last. Messages may therefore be lost, duplicated, delayed and
//!   reordered.
//!
//! **Loss of acknowledged writes** (failover, flush, an old copy) starts a new [`Epoch`]: for one lease length the store grants and admits
//! nothing, and nodes declare the credits that they hold. Afterwards every credit that is not declared has expired. Hits admitted beyond
//! the limit are at most the hits that the lost writes had counted, and the hits of lost grants whose node could not declare them.
//!
//! **Not leased:** rules with `charge: always` (hits beyond the limit would be counted while credits are outstanding), queued
//! buckets, windows shorter than a lease, limits below [`Settings::limit_min`], and counters whose demand or share is below
//! [`Settings::grant_min`].
//!
//! [`lease()`] is the model of the store's script (`script/lease.lua`). It uses only `used`, `remaining`, `add`, `give_back` and the waits
//! of the algorithm.

mod allocation;
mod demand;
mod epoch;
mod holder;
mod message;
mod response_state;
mod shared_counter;
mod store_grant;
mod terms;

#[cfg(test)]
pub(crate) mod simulation;
#[cfg(test)]
mod tests;

pub use epoch::Epoch;
pub use holder::{CounterState, Holder, HolderDecision, StoreDenial};
pub use message::{LeaseRequest, LeaseResponse, Monotonic, NodeId, Supply};
pub use response_state::ResponseState;
pub use shared_counter::lease;
pub use store_grant::StoreGrant;
pub use terms::{HolderTerms, Settings, Terms, TermsNumbers};

#[cfg(test)]
pub(crate) use simulation::shared_counter::{ExactDecision, SharedCounter};
