//! Connections, and the checks of a store before it is used.

use super::{
    SharedSettings, StoreAddress,
    connect_error::ConnectError,
    connection::Connection,
    hash_slots::HashSlots,
    nodes::{Node, Nodes, of_cluster},
    shared_store::SharedStore,
    tcp, tls,
};
use crate::script::Batch;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError,
    ServerErrorKind, aio::MultiplexedConnection, cmd,
};
use rustls::ClientConfig;
use std::{io, sync::Arc, time::Duration};

impl SharedStore {
    /// A new connection to a node, with what decisions need to know of it.
    pub(super) async fn open(&self, node: &Node, timeout: Duration) -> Result<Connection, RedisError> {
        let mut commands = connect(&self.settings, node, timeout).await?;
        // Read after the node has responded, as a primary: an outage before that does not concern this connection. If it did, connections
        // that take longer than the outages of the node are apart would never be of use. After a later outage it is opened again.
        let outages = node.outages();
        let run = self.store_run(&mut commands).await?;
        Ok(Connection { commands, run, outages, has_ended: Arc::default() })
    }

    /// Reads the map of hash slots from a node that is reached. Does nothing if the store is not a cluster.
    pub(super) async fn read_hash_slots(&self, timeout: Duration) -> Result<(), RedisError> {
        if let Some(map) = hash_slots(&self.settings, Some(&self.nodes), timeout).await? {
            self.nodes.update(map);
        }
        Ok(())
    }

