//! Settings of a shared store.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use std::{fmt, time::Duration};

/// Settings of a shared store.
#[derive(Clone)]
pub struct SharedSettings {
    /// Address, user, password and database.
    pub address: ConnectionInfo,
    /// Certificates; the authorities of the system by default.
    pub tls: StoreTls,
    /// The beginning of all keys.
    pub prefix: String,
    /// Time limit of a call.
    pub timeout: Duration,
    /// What is decided if the store does not decide.
    pub on_failure: OnFailure,
    /// Accept a store that may evict counters when its memory is full.
    pub allow_eviction: bool,
}

/// Certificates for a store with TLS, as PEM.
#[derive(Clone, Default)]
pub struct StoreTls {
    /// Authorities of the store's certificate.
    pub authorities: Option<Vec<u8>>,
    /// Certificate chain and private key of this server.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// What is decided if the store does not decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFailure {
    /// Deny.
    Deny,
    /// Admit without counting.
    Allow,
    /// Decide over local counters, by an equal share of each limit.
    Local,
}

impl fmt::Display for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
            Self::Local => "local",
        })
    }
}

impl SharedSettings {
    /// Reads a URL: `redis://` and `rediss://` with host, port, user, password and database, or `unix:` with the path of a
    /// socket.
    pub fn address(url: &str) -> Result<ConnectionInfo, String> {
        let scheme = url.split(':').next().unwrap_or_default();
        let url = match scheme {
            "redis" | "rediss" => url.to_owned(),
            "unix" => format!("unix://{}", url["unix:".len()..].trim_start_matches("//")),
            "redis+cluster" | "redis+sentinel" => {
                return Err(
                    "clusters and Sentinel are not supported; write the address of one store".to_owned()
                );
            }
            _ => return Err("write redis://host:port, rediss://host:port or unix:/path".to_owned()),
        };
        let address = url.into_connection_info().map_err(|error| error.to_string())?;
        match address.addr() {
            ConnectionAddr::Unix(path) if !path.is_absolute() => {
                Err("the path of the socket is not absolute".to_owned())
            }
            _ => Ok(address),
        }
    }
}

/// Prints no password.
impl fmt::Debug for SharedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, prefix, timeout, on_failure, allow_eviction, .. } = self;
        f.debug_struct("SharedSettings")
            .field("address", &address.addr().to_string())
            .field("prefix", prefix)
            .field("timeout", timeout)
            .field("on_failure", on_failure)
            .field("allow_eviction", allow_eviction)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_store_is_a_url_or_the_path_of_a_socket() {
        let shown = |url: &str| SharedSettings::address(url).map(|address| address.addr().to_string());
        assert_eq!(shown("redis://user:word@store.example/3").as_deref(), Ok("store.example:6379"));
        assert_eq!(shown("rediss://store.example:7000").as_deref(), Ok("store.example:7000"));
        assert_eq!(shown("unix:/run/store.sock").as_deref(), Ok("/run/store.sock"));
        assert_eq!(shown("unix:///run/store.sock").as_deref(), Ok("/run/store.sock"));
        for refused in
            ["unix:store.sock", "store.example:6379", "http://store.example", "redis+cluster://a,b", ""]
        {
            assert!(shown(refused).is_err(), "{refused}");
        }
    }
}
