//! Connections, and the checks that a store must pass before it counts.

use super::{
    Counts, Inner, SharedSettings, SharedStore, StoreAddress, StoreTls,
    commands::key_prefix,
    nodes::{Node, Nodes, of_cluster},
    slots::SlotMap,
};
use crate::{
    clock::SystemClock,
    limiter::{GROUPS, SharedResets},
    shared::{
        holders::Holders,
        lease,
        script::{Batch, LAYOUT_VERSION, RESET_SCRIPT, SCRIPT, UNDO_SCRIPT},
    },
    store::Seed,
};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, RedisError, TlsCertificates, aio::MultiplexedConnection, cmd,
};
use std::{
    fmt::Write as _,
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};
use tokio::sync::Notify;

/// Time limit of each step of a start.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// It is not reached, or refuses a command.
    #[error("the store {address}: {error}")]
    Store {
        /// Its address.
        address: String,
        /// The cause.
        error: RedisError,
    },
    /// Its version is too old.
    #[error("the store is of version {version}; Redis 7 or Valkey is needed")]
    Version {
        /// Its version.
        version: String,
    },
    /// It is a node of a cluster, and its address is not that of a cluster.
    #[error("the store is a node of a cluster; write redis+cluster://host:port")]
    Cluster,
    /// It is no cluster, and its address is that of one.
    #[error("the store {node} is not a node of a cluster; write redis://host:port")]
    NoCluster {
        /// Its address.
        node: String,
    },
    /// The prefix would be a hash tag.
    #[error("--counters-prefix has a brace, which has a meaning in the keys of a cluster; leave it out")]
    Prefix,
    /// It drops keys when its memory is full.
    #[error(
        "the store evicts keys when its memory is full (maxmemory-policy {policy}), so that limits would be exceeded; set \
         noeviction, or accept it with --counters-allow-eviction"
    )]
    Eviction {
        /// Its policy.
        policy: String,
    },
    /// Leases with a cluster.
    #[error("counters in a cluster cannot be leased; remove --lease auto")]
    Leases,
    /// Its keys are of another layout.
    #[error(
        "the store has counters of another layout ({found}); this version has layout {LAYOUT_VERSION}. Use another \
         --counters-prefix"
    )]
    Layout {
        /// The value in the store.
        found: String,
    },
    /// No random numbers.
    #[error("no random numbers for the secret of the keys: {0}")]
    Random(#[from] getrandom::Error),
}

impl SharedStore {
    /// Connects, checks the store, and agrees with other servers on the secret of keys.
    pub async fn connect(settings: SharedSettings) -> Result<Self, ConnectError> {
        let address = settings.address.to_string();
        let failed = |error| ConnectError::Store { address: address.clone(), error };
        let is_cluster = matches!(settings.address, StoreAddress::Cluster(_));
        if is_cluster && settings.prefix.contains(['{', '}']) {
            return Err(ConnectError::Prefix);
        }
        if is_cluster && !settings.lease_length.is_zero() {
            return Err(ConnectError::Leases);
        }
        let nodes = match slot_map(&settings, None, START_TIMEOUT).await.map_err(failed)? {
            Some(map) => Nodes::cluster(map),
            None => Nodes::one(),
        };
        let topology = nodes.now();
        let (mut script_digest, mut undo_digest, mut reset_digest) = Default::default();
        for node in &topology.nodes {
            let mut connection = connect(&settings, node, START_TIMEOUT).await.map_err(failed)?;
            let info: String = cmd("INFO").query_async(&mut connection).await.map_err(failed)?;
            check(&info, &settings, node)?;
            script_digest = load(&mut connection, SCRIPT).await.map_err(failed)?;
            undo_digest = load(&mut connection, UNDO_SCRIPT).await.map_err(failed)?;
            reset_digest = load(&mut connection, RESET_SCRIPT).await.map_err(failed)?;
        }
        let group_key =
            |group| format!("{}layout", key_prefix(&settings.prefix, is_cluster.then_some(group)));
        let layout_key = group_key(0);
        let first = topology.of(0).ok_or_else(|| failed(without_node(0)))?;
        let mut connection = connect(&settings, first, START_TIMEOUT).await.map_err(failed)?;
        let proposed = layout(&Seed::random()?);
        set_if_new(&mut connection, &layout_key, &proposed).await.map_err(failed)?;
        let found: String = cmd("GET").arg(&layout_key).query_async(&mut connection).await.map_err(failed)?;
        let Some(seed) = seed(&found) else { return Err(ConnectError::Layout { found }) };
        if is_cluster {
            // Each group has its own, so that the loss of its keys is noticed.
            for node in &topology.nodes {
                let mut connection = connect(&settings, node, START_TIMEOUT).await.map_err(failed)?;
                let mut commands = redis::pipe();
                let of_node =
                    |group: &u16| topology.of(*group).is_some_and(|owner| owner.number == node.number);
                for group in (1..GROUPS).filter(of_node) {
                    commands.cmd("SET").arg(group_key(group)).arg(layout(&seed)).arg("NX").ignore();
                }
                let () = commands.query_async(&mut connection).await.map_err(failed)?;
            }
        }
        let holders = match settings.lease_length {
            Duration::ZERO => None,
            length => {
                let settings = lease::Settings { length, ..lease::Settings::default() };
                Some(Arc::new(Holders::new(settings, getrandom::u64()?)))
            }
        };
        let mut inner = Inner {
            settings,
            script_digest,
            undo_digest,
            reset_digest,
            layout_key,
            layout: layout(&seed),
            seed,
            is_cluster,
            nodes,
            clock: SystemClock::new(),
            failed: Notify::new(),
            servers: AtomicU32::new(1),
            counts: Counts::default(),
            holders,
            resets: SharedResets::default(),
        };
        inner.resets = inner.read_resets(&mut connection).await.map_err(failed)?;
        let run = inner.store_run(&mut connection).await.map_err(failed)?;
        inner.learn(&mut connection, &run).await.map_err(failed)?;
        Ok(Self(Arc::new(inner)))
    }
}

