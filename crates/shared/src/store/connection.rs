//! A connection to a node, for calls.

use redis::aio::MultiplexedConnection;
use std::sync::{Arc, atomic::AtomicBool};

/// A connection of a link.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) commands: MultiplexedConnection,
    /// The run of the store behind it: see [`SharedStore::store_run`].
    pub(super) run: Arc<[u8]>,
    /// Number of outages of the node when the connection was made.
    pub(super) outages: u64,
    /// Whether it has ended, or has no responses.
    pub(super) has_ended: Arc<AtomicBool>,
}
