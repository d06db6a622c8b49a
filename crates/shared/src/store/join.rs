//! Joining a store: the checks of the store, and the secret of keys that its servers share.
//!
//! If a store is not reached at the start, the keeper joins it later. If it has lost its keys, an earlier server may have written another
//! secret, and this server adopts that. The counters are lost in any case.

use super::{
    SharedSettings, StoreAddress, StoreCounts,
    connect::{check, connect},
    connect_error::ConnectError,
    layout::Layout,
    nodes::{Node, Nodes},
    shared_store::SharedStore,
    unfinished::Unfinished,
};
use crate::{PeerIds, holders::Holders, lease, script::Script};
use redis::{ErrorKind, RedisError, aio::MultiplexedConnection, cmd};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tidegate_core::{
    clock::SystemClock,
    limiter::GROUPS,
    store::Seed,
    sync::{ArcSwap, Mutex},
};
use tokio::sync::Notify;

/// A node, and a connection to it.
type Reached = (Arc<Node>, MultiplexedConnection);

/// Time limit of each step at a start.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(5);

impl SharedStore {
    /// Connects, checks the store, and agrees with other servers on the secret of keys. If the store is not reached, or
    /// accepts no writes, [the keeper](super::start_keeper) joins it later.
    pub async fn connect(settings: SharedSettings) -> Result<Arc<Self>, ConnectError> {
        let store = Self::new(settings)?;
        match store.join().await {
            Err(error) if error.is_temporary() => {
                let policy = store.settings.on_failure;
                tracing::warn!(%error, %policy, "shared store not joined; trying again");
                store.nodes.now().nodes.iter().for_each(|node| _ = node.fail());
            }
            joined => joined?,
        }
        Ok(Arc::new(store))
    }
}

impl SharedStore {
    /// A store that was not reached yet.
    pub(super) fn new(settings: SharedSettings) -> Result<Self, ConnectError> {
        let is_cluster = matches!(settings.address, StoreAddress::Cluster(_));
        if is_cluster && settings.prefix.contains(['{', '}']) {
            return Err(ConnectError::Prefix);
        }
        if is_cluster && !settings.lease_length.is_zero() {
            return Err(ConnectError::Leases);
        }
        let leases = match settings.lease_length {
            Duration::ZERO => lease::Settings::denials_only(),
            length => lease::Settings { length, ..lease::Settings::default() },
        };
        Ok(Self {
            layout: ArcSwap::from_pointee(Layout::new(Seed::random()?)),
            digests: OnceLock::new(),
            has_joined: AtomicBool::new(false),
            is_cluster,
            nodes: if is_cluster { Nodes::unknown_cluster() } else { Nodes::one() },
            clock: SystemClock::new(),
            failed: Notify::new(),
            servers: AtomicU32::new(1),
            counts: StoreCounts::default(),
            peers: PeerIds::default(),
            releases: AtomicUsize::new(0),
            unfinished: Unfinished::default(),
            holders: Holders::new(leases, getrandom::u64()?).into(),
            resets: Mutex::default(),
            settings,
        })
    }

    /// Whether the store was reached and checked since the start.
    pub fn has_joined(&self) -> bool {
        self.has_joined.load(Ordering::Relaxed)
    }

