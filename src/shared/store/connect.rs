//! Connections, and the checks that a store must pass before it counts.

use super::{Counts, Inner, SharedSettings, SharedStore, StoreTls};
use crate::{
    shared::script::{LAYOUT_VERSION, SCRIPT},
    store::Seed,
};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, RedisError, TlsCertificates, aio::MultiplexedConnection,
    cmd,
};
use std::{
    fmt::Write as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// Time limit of each step of a start.
const START_TIMEOUT: Duration = Duration::from_secs(5);

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
        let address = settings.address.addr().to_string();
        let failed = |error| ConnectError::Store { address: address.clone(), error };
        let client = client(&settings).map_err(failed)?;
        let mut connection = connection(&client, START_TIMEOUT).await.map_err(failed)?;
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
            client,
            script_digest,
            layout_key,
            layout: found,
            seed,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            is_available: AtomicBool::new(true),
            outages: AtomicU64::new(0),
            timeouts: AtomicU32::new(0),
            failed: Notify::new(),
            failure: Mutex::default(),
            servers: AtomicU32::new(1),
            counts: Counts::default(),
        })))
    }
}

impl Inner {
    /// A new connection.
    pub(super) async fn connection(&self, timeout: Duration) -> Result<MultiplexedConnection, RedisError> {
        connection(&self.client, timeout).await
    }
}

async fn connection(client: &Client, timeout: Duration) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(Some(timeout));
    client.get_multiplexed_async_connection_with_config(&config).await
}

fn client(settings: &SharedSettings) -> Result<Client, RedisError> {
    let StoreTls { authorities, identity } = settings.tls.clone();
    if authorities.is_none() && identity.is_none() {
        return Client::open(settings.address.clone());
    }
    let client_tls = identity.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    Client::build_with_tls(settings.address.clone(), TlsCertificates { client_tls, root_cert: authorities })
}

/// Checks the version, and whether counters could be dropped.
fn check(info: &str, settings: &SharedSettings) -> Result<(), ConnectError> {
    let field = |name: &str| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(field, _)| *field == name).map(|(_, value)| value.trim())
    };
    let version = field("redis_version").unwrap_or("unknown");
    if !version.split('.').next().and_then(|major| major.parse().ok()).is_some_and(|major: u32| major >= 7) {
        return Err(ConnectError::Version { version: version.to_owned() });
    }
    if field("cluster_enabled") == Some("1") {
        return Err(ConnectError::Cluster);
    }
    let policy = field("maxmemory_policy").unwrap_or("noeviction");
    let is_bounded = field("maxmemory").is_some_and(|bytes| bytes != "0");
    if is_bounded && policy != "noeviction" && !settings.allow_eviction {
        return Err(ConnectError::Eviction { policy: policy.to_owned() });
    }
    Ok(())
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
fn seed(layout: &str) -> Option<Seed> {
    let digits = layout.strip_prefix(&format!("tidegate {LAYOUT_VERSION} "))?;
    let bytes = (digits.len() == 32).then(|| u128::from_str_radix(digits, 16).ok())??;
    Some(Seed::from_bytes(bytes.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_read_only_from_a_layout_of_this_version() {
        let secret = Seed::from_bytes(*b"0123456789abcdef");
        assert_eq!(seed(&layout(&secret)), Some(secret.clone()));
        assert_eq!(seed(&layout(&secret).replace("tidegate 1", "tidegate 2")), None);
        assert_eq!(seed("tidegate 1 +123456789abcdef0123456789abcdef"), None);
    }
}
