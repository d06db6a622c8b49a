//! The keeper: a thread that registers this server in the store, counts the servers that share it, and reconnects after an outage.

use super::{
    connect::{connect, eviction},
    nodes::Node,
    reports::replication,
    shared_store::SharedStore,
};
use crate::script::Batch;
use redis::{ErrorKind, RedisError, ServerErrorKind, aio::MultiplexedConnection, cmd, pipe};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tidegate_core::{limit::Timestamp, limiter::SharedResets, store::Seed};
use tidegate_threads::{BackgroundThread, Priority, StartError, StoppableThread};
use tokio::sync::oneshot;

/// Interval between heartbeats of a server.
const INTERVAL: Duration = Duration::from_secs(1);

/// Interval between two readings of the resets by operators.
const RESETS_INTERVAL: Duration = Duration::from_millis(500);

/// A server shares the store if its last heartbeat is at most this old.
const ALIVE: Duration = Duration::from_secs(4);

/// Times between two attempts to reach the store, the first and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Time limit of an attempt if that of decisions is shorter.
const ATTEMPT: Duration = Duration::from_millis(100);

/// Change in seconds of the difference between the store's clock and this server's that is logged again.
const CLOCK_OFFSET_LOGGED: u64 = 2;

/// Starts the keeper. Every half second, it calls `put_keys` with the secret of keys, and with the resets of rules by operators on this
/// server and on others; both may already be in force. When it ends, it removes this server from those that share the store.
pub fn start_keeper(
    store: &Arc<SharedStore>,
    put_keys: impl Fn(Seed, SharedResets) + Send + 'static,
) -> Result<StoppableThread, StartError> {
    let (stop, stopped) = oneshot::channel::<()>();
    let store = Arc::clone(store);
    let run = async move || {
        let mut server = Server::new(store, Box::new(put_keys));
        tokio::select! {
            never = server.run() => match never {},
            // The sender was dropped: the server stops.
            _ = stopped => {}
        }
        server.leave().await;
    };
    Ok(BackgroundThread::start_async("shared-store", Priority::Full, run)?.stopped_by(stop))
}

/// This server's entry among those that share the store.
struct Server {
    store: Arc<SharedStore>,
    /// Its name there, random and therefore unique.
    name: String,
    connection: Option<MultiplexedConnection>,
    /// Connections to the nodes by their numbers, for reading the state of replicas.
    of_nodes: HashMap<u64, MultiplexedConnection>,
    put_keys: Box<dyn Fn(Seed, SharedResets) + Send>,
    /// Why the store was not joined at the last attempt.
    reason: String,
    /// A node that evicts counters, and its policy, when last known.
    evicting: Option<(String, String)>,
    /// Seconds by which the store's clock was ahead of this server's when last logged.
    clock_offset: i64,
}

impl Server {
    fn new(store: Arc<SharedStore>, put_keys: Box<dyn Fn(Seed, SharedResets) + Send>) -> Self {
        let (name, of_nodes) = (format!("{:016x}", random()), HashMap::new());
        Self {
            store,
            name,
            connection: None,
            of_nodes,
            put_keys,
            reason: String::new(),
            evicting: None,
            clock_offset: 0,
        }
    }

    async fn run(&mut self) -> std::convert::Infallible {
        let mut pause = RETRY.0;
        loop {
            if self.store.has_joined() && self.store.nodes.are_available() {
                pause = RETRY.0;
                self.read_hash_slots().await;
                match (self.register_again().await, self.store.nodes.of(0)) {
                    (Err(error), _) if is_moving(&error) => {
                        tracing::debug!(%error, "no heartbeat: the hash slot of the servers is being moved");
                    }
                    (Err(error), Some(node)) => {
                        self.store.fail(&node, &error);
                        continue;
                    }
                    _ => {}
                }
                self.read_resets().await;
                self.read_replication().await;
                self.pause().await;
            } else {
                // Between half and all of the pause, so that servers that lost the store together do not return together.
                let share = Duration::from_nanos(random() % (pause.as_nanos() as u64 / 2));
                tokio::time::sleep(pause / 2 + share).await;
                pause = (pause * 2).min(RETRY.1);
                match self.store.has_joined() {
                    true => self.reach_nodes().await,
                    false => self.join().await,
                }
            }
        }
    }