    /// Checks all nodes, and agrees with other servers on the secret of keys and the resets. Nodes of a cluster that are not reached are
    /// unavailable afterwards.
    pub(super) async fn join(&self) -> Result<(), ConnectError> {
        let failed = |error| self.connect_error(error);
        self.read_hash_slots(START_TIMEOUT).await.map_err(failed)?;
        let topology = self.nodes.now();
        let first = topology.of(0).ok_or_else(|| failed(without_node()))?;
        let mut reached = Vec::new();
        for node in &topology.nodes {
            match self.check_node(node).await {
                Ok(connection) => reached.push((Arc::clone(node), connection)),
                Err(error) => self.leave_out(node, first, error)?,
            }
        }
        let mut connection = connect(&self.settings, first, START_TIMEOUT).await.map_err(failed)?;
        let found = match self.is_cluster {
            true => self.known_layout(&mut reached).await.map_err(failed)?,
            false => None,
        };
        let proposed = found.unwrap_or_else(|| self.layout.load().text.clone());
        let key = self.layout_key(0);
        set_if_new(&mut connection, &key, &proposed).await.map_err(failed)?;
        let found: String = cmd("GET").arg(&key).query_async(&mut connection).await.map_err(failed)?;
        let Some(layout) = Layout::of(&found) else { return Err(ConnectError::Layout { found }) };
        self.layout.store(Arc::new(layout));
        let mut joined = Vec::new();
        for (node, mut connection) in reached {
            // Each group of a cluster has its own key, so that the loss of the group's keys is noticed.
            let written = match self.is_cluster {
                true => self.write_layouts(&mut connection, &node, true).await.map_err(failed),
                false => Ok(()),
            };
            match written {
                Ok(()) => joined.push(node),
                Err(error) => self.leave_out(&node, first, error)?,
            }
        }
        self.agree_on_resets(&mut connection).await.map_err(failed)?;
        let run = self.store_run(&mut connection).await.map_err(failed)?;
        self.learn(&mut connection, &run).await.map_err(failed)?;
        joined.iter().for_each(|node| self.recovered(node));
        self.has_joined.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Goes on without a node whose error is temporary: the other nodes of a cluster decide their counters, and the keeper reaches this node
    /// later. A server cannot join without the node of the first group.
    fn leave_out(&self, node: &Node, first: &Node, error: ConnectError) -> Result<(), ConnectError> {
        if node.number == first.number || !error.is_temporary() {
            return Err(error);
        }
        self.fail(node, &error);
        Ok(())
    }

    fn connect_error(&self, error: RedisError) -> ConnectError {
        ConnectError::Store { address: self.settings.address.to_string(), error }
    }

    /// Checks a node, and loads the scripts there. Returns a connection to it.
    async fn check_node(&self, node: &Node) -> Result<MultiplexedConnection, ConnectError> {
        let failed = |error| self.connect_error(error);
        let mut connection = connect(&self.settings, node, START_TIMEOUT).await.map_err(failed)?;
        let info: String = cmd("INFO").query_async(&mut connection).await.map_err(failed)?;
        check(&info, &self.settings, node)?;
        let mut digests = [const { String::new() }; Script::ALL.len()];
        for (digest, script) in digests.iter_mut().zip(Script::ALL) {
            let load = cmd("SCRIPT").arg("LOAD").arg(script.text()).clone();
            *digest = load.query_async(&mut connection).await.map_err(failed)?;
        }
        // All nodes return the same digests.
        let _ = self.digests.set(digests);
        Ok(connection)
    }

    /// The layout of any group of a cluster. The key of the first group may have been lost without the others.
    async fn known_layout(&self, reached: &mut [Reached]) -> Result<Option<String>, RedisError> {
        for (node, connection) in reached {
            let mut commands = redis::pipe();
            for group in self.groups_of(node) {
                commands.cmd("GET").arg(self.layout_key(group));
            }
            let found: Vec<Option<String>> = commands.query_async(connection).await?;
            if let Some(found) = found.into_iter().flatten().find_map(|found| Layout::of(&found)) {
                return Ok(Some(found.text));
            }
        }
        Ok(None)
    }

    /// Writes the layout of the groups of a node of a cluster. If `is_new`, only of groups without a layout.
    async fn write_layouts(
        &self,
        connection: &mut MultiplexedConnection,
        node: &Node,
        is_new: bool,
    ) -> Result<(), RedisError> {
        let (layout, mut commands) = (self.layout.load(), redis::pipe());
        for group in self.groups_of(node) {
            let command = commands.cmd("SET").arg(self.layout_key(group)).arg(&layout.text);
            if is_new {
                command.arg("NX");
            }
            command.ignore();
        }
        commands.query_async(connection).await
    }

    fn groups_of(&self, node: &Node) -> Vec<u16> {
        let topology = self.nodes.now();
        let is_of_node = |group: &u16| topology.of(*group).is_some_and(|owner| owner.number == node.number);
        (0..GROUPS).filter(is_of_node).collect()
    }

    /// Adopts the secret of a store that refuses this server's secret, and returns it. Returns none in a cluster if the first group has
    /// this server's secret: the groups of the node then get it.
    ///
    /// The store was lost and started anew, and another server wrote its secret first.
    pub(super) async fn adopt_layout(
        &self,
        connection: &mut MultiplexedConnection,
        node: &Node,
    ) -> Result<Option<Seed>, RedisError> {
        let first = self.nodes.of(0).ok_or_else(without_node)?;
        let mut of_first = connect(&self.settings, &first, START_TIMEOUT).await?;
        let found: Option<String> = cmd("GET").arg(self.layout_key(0)).query_async(&mut of_first).await?;
        let Some(found) = found else {
            return Err((ErrorKind::Client, "the store has lost its layout meanwhile").into());
        };
        let Some(layout) = Layout::of(&found) else {
            return Err((ErrorKind::Client, "the store has counters of another layout", found).into());
        };
        if layout.seed == self.layout.load().seed {
            self.write_layouts(connection, node, false).await?;
            return Ok(None);
        }
        let seed = layout.seed.clone();
        self.layout.store(Arc::new(layout));
        Ok(Some(seed))
    }
}

pub(super) async fn set_if_new(
    connection: &mut MultiplexedConnection,
    key: &str,
    value: &str,
) -> Result<(), RedisError> {
    let _: Option<String> = cmd("SET").arg(key).arg(value).arg("NX").query_async(connection).await?;
    Ok(())
}

fn without_node() -> RedisError {
    let text = "no node has the hash slot of group 0".to_owned();
    RedisError::from((ErrorKind::Client, "the cluster is not complete", text))
}
