//! Errors of a store that cannot be used.

use crate::script::LAYOUT_VERSION;
use redis::{ErrorKind, RedisError};

/// The reason why a store cannot be used.
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
    /// It is a node of a cluster, but its address is not that of a cluster.
    #[error("the store is a node of a cluster; write redis+cluster://host:port")]
    Cluster,
    /// It is not a cluster, but its address is that of a cluster.
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

impl ConnectError {
    /// Whether the store may be reached later without a change of its settings or of this server's.
    pub(super) fn is_temporary(&self) -> bool {
        use redis::ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, TryAgain};
        let Self::Store { error, .. } = self else { return false };
        match error.kind() {
            // A store that accepts a connection and ends it expects other settings: TLS, or a certificate.
            ErrorKind::Io => {
                let text = error.to_string().to_lowercase();
                let is_refusal_of_tls = ["certificate", "alert"].iter().any(|word| text.contains(word));
                error.is_connection_refusal() || !(error.is_connection_dropped() || is_refusal_of_tls)
            }
            ErrorKind::Server(BusyLoading | ClusterDown | MasterDown | TryAgain) => true,
            kind => matches!(kind, ErrorKind::MasterNameNotFoundBySentinel | ErrorKind::EmptySentinelList),
        }
    }
}
