//! A connection beside those for decisions, for other calls.

use super::{connection::Connection, shared_store::SharedStore};
use redis::{ErrorKind, RedisError};
use std::{sync::Arc, time::Duration};

/// The shortest time limit of such a call, and the pause after a failed one.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The connection to the only node of a store, opened at its first use.
pub(super) struct SideConnection {
    store: Arc<SharedStore>,
    open: Option<Connection>,
}

impl SideConnection {
    pub(super) fn new(store: Arc<SharedStore>) -> Self {
        Self { store, open: None }
    }

    pub(super) async fn get(&mut self) -> Result<Connection, RedisError> {
        let node = self.store.nodes.of(0).ok_or((ErrorKind::Client, "no node has the counters"))?;
        if let Some(connection) = self.open.as_ref().filter(|open| node.is_of_present(open)) {
            return Ok(connection.clone());
        }
        let timeout = self.store.settings.timeout.max(PAUSE);
        let mut connection = self.store.open(&node, timeout).await?;
        connection.commands.set_response_timeout(timeout);
        self.open = Some(connection.clone());
        Ok(connection)
    }

    /// Closes the connection after an error.
    pub(super) fn close(&mut self) {
        self.open = None;
    }
}
