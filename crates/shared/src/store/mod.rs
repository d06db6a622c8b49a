//! The client of the store: connections, batches of calls, deadlines, and what follows when it fails.
//!
//! Invariants:
//!
//! - A call ends by its deadline, with the store's verdict or with a failure.
//! - Nothing is sent twice, unless the store has stated that it did not run the first (NOSCRIPT, MOVED, ASK, TRYAGAIN), or a token makes
//!   the second harmless (hits that are taken back).
//! - While a node is unavailable, calls to it fail at once, and only one thread tries to reach it.

mod address;
mod background;
mod batches;
mod commands;
mod connect;
mod connect_error;
mod connection;
mod contents;
mod counts;
mod decide;
mod failure;
mod hash_slots;
mod join;
mod keeper;
mod layout;
mod leasing;
mod nodes;
mod parts;
mod quotas;
mod releases;
mod renewals;
mod reports;
mod resets;
mod scan;
mod settings;
mod shared_store;
mod side_connection;
mod tcp;
#[cfg(test)]
mod tests;
mod tls;
mod transfer;
mod unfinished;

pub use address::StoreAddress;
pub use connect_error::ConnectError;
pub use contents::Contents;
pub use counts::{BatchSize, CallResult, StoreCounts, StoreEvent};
pub use failure::Failure;
pub use keeper::start_keeper;
pub use leasing::start_leasing;
pub use quotas::{PartCalls, start_parts};
pub use releases::Closed;
pub use settings::{OnFailure, SharedSettings};
pub use shared_store::{Health, SharedStore};
pub use transfer::{Moved, Transfer, TransferError};
