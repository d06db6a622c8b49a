//! Deciding: rules, counters, a request and a time in; a decision out. No IO, no clock, no error.
//!
//! Invariants:
//!
//! - A request is charged as a whole or not at all: a denied request consumes nothing, not even in counters that admit it. Only a rule with
//!   `charge: always` counts a denied request.
//! - Descriptors that share a counter are decided by the sum of their hits; with the semantics of the reference server, one
//!   after another.
//! - No more hits are admitted than the algorithm allows, by any number of threads: all counters of a request are locked
//!   while it is decided.
//! - A queued request is charged on arrival; see [`Pinned::decide_or_queue`].

mod bans;
mod batch;
mod charge_limit;
mod class;
mod compat;
mod conditional;
mod counters;
mod decide;
mod deciding;
mod fast_path;
mod grants;
mod hit_sum;
mod in_force;
mod in_order;
mod joint_resets;
mod keys;
mod leasable;
mod locked_keys;
mod plan;
mod queue;
mod reached;
mod releases;
mod remote;
mod renewals;
mod reservations;
mod reset;
mod service_limits;
mod shared_resets;
mod slot_figures;
mod slots;
mod status;
mod sweep;
#[cfg(test)]
mod tests;
mod ticket;
mod ticket_counts;
mod undecided;
mod update;

pub use class::Class;
pub use compat::Compat;
pub use conditional::CounterNumbers;
pub use in_force::{Limiter, OwnedPinned, Pinned, QUEUED_MAX_DEFAULT};
pub use keys::GROUPS;
pub use leasable::{LeasableCharge, LeasableCharges, LeasedStatus, leased_decision};
pub use queue::{Due, QueueDecision, QueuePoll, QueuePosition, SlotWait, StoreWait};
pub use releases::NamedChanges;
pub use remote::{DeniesWhen, RemoteCharge, RemoteCounter, RemoteRequest, StoredReservation, WithoutStore};
pub use reset::ResetError;
pub use service_limits::ListedLimits;
pub use shared_resets::SharedResets;
pub use slot_figures::SlotFigures;
pub use ticket::{Held, HeldKind, RENEWAL_KEY, SlotRelease, StoredRenewal, TICKET_KEY, slots_of_ticket};
pub use ticket_counts::TicketCounts;
pub use update::{NextRules, RetiredRules, RuleUpdate};
