//! Connections, and the checks that a store must pass before it counts.

use super::{Counts, Inner, SharedSettings, SharedStore, StoreAddress, StoreTls};
use crate::{
    shared::script::{LAYOUT_VERSION, SCRIPT},
    store::Seed,
};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, RedisError, TlsCertificates, aio::MultiplexedConnection, cmd,
};
use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
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
    /// It is a node of a cluster.
    #[error("the store is a node of a cluster, which is not supported; use a store that is not")]
    Cluster,
    /// It drops keys when its memory is full.
    #[error(
        "the store evicts keys when its memory is full (maxmemory-policy {policy}), so that limits would be exceeded; set \
         noeviction, or accept it with --counters-allow-eviction"
    )]
    Eviction {
        /// Its policy.
        policy: String,
    },
    /// Its keys are of another layout.
    #[error(
        "the store has counters of another layout ({found}); this version has layout {LAYOUT_VERSION}. Use another \
         --counters-prefix"
    )]
    Layout {
        /// What the store has.
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
        let mut connection = connect(&settings, START_TIMEOUT).await.map_err(failed)?;
        let info: String = cmd("INFO").query_async(&mut connection).await.map_err(failed)?;
        check(&info, &settings)?;
        let script_digest =
            cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query_async(&mut connection).await.map_err(failed)?;
        let layout_key = format!("{}layout", settings.prefix);
        let proposed = layout(&Seed::random()?);
        let _: Option<String> = cmd("SET")
            .arg(&layout_key)
            .arg(&proposed)
            .arg("NX")
            .query_async(&mut connection)
            .await
            .map_err(failed)?;
        let found: String = cmd("GET").arg(&layout_key).query_async(&mut connection).await.map_err(failed)?;
        let Some(seed) = seed(&found) else { return Err(ConnectError::Layout { found }) };
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Ok(Self(Arc::new(Inner {
            settings,
            script_digest,
            layout_key,
            layout: layout(&seed),
            seed,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            is_available: AtomicBool::new(true),
            outages: AtomicU64::new(0),
            without_response: AtomicU32::new(0),
            failed: Notify::new(),
            servers: AtomicU32::new(1),
            counts: Counts::default(),
        })))
    }
}

impl Inner {
    /// A new connection.
    pub(super) async fn connection(&self, timeout: Duration) -> Result<MultiplexedConnection, RedisError> {
        connect(&self.settings, timeout).await
    }
}

/// A connection to the store, or to the primary that the first reachable Sentinel names.
pub(super) async fn connect(
    settings: &SharedSettings,
    timeout: Duration,
) -> Result<MultiplexedConnection, RedisError> {
    match &settings.address {
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
fn check(info: &str, settings: &SharedSettings) -> Result<(), ConnectError> {
    let version = version(info).unwrap_or("unknown");
    let major: Option<u32> = version.split('.').next().and_then(|major| major.parse().ok());
    if major.is_none_or(|major| major < 7) {
        return Err(ConnectError::Version { version: version.to_owned() });
    }
    if field(info, "cluster_enabled") == Some("1") {
        return Err(ConnectError::Cluster);
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
fn layout(seed: &Seed) -> String {
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
        assert_eq!(seed(&layout(&secret).replace("tidegate 2", "tidegate 1")), None);
        assert_eq!(seed(&(layout(&secret) + " 1700000000000000 a-run")), Some(secret));
        assert_eq!(seed("tidegate 2 +123456789abcdef0123456789abcdef"), None);
    }
}
