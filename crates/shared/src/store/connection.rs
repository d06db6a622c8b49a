//! A connection to a node, for calls.

use redis::aio::MultiplexedConnection;
use std::sync::{Arc, atomic::AtomicBool};

/// A connection of a link.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) commands: MultiplexedConnection,
    /// The run of the store that it is to: see [`Inner::store_run`].
    pub(super) run: Arc<[u8]>,
    /// Outages of the node before it was made.
    pub(super) outages: u64,
    /// Whether it has ended, as a call has found.
    pub(super) has_ended: Arc<AtomicBool>,
}