    /// Waits for the next heartbeat or for a failure. Reads resets meanwhile.
    async fn pause(&mut self) {
        let mut left = INTERVAL;
        while !left.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(RESETS_INTERVAL.min(left)) => {}
                () = self.store.failed.notified() => return,
            }
            left = left.saturating_sub(RESETS_INTERVAL);
            self.count_servers().await;
            self.keep_layout().await;
            self.read_resets().await;
        }
    }

    /// Reads how many servers share the store, so that servers that start together have the number before its first outage.
    async fn count_servers(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let key = servers_key(&self.store);
        if let Ok(servers) = cmd("ZCARD").arg(key).query_async::<u32>(connection).await {
            self.store.servers.store(servers.max(1), Ordering::Relaxed);
        }
    }

    /// Joins a store that was not reached at the start.
    async fn join(&mut self) {
        match self.store.join().await {
            Ok(()) => {
                self.put_keys();
                tracing::info!("shared store joined");
            }
            Err(error) => {
                if self.reason != error.to_string() {
                    self.reason = error.to_string();
                    tracing::warn!(%error, "shared store still not available");
                }
            }
        }
    }

    fn put_keys(&self) {
        let seed = self.store.layout.load().seed.clone();
        (self.put_keys)(seed, self.store.resets());
    }

    /// Writes the layout again if the store has lost it, as every decision does. If a server starts before that, it writes another secret,
    /// and earlier servers count in keys that it does not use.
    async fn keep_layout(&mut self) {
        let (Some(connection), Some(node)) = (&mut self.connection, self.store.nodes.of(0)) else { return };
        match self.store.keep_layout(connection, &node).await {
            Ok(true) => {}
            Ok(false) => self.store.fail(&node, &"it has the layout of another server"),
            Err(error) => tracing::debug!(%error, "the layout of the shared store cannot be read"),
        }
    }

    /// Agrees with other servers on the resets of rules, and puts them in force. If that fails, those in force stay.
    async fn read_resets(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        match self.store.agree_on_resets(connection).await {
            // Even without news: a call that reset a rule may have put an earlier list in force meanwhile.
            Ok(()) => self.put_keys(),
            Err(error) => tracing::debug!(%error, "the resets in the shared store cannot be read"),
        }
    }

    /// Reads which node has which hash slots, if the store is a cluster. If that fails, the map stays as it is.
    async fn read_hash_slots(&self) {
        let limit = self.store.settings.timeout.max(ATTEMPT);
        if let Err(error) = self.store.read_hash_slots(limit).await {
            tracing::debug!(%error, "the hash slots of the cluster cannot be read");
        }
        for node in &self.store.nodes.now().nodes {
            node.has_logged_loss.store(false, Ordering::Relaxed);
            node.has_logged_damage.store(false, Ordering::Relaxed);
            node.has_logged_clocks.store(false, Ordering::Relaxed);
        }
    }

    /// Reads how far replicas are behind, and whether counters may be evicted. A node that does not respond is left out.
    async fn read_replication(&mut self) {
        let (mut replicas, mut lag, mut evicting) = (0, 0, None);
        let topology = self.store.nodes.now();
        self.of_nodes.retain(|number, _| topology.nodes.iter().any(|node| node.number == *number));
        for node in &topology.nodes {
            let Ok(info) = self.replication_of(node).await else {
                self.of_nodes.remove(&node.number);
                continue;
            };
            let (of_node, behind) = replication(&info);
            (replicas, lag) = (replicas + of_node, lag.max(behind));
            let policy = eviction(&info).filter(|_| !self.store.settings.allow_eviction);
            evicting = evicting.or_else(|| Some((node.to_string(), policy?.to_owned())));
        }
        if let Some((node, policy)) = evicting.as_ref().filter(|_| self.evicting != evicting) {
            tracing::error!(
                node,
                policy,
                "the shared store evicts counters when its memory is full, so that limits are exceeded: set maxmemory-policy \
                 noeviction"
            );
        }
        self.evicting = evicting;
        self.store.counts.replicas.store(replicas, Ordering::Relaxed);
        self.store.counts.replication_lag_bytes.store(lag, Ordering::Relaxed);
    }

    async fn replication_of(&mut self, node: &Node) -> Result<String, RedisError> {
        let connection = match self.of_nodes.entry(node.number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(connect(&self.store.settings, node, ATTEMPT * 10).await?),
        };
        cmd("INFO").arg("replication").arg("memory").query_async(connection).await
    }

    /// Tries to reach the unavailable nodes.
    async fn reach_nodes(&mut self) {
        self.read_hash_slots().await;
        for node in &self.store.nodes.now().nodes {
            if node.is_available() {
                continue;
            }
            match self.attempt(node).await {
                // A redirection shows that the node responds.
                Err(error) if !is_moving(&error) => self.store.fail(node, &error),
                _ => self.store.recovered(node),
            }
        }
        if self.store.is_cluster && self.store.nodes.of(0).is_some_and(|node| node.is_available()) {
            // Until this succeeds, the others still count this server.
            let _ = self.register_again().await;
            self.read_resets().await;
        }
    }

    /// Reaches a node, and calls the script there within the time limit of decisions.
    async fn attempt(&mut self, node: &Node) -> Result<(), RedisError> {
        let limit = self.store.settings.timeout.max(ATTEMPT);
        let mut connection = connect(&self.store.settings, node, limit).await?;
        let Some(group) = self.store.nodes.now().group_of(node) else {
            return cmd("PING").query_async(&mut connection).await;
        };
        // The call has to write, so that it fails on a replica or a full store. The first may be slow, as it loads the script.
        let (batch, run) = (Batch::default(), self.store.store_run(&mut connection).await?);
        match self.store.evaluate(&mut connection, group, &run, &batch, false).await {
            Err(error) if error.code() == Some("TIDEGATELAYOUT") => {
                self.adopt_layout(&mut connection, node).await?
            }
            evaluated => _ = evaluated?,
        }
        connection.set_response_timeout(self.store.settings.timeout);
        self.store.evaluate(&mut connection, group, &run, &batch, false).await?;
        if !run.is_empty() {
            self.store.learn(&mut connection, &run).await?;
        }
        connection.set_response_timeout(limit);
        if group == 0 {
            self.connection = Some(connection);
        }
        Ok(())
    }

    /// Adopts the secret that another server has written after the store was lost and started anew.
    async fn adopt_layout(
        &mut self,
        connection: &mut MultiplexedConnection,
        node: &Node,
    ) -> Result<(), RedisError> {
        if self.store.adopt_layout(connection, node).await?.is_some() {
            tracing::warn!(
                %node,
                "the shared store was started anew by another server, whose secret of keys is adopted: counters begin anew"
            );
            self.put_keys();
        }
        Ok(())
    }

    /// Writes a heartbeat. Tries again with another connection if the present one has ended.
    async fn register_again(&mut self) -> Result<(), RedisError> {
        let had_connection = self.connection.is_some();
        let Err(error) = self.sign().await else { return Ok(()) };
        self.connection = None;
        if !had_connection {
            return Err(error);
        }
        self.sign().await.inspect_err(|_| self.connection = None)
    }

    /// Writes a heartbeat, and counts the servers with recent heartbeats.
    async fn sign(&mut self) -> Result<(), RedisError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let node = self.store.nodes.of(0).ok_or((ErrorKind::Client, "no node has the servers"))?;
                none.insert(connect(&self.store.settings, &node, ATTEMPT * 10).await?)
            }
        };
        let (seconds, micros): (u64, u64) = cmd("TIME").query_async(connection).await?;
        let offset = self.store.clock_offset(Timestamp::from_nanos(seconds * 1_000_000_000 + micros * 1_000));
        if offset.abs_diff(self.clock_offset) > CLOCK_OFFSET_LOGGED {
            self.clock_offset = offset;
            tracing::warn!(
                seconds = offset,
                "the clock of the shared store is ahead of this server's by so much"
            );
        }
        let key = servers_key(&self.store);
        let (servers,): (u32,) = pipe()
            .zadd(&key, &self.name, seconds)
            .ignore()
            .cmd("ZREMRANGEBYSCORE")
            .arg(&key)
            .arg("-inf")
            .arg(seconds.saturating_sub(ALIVE.as_secs()))
            .ignore()
            .expire(&key, ALIVE.as_secs() as i64 * 6)
            .ignore()
            .zcard(&key)
            .query_async(connection)
            .await?;
        self.store.servers.store(servers.max(1), Ordering::Relaxed);
        Ok(())
    }

    async fn leave(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let key = servers_key(&self.store);
        // If the store cannot be reached, the entry of this server expires.
        let _: Result<u32, RedisError> = cmd("ZREM").arg(&key).arg(&self.name).query_async(connection).await;
    }
}

/// Whether the hash slot of the call is being moved to another node, or has moved.
fn is_moving(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, Moved, TryAgain};
    matches!(error.kind(), ErrorKind::Server(Ask | Moved | TryAgain))
}

/// The key of the servers, which is in the first group of a cluster.
fn servers_key(store: &SharedStore) -> String {
    format!("{}servers", store.key_prefix(0))
}

/// A random number. Zero in the unlikely case that the operating system returns none.
fn random() -> u64 {
    getrandom::u64().unwrap_or(0)
}
