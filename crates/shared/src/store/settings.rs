//! Settings of a shared store.

use super::address::StoreAddress;
use std::{fmt, time::Duration};

/// Settings of a shared store.
#[derive(Clone)]
pub struct SharedSettings {
    /// Address, user, password and database.
    pub address: StoreAddress,
    /// Certificates; the authorities of the system by default.
    pub tls: StoreTls,
    /// The beginning of all keys.
    pub prefix: String,
    /// Time limit of a call.
    pub timeout: Duration,
    /// The decision if the store does not decide.
    pub on_failure: OnFailure,
    /// Length of leases; zero if nothing is leased.
    pub lease_length: Duration,
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
    /// Whether certificates with other names than the host's are accepted.
    pub any_name: bool,
}

/// The decision if the store does not decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFailure {
    /// Deny.
    Deny,
    /// Admit without counting.
    Allow,
    /// Decide over local counters, by an equal share of each limit.
    Local,
    /// Fail the call, so that its caller decides.
    Error,
}

impl fmt::Display for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
            Self::Local => "local",
            Self::Error => "error",
        })
    }
}
