//! Errors of a store that cannot be used.

use crate::script::LAYOUT_VERSION;
use redis::{ErrorKind, RedisError};

/// The reason why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// It is not reached, or refuses a command.
    #[error("the store {address}: {error}{}", remedy(error))]
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
        use redis::ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly, TryAgain};
        let Self::Store { error, .. } = self else { return false };
        match error.kind() {
            // A connection that is accepted and closed may be that of a proxy before a store that is away, or of a store that expects TLS.
            ErrorKind::Io => {
                let text = error.to_string().to_lowercase();
                !["certificate", "alert"].iter().any(|word| text.contains(word))
            }
            ErrorKind::Server(BusyLoading | ClusterDown | MasterDown | ReadOnly | TryAgain) => true,
            ErrorKind::Extension => refuses_for_now(error),
            kind => matches!(kind, ErrorKind::MasterNameNotFoundBySentinel | ErrorKind::EmptySentinelList),
        }
    }
}

/// The remedy for an error that may have the settings as its cause. Empty for others.
fn remedy(error: &RedisError) -> &'static str {
    match error.is_connection_dropped() && !error.is_connection_refusal() {
        true => {
            "; the connection was closed: does the store expect TLS (rediss://), or is it away behind a proxy?"
        }
        false => "",
    }
}

/// Whether the store refuses commands because of its present state: its memory is full, it cannot persist writes, it lacks replicas, or a slow
/// script runs. Running servers go on by their policy then, so that a restarted one does too.
fn refuses_for_now(error: &RedisError) -> bool {
    let errors = error.clone().into_server_errors();
    let code = errors.as_deref().and_then(|errors| errors.first()).map(|(_, error)| error.code());
    code.is_some_and(|code| matches!(code, "OOM" | "MISCONF" | "NOREPLICAS" | "BUSY"))
}

#[cfg(test)]
mod tests {
    use super::{super::failure::error_of, *};

    /// A sidecar, HAProxy or docker-proxy before a dead store closes connections. A server that was restarted then used to end.
    #[test]
    fn a_store_that_closes_connections_is_joined_later_and_one_that_refuses_the_certificate_is_not() {
        use std::io::{Error, ErrorKind};
        let of = |error: Error| ConnectError::Store { address: "a store".to_owned(), error: error.into() };
        for kind in [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof] {
            let error = of(kind.into());
            assert!(error.is_temporary() && error.to_string().contains("rediss://"), "{error}");
        }
        for kind in [ErrorKind::ConnectionRefused, ErrorKind::TimedOut] {
            let error = of(kind.into());
            assert!(error.is_temporary() && !error.to_string().contains("rediss://"), "{error}");
        }
        for text in ["invalid peer certificate: UnknownIssuer", "received fatal alert: CertificateRequired"] {
            let error = of(Error::new(ErrorKind::InvalidData, text));
            assert!(!error.is_temporary(), "{error}");
        }
    }

    /// A server that was started during such a state used to end, and a rolling restart then ended all servers.
    #[test]
    fn a_store_that_refuses_writes_for_now_is_joined_later() {
        let is_temporary = |line: &str| {
            ConnectError::Store { address: "a store".to_owned(), error: error_of(line) }.is_temporary()
        };
        for line in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "READONLY You can't write against a read only replica.",
            "MISCONF Redis is configured to save RDB snapshots, but it is currently unable to persist to disk.",
            "NOREPLICAS Not enough good replicas to write.",
            "BUSY Redis is busy running a script.",
            "LOADING Redis is loading the dataset in memory",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        ] {
            assert!(is_temporary(line), "{line}");
        }
        for line in [
            "WRONGPASS invalid username-password pair or user is disabled.",
            "NOAUTH Authentication required.",
            "NOPERM this user has no permissions to run the 'set' command",
            "ERR unknown command",
        ] {
            assert!(!is_temporary(line), "{line}");
        }
    }
}
