//! Counters that several servers share, in a Redis or Valkey store.
//!
//! - `script` decides: a Lua script that the store runs, and the encoding of its arguments, states and reply. Pure.
//! - `lease`: a server takes hits of a hot counter ahead of time and decides by itself. All servers together never admit more than one
//!   exact limiter would. Pure.
//! - `holders` has the leases of this server, and decides by them.
//! - `granter` grants leases of counters of this process to nodes, which share these counters without a store.
//! - `quota` divides limits among clients that decide by assignments and acknowledge nothing. Pure.
//! - `store` carries requests to the store and verdicts back: connections, batches, deadlines, failures.
//!
//! `script` and `store` are the feature `store`, which the default features include.
//!
//! Invariants: all counters of a request are charged or none; only the store's clock counts; nothing is sent twice unless the store has
//! stated that it did not run the first.

mod fair_bound;
pub mod granter;
pub mod holders;
pub mod lease;
mod max_min;
pub mod quota;
#[cfg(feature = "store")]
pub mod script;
#[cfg(feature = "store")]
pub mod store;
mod userinfo;

pub use fair_bound::{FairBound, PeerId, PeerIds};
pub use userinfo::without_userinfo;