async fn load(connection: &mut MultiplexedConnection, script: &str) -> Result<String, RedisError> {
    cmd("SCRIPT").arg("LOAD").arg(script).query_async(connection).await
}

pub(super) async fn set_if_new(
    connection: &mut MultiplexedConnection,
    key: &str,
    value: &str,
) -> Result<(), RedisError> {
    let _: Option<String> = cmd("SET").arg(key).arg(value).arg("NX").query_async(connection).await?;
    Ok(())
}

fn without_node(group: u16) -> RedisError {
    let text = format!("no node has the slot of group {group}");
    RedisError::from((ErrorKind::Client, "the cluster is not complete", text))
}

impl Inner {
    /// A new connection to a node.
    pub(super) async fn connection(
        &self,
        node: &Node,
        timeout: Duration,
    ) -> Result<MultiplexedConnection, RedisError> {
        connect(&self.settings, node, timeout).await
    }

    /// Reads the map of slots from a node that is reached, if the store is a cluster.
    pub(super) async fn read_slots(&self, timeout: Duration) -> Result<(), RedisError> {
        if let Some(map) = slot_map(&self.settings, Some(&self.nodes), timeout).await? {
            self.nodes.update(map);
        }
        Ok(())
    }

    /// The third argument of the script: the length of leases, and the run of the store that this connection is to. Empty if nothing
    /// is leased.
    pub(super) async fn store_run(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Arc<[u8]>, RedisError> {
        if self.holders.is_none() {
            return Ok(Arc::default());
        }
        let info: String = cmd("INFO").arg("server").query_async(connection).await?;
        let run = field(&info, "run_id").unwrap_or_default();
        let micros = self.settings.lease_length.as_micros() as f64;
        Ok([&micros.to_le_bytes()[..], run.as_bytes()].concat().into())
    }

    /// Waits until the store has learnt which credits are out, if it does.
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

/// The map of slots of a cluster; none for another store. The nodes known are asked before those of the address.
pub(super) async fn slot_map(
    settings: &SharedSettings,
    known: Option<&Nodes>,
    timeout: Duration,
) -> Result<Option<SlotMap>, RedisError> {
    let StoreAddress::Cluster(seeds) = &settings.address else { return Ok(None) };
    let known = known.map(|nodes| nodes.now().nodes.clone()).unwrap_or_default();
    let available = known.iter().filter(|node| node.is_available());
    let known = available.filter_map(|node| Some(of_cluster(seeds.first()?, node.address.as_ref()?)));
    let mut last = RedisError::from((ErrorKind::Client, "no node of the cluster is known"));
    for address in known.chain(seeds.iter().cloned()) {
        match slots_of(address, settings, timeout).await {
            Ok(map) => return Ok(Some(map)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn slots_of(
    address: ConnectionInfo,
    settings: &SharedSettings,
    timeout: Duration,
) -> Result<SlotMap, RedisError> {
    let host = match address.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => String::new(),
    };
    let mut connection = connection(address, &settings.tls, timeout).await?;
    let reply: redis::Value = cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
    let malformed = || RedisError::from((ErrorKind::UnexpectedReturnType, "not a map of slots"));
    SlotMap::from_reply(&reply, &host).filter(|map| !map.nodes.is_empty()).ok_or_else(malformed)
}

/// A connection to the store, to the primary that the first reachable Sentinel names, or to a node of a cluster.
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
            connection(of_cluster(seed, address), &settings.tls, timeout).await
        }
        StoreAddress::One(one) => connection(one.clone(), &settings.tls, timeout).await,
        StoreAddress::Sentinels { sentinels, group, redis } => {
            let mut last = RedisError::from((ErrorKind::EmptySentinelList, "no Sentinel was asked"));
            for sentinel in sentinels {
                match primary(sentinel, group, &settings.tls, timeout).await {
                    Ok(primary) => {
                        let primary = primary.set_redis_settings(redis.clone());
                        return connection(primary, &settings.tls, timeout).await;
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

/// The primary that a Sentinel names, without user and password.
async fn primary(
    sentinel: &ConnectionInfo,
    group: &str,
    tls: &StoreTls,
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

async fn connection(
    address: ConnectionInfo,
    tls: &StoreTls,
    timeout: Duration,
) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(Some(timeout));
    client(address, tls)?.get_multiplexed_async_connection_with_config(&config).await
}

fn client(address: ConnectionInfo, tls: &StoreTls) -> Result<Client, RedisError> {
    let StoreTls { authorities, identity } = tls.clone();
    if authorities.is_none() && identity.is_none() {
        return Client::open(address);
    }
    let client_tls = identity.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    Client::build_with_tls(address, TlsCertificates { client_tls, root_cert: authorities })
}

/// Checks the version, and whether counters could be dropped.
fn check(info: &str, settings: &SharedSettings, node: &Node) -> Result<(), ConnectError> {
    let version = version(info).unwrap_or("unknown");
    let major: Option<u32> = version.split('.').next().and_then(|major| major.parse().ok());
    if major.is_none_or(|major| major < 7) {
        return Err(ConnectError::Version { version: version.to_owned() });
    }
    match (field(info, "cluster_enabled") == Some("1"), &settings.address) {
        (true, StoreAddress::One(_) | StoreAddress::Sentinels { .. }) => return Err(ConnectError::Cluster),
        (false, StoreAddress::Cluster(_)) => return Err(ConnectError::NoCluster { node: node.to_string() }),
        _ => {}
    }
    let policy = field(info, "maxmemory_policy").unwrap_or("noeviction");
    let is_bounded = field(info, "maxmemory").is_some_and(|bytes| bytes != "0");
    if is_bounded && policy != "noeviction" && !settings.allow_eviction {
        return Err(ConnectError::Eviction { policy: policy.to_owned() });
    }
    Ok(())
}

/// One field of the reply to INFO.
pub(super) fn field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(field, _)| *field == name).map(|(_, value)| value.trim())
}

/// The version of the store.
pub(super) fn version(info: &str) -> Option<&str> {
    field(info, "redis_version")
}

/// The value that holds the version of the layout and the secret of keys.
pub(super) fn layout(seed: &Seed) -> String {
    let mut text = format!("tidegate {LAYOUT_VERSION} ");
    for byte in seed.to_bytes() {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
    }
    text
}

/// The secret in it, if it is of this version.
pub(super) fn seed(layout: &str) -> Option<Seed> {
    let fields = layout.strip_prefix(&format!("tidegate {LAYOUT_VERSION} "))?;
    // The epoch may follow.
    let digits = fields.split_once(' ').map_or(fields, |(digits, _)| digits);
    // The parser of numbers would accept a sign.
    let is_complete = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let bytes = is_complete.then(|| u128::from_str_radix(digits, 16).ok())??;
    Some(Seed::from_bytes(bytes.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_read_only_from_a_layout_of_this_version() {
        let secret = Seed::from_bytes(*b"0123456789abcdef");
        assert_eq!(seed(&layout(&secret)), Some(secret.clone()));
        assert_eq!(seed(&layout(&secret).replace("tidegate 3", "tidegate 2")), None);
        assert_eq!(seed(&(layout(&secret) + " 1700000000000000 a-run")), Some(secret));
        assert_eq!(seed("tidegate 3 +123456789abcdef0123456789abcdef"), None);
    }
}
