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
//! **What always holds.** The admissions of all nodes, at their true times, are admissions of one exact limiter, as long as
//! the store keeps what it acknowledged. The store's counter holds, at every instant, at least the hits that the exact limiter
//! would hold, none of them dated earlier:
//!
//! - Outstanding credits count as hits of the present moment, from the grant on, whether they are spent or not.
//! - Hits that a node reports as spent are dated at the last of them: the time of the report, less the time since then by the
//!   node's clock, less an allowance for drift (those of a bucket, at the time of the report). Credits of a node that is
//!   silent until the end of its lease are dated at that end, all of them. Dating at the grant would free the hits of a
//!   sliding window or a bucket too early.
//! - Every algorithm admits less if hits are more or later, and giving back the newest hits of both keeps that order. Fixed
//!   windows end where they end: a lease is clipped to the window. A window from the first hit is opened by an exact
//!   decision only, so that it begins at a true time: hits of leases open none, and give-backs do not close it once it
//!   was leased.
//! - A node counts the validity of credits from the time at which it *sent* the request, by its monotonic clock, less an
//!   allowance for drift: its deadline is before the store's end of the lease. A node that was stopped finds its
//!   deadline passed.
//! - Totals are cumulative (`spent`, `spend_to`, as in credit-based flow control), the store ignores a request that is
//!   not newer than the last one, the node a response to any request but its last. Messages may therefore be lost,
//!   duplicated, delayed and reordered.
//!
//! **Loss of acknowledged writes** (failover, flush, an old copy) starts a new [`Epoch`]: for one lease length nothing is
//! granted or admitted by the store, and nodes declare the credits that they hold. Afterwards every credit that is not
//! declared has expired. What can be admitted beyond the limit is what the lost writes had counted, and the hits of lost
//! grants whose node could not declare them.
//!
//! **Not leased:** rules with `charge: always` (hits beyond the limit would be counted while credits are outstanding), queued
//! buckets, windows shorter than a lease, limits below [`Settings::limit_min`], and counters whose demand or share is below
//! [`Settings::grant_min`].
//!
//! [`lease()`] is what the store's script runs (`script/lease.lua`); it uses nothing but the
//! algorithm's `used`, `remaining`, `add`, `give_back` and waits.

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