    /// The third argument of the script: the length of leases, and the run of the store of this connection. Empty if nothing is leased.
    pub(super) async fn store_run(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Arc<[u8]>, RedisError> {
        if !self.leases() {
            return Ok(Arc::default());
        }
        let info: String = cmd("INFO").arg("server").query_async(connection).await?;
        let run = field(&info, "run_id").unwrap_or_default();
        let micros = self.settings.lease_length.as_micros() as f64;
        Ok([&micros.to_le_bytes()[..], run.as_bytes()].concat().into())
    }

    /// Waits until the store has learnt which credits are outstanding, if it is learning.
    pub(super) async fn learn(
        &self,
        connection: &mut MultiplexedConnection,
        run: &[u8],
    ) -> Result<(), RedisError> {
        while self.evaluate(connection, 0, run, &Batch::default(), false).await?.is_learning {
            tokio::time::sleep(self.settings.lease_length / 4).await;
        }
        Ok(())
    }
}

/// The map of hash slots of a cluster; none for another store. Tries the known nodes first, then those of the address.
pub(super) async fn hash_slots(
    settings: &SharedSettings,
    known: Option<&Nodes>,
    timeout: Duration,
) -> Result<Option<HashSlots>, RedisError> {
    let StoreAddress::Cluster(seeds) = &settings.address else { return Ok(None) };
    let known = known.map(|nodes| nodes.now().nodes.clone()).unwrap_or_default();
    let available = known.iter().filter(|node| node.is_available());
    let known = available.filter_map(|node| Some(of_cluster(seeds.first()?, node.address.as_ref()?)));
    let mut last = RedisError::from((ErrorKind::Client, "no node of the cluster is known"));
    for address in known.chain(seeds.iter().cloned()) {
        match hash_slots_of(address, settings, timeout).await {
            Ok(map) => return Ok(Some(map)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn hash_slots_of(
    address: ConnectionInfo,
    settings: &SharedSettings,
    timeout: Duration,
) -> Result<HashSlots, RedisError> {
    let host = match address.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => String::new(),
    };
    let mut connection = connection(address, settings.tls.as_ref(), timeout).await?;
    let reply: redis::Value = cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
    let malformed = || RedisError::from((ErrorKind::UnexpectedReturnType, "not a map of hash slots"));
    HashSlots::from_reply(&reply, &host).filter(|map| !map.nodes.is_empty()).ok_or_else(malformed)
}

/// A connection to the store, to the primary that a Sentinel names, or to a node of a cluster.
pub(super) async fn connect(
    settings: &SharedSettings,
    node: &Node,
    timeout: Duration,
) -> Result<MultiplexedConnection, RedisError> {
    match &settings.address {
        StoreAddress::Cluster(seeds) => {
            let (Some(seed), Some(address)) = (seeds.first(), &node.address) else {
                return Err((ErrorKind::InvalidClientConfig, "a node of a cluster has an address").into());
            };
            connection(of_cluster(seed, address), settings.tls.as_ref(), timeout).await
        }
        StoreAddress::One(one) => connection(one.clone(), settings.tls.as_ref(), timeout).await,
        StoreAddress::Sentinels { sentinels, group, redis } => {
            let (first, mut failed) = (node.first_sentinel(), Vec::new());
            for index in (first..sentinels.len()).chain(0..first) {
                let sentinel = &sentinels[index];
                let connected = match primary(sentinel, group, settings.tls.as_ref(), timeout).await {
                    Ok(address) => {
                        let address = address.set_redis_settings(redis.clone());
                        connect_primary(address, settings.tls.as_ref(), timeout).await
                    }
                    Err(error) => Err(error),
                };
                match connected {
                    Ok(connection) => {
                        // Only one of several workers that connect at once logs the change.
                        if index != first && node.begin_with_sentinel(index, first) {
                            log_passed_over(sentinel, &failed);
                        }
                        return Ok(connection);
                    }
                    // This Sentinel may have an old configuration. The others may name another store.
                    Err(error) => failed.push((sentinel, error)),
                }
            }
            let none = || (ErrorKind::EmptySentinelList, "no Sentinel is configured").into();
            Err(failed.pop().map_or_else(none, |(_, error)| error))
        }
    }
}

/// Logs the Sentinels that named no reachable primary, and the Sentinel that is queried first from now on.
fn log_passed_over(first: &ConnectionInfo, failed: &[(&ConnectionInfo, RedisError)]) {
    let first = first.addr();
    for (sentinel, error) in failed {
        let sentinel = sentinel.addr();
        tracing::warn!(%sentinel, %error, %first, "a Sentinel names no reachable primary: another is queried first");
    }
}

/// The primary that a Sentinel names, without user and password.
async fn primary(
    sentinel: &ConnectionInfo,
    group: &str,
    tls: Option<&Arc<ClientConfig>>,
    timeout: Duration,
) -> Result<ConnectionInfo, RedisError> {
    let mut connection = connection(sentinel.clone(), tls, timeout).await?;
    let address: Option<(String, u16)> =
        cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(group).query_async(&mut connection).await?;
    let Some((host, port)) = address else {
        return Err((ErrorKind::MasterNameNotFoundBySentinel, "the Sentinel does not know the group").into());
    };
    let scheme = if matches!(sentinel.addr(), ConnectionAddr::TcpTls { .. }) { "rediss" } else { "redis" };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    format!("{scheme}://{host}:{port}").into_connection_info()
}

/// A connection to the store that a Sentinel names, unless it is a replica.
async fn connect_primary(
    address: ConnectionInfo,
    tls: Option<&Arc<ClientConfig>>,
    timeout: Duration,
) -> Result<MultiplexedConnection, RedisError> {
    let name = address.addr().to_string();
    let mut connection = connection(address, tls, timeout).await?;
    let info: String = cmd("INFO").arg("replication").query_async(&mut connection).await?;
    if field(&info, "role") != Some("master") {
        let kind = ErrorKind::Server(ServerErrorKind::ReadOnly);
        return Err((kind, "the store that the Sentinel names is a replica", name).into());
    }
    Ok(connection)
}

async fn connection(
    address: ConnectionInfo,
    tls: Option<&Arc<ClientConfig>>,
    timeout: Duration,
) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(Some(timeout));
    let ConnectionAddr::TcpTls { host, port, .. } = address.addr() else {
        let address = address.set_tcp_settings(tcp::settings());
        return Client::open(address)?.get_multiplexed_async_connection_with_config(&config).await;
    };
    let connect = async {
        let stream = tls::connect(host, *port, tls).await?;
        MultiplexedConnection::new_with_config(address.redis_settings(), stream, config).await
    };
    let connected = tokio::time::timeout(timeout, connect).await;
    let late = |_| RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
    let (connection, driver) = connected.map_err(late)??;
    // It ends when the last handle of the connection is dropped.
    tokio::spawn(driver);
    Ok(connection)
}

/// Checks the version, and whether the store may evict counters.
pub(super) fn check(info: &str, settings: &SharedSettings, node: &Node) -> Result<(), ConnectError> {
    let version = field(info, "redis_version").unwrap_or("unknown");
    let major: Option<u32> = version.split('.').next().and_then(|major| major.parse().ok());
    if major.is_none_or(|major| major < 7) {
        return Err(ConnectError::Version { version: version.to_owned() });
    }
    match (field(info, "cluster_enabled") == Some("1"), &settings.address) {
        (true, StoreAddress::One(_) | StoreAddress::Sentinels { .. }) => return Err(ConnectError::Cluster),
        (false, StoreAddress::Cluster(_)) => return Err(ConnectError::NoCluster { node: node.to_string() }),
        _ => {}
    }
    match eviction(info) {
        Some(policy) if !settings.allow_eviction => Err(ConnectError::Eviction { policy: policy.to_owned() }),
        _ => Ok(()),
    }
}

/// The policy by which the store evicts keys when its memory is full; none if it does not evict.
pub(super) fn eviction(info: &str) -> Option<&str> {
    let is_bounded = field(info, "maxmemory").is_some_and(|bytes| bytes != "0");
    field(info, "maxmemory_policy").filter(|policy| is_bounded && *policy != "noeviction")
}

/// A field of the reply to INFO.
pub(super) fn field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(field, _)| *field == name).map(|(_, value)| value.trim())
}
