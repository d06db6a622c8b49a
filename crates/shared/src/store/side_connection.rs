//! A connection beside those of decisions, for calls off the path of decisions.

use super::inner::Inner;
use redis::{ErrorKind, RedisError, aio::MultiplexedConnection};
use std::{sync::Arc, time::Duration};

/// The shortest time limit of such a call, and the pause after one has failed.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// A connection, and the run of the store that it is to.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) commands: MultiplexedConnection,
    pub(super) run: Arc<[u8]>,
}

/// The connection to the only node of a store, opened when it is used.
pub(super) struct SideConnection {
    store: Arc<Inner>,
    /// With the number of outages that the node had had.
    open: Option<(u64, Connection)>,
}

impl SideConnection {
    pub(super) fn new(store: Arc<Inner>) -> Self {
        Self { store, open: None }
    }

    pub(super) async fn get(&mut self) -> Result<Connection, RedisError> {
        let node = self.store.nodes.of(0).ok_or((ErrorKind::Client, "no node has the counters"))?;
        let outages = node.outages();
        if let Some((before, connection)) = &self.open
            && *before == outages
        {
            return Ok(connection.clone());
        }
        let timeout = self.store.settings.timeout.max(PAUSE);
        let mut commands = self.store.connection(&node, timeout).await?;
        let run = self.store.store_run(&mut commands).await?;
        commands.set_response_timeout(timeout);
        let connection = Connection { commands, run };
        self.open = Some((outages, connection.clone()));
        Ok(connection)
    }

    /// Closes it, after an error.
    pub(super) fn close(&mut self) {
        self.open = None;
    }
}
